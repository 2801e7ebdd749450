"""Codecs of ``resource.k8s.io``: a module for each version, ``registry`` for the choice among them.

JSON -> types of a version (where they differ from the model) -> ``kerf_dra.api.model``, and back. *Structured* versions
(v1beta1 and later) record the scheduler's allocation, *classic* ones (v1alpha2, v1alpha3) that of a driver's
controller.
"""
