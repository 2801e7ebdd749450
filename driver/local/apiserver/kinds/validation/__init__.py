"""The strategies of built-in kinds: defaults, preparation and validation, in the words of Kubernetes.

A module has the strategies of the kinds that its name says; ``resource_fields`` has what those of ``resource.k8s.io``
share. A ``validate_*`` function yields the errors at and below a path.
"""
