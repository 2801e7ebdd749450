"""Keeps the structure of the code: names, sizes, references and the picture of the packages."""
