"""Extended resources that pods ask for by ``limits`` and that kubelets count: how many are free, and who has them.

Those that ResourceClasses offer by the device plugin interface (``offered_resources``), and those of devices that nodes
find by discovery, on Kubernetes 1.29 to 1.31 (``discovered_devices``). Pure.
"""
