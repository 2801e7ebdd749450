"""Keeps the structure of the code: names, sizes, references and the diagram of the packages."""
