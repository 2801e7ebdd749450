"""Devices that were found by discovery, as the cluster's DiscoveredDevices describe them.

Nothing is done to a device: a container gets the variables, mounts and device nodes that its object and its
configuration name. The controller publishes these devices, each as a pool of its own that belongs to no node
(``kerf_dra.driver.controller.structured.discovery``); plugins only prepare those of their node and the shared ones. See
docs/discovered-devices.md.
"""

from kerf_dra.driver.kubeletplugin.backends.discovered.backend import DiscoveredBackend, open_backend

__all__ = ["DiscoveredBackend", "open_backend"]
