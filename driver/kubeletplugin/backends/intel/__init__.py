"""Intel's GPUs through the kernel drivers ``i915`` and ``xe``.

``sysfs`` reads what the kernel says of cards, ``drm`` asks a card's driver for its memory, ``handles`` has what the
checkpoint keeps and containers get, ``health`` judges what ``sysfs`` reads of a card's health, ``config`` has the
configuration, and ``backend`` the protocol over all cards. Nothing is done to a card: a tile or a share is a promise of
programs, which they keep by the variables that their containers get. See docs/intel.md.
"""

from kerf_dra.driver.kubeletplugin.backends.intel.backend import IntelBackend, open_backend

__all__ = ["IntelBackend", "open_backend"]
