"""The health of NVIDIA cards: ``events`` watches them, ``card_health`` decides what that says of a card and its
partitions (pure), ``xid_policy`` is the table of Xid errors.
"""

from kerf_dra.driver.kubeletplugin.backends.nvidia.health.events import EventWatcher

__all__ = ["EventWatcher"]
