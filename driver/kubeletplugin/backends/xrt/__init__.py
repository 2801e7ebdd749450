"""AMD's Alveo cards through the kernel driver xocl and AMD's runtime library, XRT.

``sysfs`` reads what the kernel says of cards, ``xclbin`` the image files (pure), and ``library`` has them loaded by
processes of ``load_process``, the only module that changes a card, through libxrt. ``card`` surveys a card, loads
functions and releases the card, ``health`` judges what was read. ``backend`` is the protocol over all cards, ``config``
its configuration, and ``handles`` what the checkpoint keeps and containers get. See docs/fpga.md.
"""

from kerf_dra.driver.kubeletplugin.backends.xrt.backend import XrtBackend, open_backend

__all__ = ["XrtBackend", "open_backend"]
