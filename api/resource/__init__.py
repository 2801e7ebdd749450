"""``resource.k8s.io`` objects to and from the model, one module for each wire version."""
