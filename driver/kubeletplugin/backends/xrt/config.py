"""The configuration of the backend ``xrt``: a YAML document, all of whose fields have a default.

.. code-block:: yaml

    descriptionFolder: /var/lib/kerf/fpga/descriptions
    imageFolder: /var/lib/kerf/fpga/images
    xrtFolder: /opt/xilinx/xrt
"""

from kerf_dra.driver.kubeletplugin.backends.fpga.config import FpgaImagesConfig


class XrtConfig(FpgaImagesConfig):
    """The configuration document."""

    xrt_folder: str = "/opt/xilinx/xrt"
    """The folder of XRT, whose ``lib`` has libxrt_coreutil.so.2 and libxrt_core.so.2: where AMD's package puts it."""
