"""The configuration of the backend ``slots``: a YAML document, all of whose fields have a default.

.. code-block:: yaml

    socket: /var/run/dfx-mgrd.socket
    firmwareFolder: /lib/firmware/xilinx
    base: k26_2rp
    descriptionFolder: /var/lib/kerf/fpga/descriptions
"""

from kerf_dra.driver.kubeletplugin.backends.fpga.config import FpgaConfigBase


class SlotsConfig(FpgaConfigBase):
    """The configuration document."""

    socket: str = "/var/run/dfx-mgrd.socket"
    """The socket of the daemon dfx-mgrd."""
    firmware_folder: str = "/lib/firmware/xilinx"
    """The folder with the base designs: one of ``firmware_location`` in the daemon's configuration."""
    base: str = ""
    """The path of the base design to use, below that folder; empty: those that are layouts of one described shell."""
    overlay_folder: str = "/sys/kernel/config/device-tree/overlays"
    """The folder of the device tree overlays, which says which base design is loaded."""
