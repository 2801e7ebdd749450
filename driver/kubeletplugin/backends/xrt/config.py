"""The configuration of the backend ``xrt``: a YAML document, all of whose fields have a default.

.. code-block:: yaml

    descriptionFolder: /var/lib/kerf/fpga/descriptions
    imageFolder: /var/lib/kerf/fpga/images
    xrtFolder: /opt/xilinx/xrt
"""

from typing import Annotated

import msgspec

from kerf_dra.driver.kubeletplugin.backends.fpga.images.config import FpgaImagesConfig


class XrtConfig(FpgaImagesConfig):
    """The configuration document."""

    xrt_folder: str = "/opt/xilinx/xrt"
    """The folder of XRT, whose ``lib`` has libxrt_coreutil.so.2 and libxrt_core.so.2: where AMD's package puts it."""
    health_poll_seconds: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 2.0
    """Seconds between two reads of the cards' states; the kernel reports none of them by itself."""
    system_root: str = "/"
    """The directory with ``sys``, ``proc`` and ``dev`` of the cards: another one than ``/`` for a stand-in only."""

    @property
    def is_for_stand_in(self) -> bool:
        """Whether the cards are a stand-in's."""
        return self.system_root != "/"
