"""Intel's and OFS's FPGA cards through the kernel's DFL driver (Device Feature List).

What an administrator says of shells and images is in ``kerf_dra.driver.families.fpga.descriptions``. ``images`` has the
image files (``gbs``: their format, pure), ``sysfs`` what the kernel says of cards. ``driver_calls`` is the only module
that changes a card. ``card`` surveys a card, loads functions and releases slots; ``health`` watches the cards.
``backend`` is the protocol over all cards, ``config`` its configuration, and ``handles`` what the checkpoint keeps and
containers get. See docs/fpga.md.
"""

from kerf_dra.driver.kubeletplugin.backends.dfl.backend import DflBackend, open_backend

__all__ = ["DflBackend", "open_backend"]
