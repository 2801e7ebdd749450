"""Kerf's own API group, ``kerf.dev``: its types, their validation, and the CRDs that are generated from them.

Struct types (``v1alpha1``, ``classic_parameters``, ``node_inventory``) describe the shape of documents,
``cross_field_rules`` the allowed combinations of fields. ``decoder`` reads users' documents: ``validation`` checks
every field, msgspec converts, the rules are evaluated. ``tools/generate/crds.py`` derives the CRDs from the same types
and rules.
"""
