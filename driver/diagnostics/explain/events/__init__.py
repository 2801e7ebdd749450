"""What events and the status of pods report of devices: causes that claims and slices do not show.

``kubelet_messages`` classifies what kubelets say of claims, ``container_devices`` finds containers that their runtime
cannot give devices and devices that are unhealthy, ``node_events`` cards that Kerf's plugins withhold.
"""
