"""What an allocation must not say, checked before anything is done on hardware. Pure.

The API server checks the form of an allocation, and lets its writers allocate a card and a part of it at once,
or a shared device without a share. ``allocation`` checks the results of one claim against its spec and against each
other, ``shares`` what a result says of a share (KEP-5075). Conflicts with other claims are those of the checkpoint
(``check_conflicts``, and ``check_share_totals`` with the demands that are listed here). The package knows devices
(``kerf_dra.driver.kubeletplugin.inventory.devices``) and no cluster.
"""

from kerf_dra.driver.kubeletplugin.claims.validation.allocation import find_contradictions, list_share_demands
from kerf_dra.driver.kubeletplugin.claims.validation.shares import ShareDemand

__all__ = ["ShareDemand", "find_contradictions", "list_share_demands"]
