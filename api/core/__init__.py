"""The built-in kinds outside ``resource.k8s.io`` that Kerf reads or writes: a module for each version."""
