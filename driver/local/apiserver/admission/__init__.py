"""Admission: the built-in admission plugins, admission policies, and CEL over plain JSON.

``mutation_policies`` change what a client writes before the server completes and validates it; ``admission`` and
``validating_policies`` run between validation and storage of every write. ``policies`` has what both kinds of policies
share; ``cel`` also serves the validation rules of custom resources.
"""
