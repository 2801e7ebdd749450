"""Devices that were found by discovery, as the cluster's DiscoveredDevices describe them.

Nothing is done to a device: a container gets the variables, mounts and device nodes that its object and its
configuration name. See docs/discovered-devices.md.
"""

from kerf_dra.driver.kubeletplugin.backends.discovered.backend import DiscoveredBackend, open_backend

__all__ = ["DiscoveredBackend", "open_backend"]
