"""The internal model: what Kubernetes' DRA objects mean, independent of any wire version.

Data types only, immutable and acyclic; they hold no behaviour beyond reading themselves. Their shape is that of
``resource.k8s.io/v1``, so that the newest wire version needs no conversion; every other version converts once, in
``api.resource``.
"""
