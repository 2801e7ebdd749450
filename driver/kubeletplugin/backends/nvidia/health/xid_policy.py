"""The table of NVIDIA's Xid errors: what each one means for claims. Pure data.

The actions are NVIDIA's own, the column "Resolution Bucket (Immediate Action)" of the Xid catalog
(docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, for Ampere and newer). From them follows the effect:
what NVIDIA says to ignore, or to end with the application, says nothing about the card. Where a card has to be reset
it gets no new claims, and its pods go on until an administrator resets it. Pods are evicted where the catalog says that
no application can go on before the reset. From both follows what repairs the card, for ``kerf controller --reclaim``: a
reset at once where its pods cannot go on, and a reset once they have ended where they can.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from kerf_dra.api.kerf.card_repairs import CardRepair, RepairAct
from kerf_dra.driver.kubeletplugin.backends.base import HealthState


@dataclass(frozen=True, slots=True, kw_only=True)
class XidRule:
    """The rule for some Xid errors."""

    xids: tuple[int, ...]
    effect: HealthState
    """HEALTHY: ignored. UNHEALTHY: no new claims. LOST: pods are evicted."""
    action: str
    """NVIDIA's immediate action; empty: the catalog has none."""
    what: str = ""
    """The error in a few words, for people."""
    recovery_since: int | None = None
    """The first driver release whose recovery action covers the error ("Xid 154 linkage"); None: none does."""


def _ignored(action: str, *xids: int) -> XidRule:
    return XidRule(xids=xids, effect=HealthState.HEALTHY, action=action)


def _no_new_claims(action: str, *xids: int, what: str, since: int | None = None) -> XidRule:
    return XidRule(xids=xids, effect=HealthState.UNHEALTHY, action=action, what=what, recovery_since=since)


def _evicting(action: str, *xids: int, what: str, since: int | None = None) -> XidRule:
    return XidRule(xids=xids, effect=HealthState.LOST, action=action, what=what, recovery_since=since)


XID_RULES: Final = (
    _ignored("RESTART_APP", 8, 11, 13, 25, 31, 32, *range(39, 42), 60, *range(68, 73), *range(75, 78), 80),
    _ignored("RESTART_APP", *range(82, 87), 88, 89, *range(96, 106), *range(126, 136), 139),
    # 94, contained: one application ends, the others go on. What is left to repair, the remapped rows say.
    _ignored("RESTART_APP", 94),
    _ignored("IGNORE", 37, 38, 43, 44, 63, 66, 67, 92, 93, *range(106, 109), 121, 137, 141, 152, 153, 157, 160, 161),
    _ignored("WORKFLOW_XID_45", 45),
    _ignored("UPDATE_SWFW", 78),
    # 154 says that the recovery action has changed, which is read after every event.
    _ignored("XID_154", 154),
    # Power smoothing: "no GPU reset required".
    _ignored("", *range(162, 166)),
    _no_new_claims("RESET_GPU", 46, what="the GPU stopped processing"),
    _no_new_claims("WORKFLOW_XID_48", 48, what="an uncorrectable memory error", since=565),
    _no_new_claims("CHECK_MECHANICALS", 54, what="auxiliary power is not connected"),
    _no_new_claims("RESET_GPU", 62, what="an internal microcontroller halted", since=565),
    _no_new_claims("RESET_GPU", 64, what="rows of memory could not be remapped", since=565),
    _no_new_claims("WORKFLOW_NVLINK_ERR", 74, what="an error of NVLink", since=565),
    _no_new_claims("RESET_GPU", 109, what="a context switch timed out", since=570),
    _no_new_claims("RESET_GPU", 110, what="a security fault", since=565),
    _no_new_claims("RESET_GPU", 119, what="the GPU's system processor does not answer"),
    _no_new_claims("RESET_GPU", 120, what="an error of the GPU's system processor", since=565),
    _no_new_claims("RESET_GPU", 136, what="the training of a link failed", since=565),
    _no_new_claims("WORKFLOW_NVLINK5_ERR", *range(144, 151), what="an error of NVLink", since=565),
    _no_new_claims("RESTART_VM", 151, what="an error of the key rotation"),
    _no_new_claims("RESET_GPU", 155, what="an NVLink went down", since=565),
    _no_new_claims("RESET_GPU", 156, what="a part of the GPU was retired", since=565),
    # From the release that has the Xid; the catalog does not say which, and 575 is the newest that it names.
    _no_new_claims("RESET_GPU", 158, what="a fatal timeout of the GPU", since=575),
    _no_new_claims("", 167, what="a fatal timeout of PCIe"),
    _no_new_claims("", 168, what="errors in the protected part of memory"),
    _no_new_claims("", 169, what="the security microcontroller halted"),
    _no_new_claims("", 171, 172, what="an uncorrectable memory error"),
    _evicting("RESTART_BM", 79, what="the card fell off the bus", since=565),
    _evicting("RESET_GPU", 95, what="a memory error that was not contained", since=565),
    _evicting("RESET_GPU", 140, what="a memory error that could not be put aside"),
    _evicting("RESET_GPU", 143, what="the GPU could not be initialized", since=575),
)
"""All errors with an effect, and those that are known to have none."""

UNKNOWN_XID: Final = XidRule(xids=(), effect=HealthState.UNHEALTHY, action="", what="an error that Kerf does not know")
"""The rule for any other Xid: later drivers have more, and a card that may be broken gets no new claims."""

_REPAIRS: Final[Mapping[tuple[str, HealthState], RepairAct]] = MappingProxyType(
    {
        ("RESET_GPU", HealthState.LOST): RepairAct.RESET,
        ("RESET_GPU", HealthState.UNHEALTHY): RepairAct.RESET_WHEN_FREE,
        ("RESTART_BM", HealthState.LOST): RepairAct.BOOT,
    }
)
"""What repairs a card, by NVIDIA's action ("BM" is the machine) and the effect. The other actions are a person's, or
the driver says by its recovery action what follows (48: WORKFLOW_XID_48)."""

_RULES: Final[Mapping[int, XidRule]] = MappingProxyType({xid: rule for rule in XID_RULES for xid in rule.xids})


def find_repair(xid: int) -> CardRepair | None:
    """Return what repairs a card after an Xid; None: nothing that Kerf knows, or nothing is to be repaired."""
    rule = find_rule(xid)
    act = _REPAIRS.get((rule.action, rule.effect))
    return None if act is None else CardRepair(act, f"xid-{xid}")


def find_rule(xid: int) -> XidRule:
    """Return the rule for an Xid."""
    return _RULES.get(xid, UNKNOWN_XID)
