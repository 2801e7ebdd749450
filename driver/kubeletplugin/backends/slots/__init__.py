"""Boards whose FPGA AMD's daemon dfx-mgrd loads, such as the KR260: designs with slots on Zynq UltraScale+.

``messages`` has what the daemon is sent and answers, ``packages`` the directories that it loads from (both pure of the
daemon), ``layouts`` which base designs are layouts of the card, ``overlays`` which of them is loaded, ``daemon`` the
socket, the only module that changes a card. ``board`` surveys the card, loads its slots and clears them; ``backend``
is the protocol, ``config`` its configuration, ``handles`` what the checkpoint keeps and containers get. See
docs/fpga.md.
"""

from kerf_dra.driver.kubeletplugin.backends.slots.backend import SlotsBackend, open_backend

__all__ = ["SlotsBackend", "open_backend"]
