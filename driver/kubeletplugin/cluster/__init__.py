"""The plugin's work at the API server: it reads claims, publishes devices and writes the status of claims.

``base.Cluster`` is the protocol that the rest of the plugin sees. ``structured`` implements it where the scheduler
allocates (Kubernetes 1.32 and later, ResourceSlices), ``classic`` where a controller does (1.27 to 1.31,
NodeInventories, written by ``node_inventory``); ``dropped_fields`` finds out what the API server keeps of slices, and
``node_watch`` notices when the Node is another one. The package never imports the plugin's claims or the kubelet's
services.
"""
