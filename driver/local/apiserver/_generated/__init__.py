"""Protobuf messages of built-in kinds, generated: never edited, imported by ``meta/protobuf.py`` only."""
