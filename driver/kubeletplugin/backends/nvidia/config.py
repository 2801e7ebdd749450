"""The configuration of the backend ``nvidia``: a YAML document, all of whose fields have a default.

.. code-block:: yaml

    driverRoot: /run/nvidia/driver
    cdiHookFolder: /var/lib/kubelet/plugins/gpu.kerf.dev
    migMode: OnDemand
    sharingFolder: /run/kerf/sharing
"""

from kerf_dra.driver.kubeletplugin.backends.documents import SystemConfig
from kerf_dra.driver.kubeletplugin.backends.nvidia.mig_mode import MigPolicy


class NvidiaConfig(SystemConfig, rename="camel"):
    """The configuration document."""

    driver_root: str = "/"
    """The directory with the driver's files: ``/``, or where a driver container mounts them."""
    host_driver_root: str = ""
    """The same directory on the host, where the plugin sees it at another path."""
    cdi_hook: str = ""
    """The program nvidia-cdi-hook; empty: ``/usr/bin/nvidia-cdi-hook``, and none for a stand-in."""
    cdi_hook_folder: str = ""
    """The folder into which the program is copied, at the same path on the host; empty: the host has the program."""
    mig_mode: MigPolicy = MigPolicy.ON_DEMAND
    """What may be done with the MIG mode of cards, and with MIG devices that are there."""
    sharing_folder: str = ""
    """The folder of shared devices, at the same path on the host, which a boot should empty; empty: no time slices and
    no MPS."""
    shared_memory_folder: str = ""
    """The folder on the host that containers with MPS have as ``/dev/shm``, as its daemons have; empty: ``shm`` in the
    sharing folder."""
