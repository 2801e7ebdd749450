"""How an NVIDIA device is shared: what a claim may use of it (``limits``), and what is set up and taken back
(``device_sharing``), and how well the daemons of MPS are (``daemon_health``). See docs/nvidia-sharing.md.
"""

from kerf_dra.driver.kubeletplugin.backends.nvidia.sharing.daemon_health import DaemonHealth
from kerf_dra.driver.kubeletplugin.backends.nvidia.sharing.device_sharing import DeviceSharing
from kerf_dra.driver.kubeletplugin.backends.nvidia.sharing.limits import ClientLimits, find_limits

__all__ = ["ClientLimits", "DaemonHealth", "DeviceSharing", "find_limits"]
