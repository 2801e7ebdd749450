"""The rules of resource.k8s.io for one device, one counter set, one claim; they depend on no pool and no search."""
