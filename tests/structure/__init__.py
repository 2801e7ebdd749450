"""Keeps the structure of the code: names, sizes, references and the picture of the packages.

``allowed`` holds the violations of names and sizes that there still are, one set for each guard. A new violation fails
its test, and so does one that is listed but gone: the sets only shrink. ``python -m tests.structure`` prints the module
as it has to be now.
"""
