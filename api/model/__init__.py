"""The internal model: the data types of DRA objects, independent of any wire version.

Values are immutable and acyclic and have no behavior but accessors. They have the shape of ``resource.k8s.io/v1``, so
that this version needs no conversion; every other version is converted once, in ``kerf_dra.api.resource``.
"""
