"""Decoding, validation and encoding of spec files.

- ``decoder.read``: bytes -> ``fast_decoder`` (plain documents), else ``yaml_parser`` -> ``document_tree`` -> ``Spec``.
- ``validation``: ``Spec`` -> findings, whose severity comes from ``rules``.
- ``encoder``: valid ``Spec`` -> JSON or YAML with the same meaning for all readers.

Decoder, encoder and JSON schema are driven by one table of fields (``fields``). Only ``yaml_parser`` imports PyYAML.
"""
