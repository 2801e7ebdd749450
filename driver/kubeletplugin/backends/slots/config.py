"""The configuration of the backend ``slots``: a YAML document, all of whose fields have a default.

.. code-block:: yaml

    socket: /var/run/dfx-mgrd.socket
    firmwareFolder: /lib/firmware/xilinx
    base: k26_2rp
    descriptionFolder: /var/lib/kerf/fpga/descriptions
"""

from typing import Annotated

import msgspec

from kerf_dra.api.kerf.v1alpha1 import Strict


class SlotsConfig(Strict):
    """The configuration document."""

    socket: str = "/var/run/dfx-mgrd.socket"
    """The socket of the daemon dfx-mgrd."""
    firmware_folder: str = "/lib/firmware/xilinx"
    """The folder with the base designs: one of ``firmware_location`` in the daemon's configuration."""
    base: str = ""
    """The path of the base design to use, below that folder; empty: those that are layouts of one described shell."""
    overlay_folder: str = "/sys/kernel/config/device-tree/overlays"
    """The folder of the device tree overlays, which says which base design is loaded."""
    description_folder: str = "/var/lib/kerf/fpga/descriptions"
    """The folder with descriptions of shells and images."""
    keys: dict[str, str] = {}
    """The ed25519 public keys in PEM, by name, one of which must have signed each image; empty: none need be signed."""
    health_poll_seconds: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 2.0
    """Seconds between two reads of the FPGA's state and of what is loaded; nothing reports them by itself."""
    system_root: str = "/"
    """The directory with ``sys`` and ``proc`` of the board: another one than ``/`` for a stand-in only."""

    @property
    def is_for_stand_in(self) -> bool:
        """Whether the board is a stand-in."""
        return self.system_root != "/"
