"""Admission: the built-in admission plugins, ValidatingAdmissionPolicies, and CEL over plain JSON.

``admission`` and ``validating_policies`` run between validation and storage of every write; ``cel`` also serves the
validation rules of custom resources.
"""
