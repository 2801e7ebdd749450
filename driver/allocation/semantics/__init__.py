"""The rules of resource.k8s.io for one device, one counter set, one claim; nothing here knows a pool or a search."""
