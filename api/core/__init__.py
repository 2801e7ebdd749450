"""The built-in kinds outside ``resource.k8s.io`` that Kerf touches."""
