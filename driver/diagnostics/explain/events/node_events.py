"""What Kerf's plugins report of the cards of a node, in events of the Node: why devices of it are not published.

Of a card each problem is reported when it begins or changes, and ``CardFree`` once there is none; an event without a
later one about its card is the last that is known. docs/troubleshooting.md has all events.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from kerf_dra.api.core.v1 import Event
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.explain.report import Cause, CauseCode
from kerf_dra.driver.diagnostics.times import format_seconds, seconds_between

_PROBLEMS: Final[Mapping[str, str]] = {
    "InUseOutsideKerf": "on {node} end the process, or remove the partition with the vendor's tool: the devices are "
    "then published again by themselves",
    "CardInQuarantine": "read the kernel's log of {node}, and reset or replace the card: it is published again after "
    "the next survey without an error",
    "CardModeUnavailable": "kerf devices on {node} says how to change the card's mode; for NVIDIA often by a reset "
    "while no program uses the card",
    "CardsNotDiscovered": "load the driver of the cards on {node}, or finish its update: the plugin tries again every "
    "ten seconds",
    "PartitionGone": "delete the pods that use what the message names: their next prepare makes it again",
    "SharesNotPublished": "update Kubernetes, or use no classes with allocation: Shared (docs/compatibility.md)",
}
"""What to do, by the reason for which devices of a node are withheld."""
_HELD: Final = "InUseOutsideKerf"
"""The reason for hardware that another program uses."""
_ENDS: Final[Mapping[str, frozenset[str]]] = {
    "CardFree": frozenset({"InUseOutsideKerf", "CardInQuarantine", "CardModeUnavailable", "PartitionGone"}),
    "CardsDiscovered": frozenset({"CardsNotDiscovered"}),
}
"""The problems of a card or backend that an event ends."""
_SUBJECT: Final = re.compile(r"card \S+ \((?P<uuid>[^)]+)\)|card (?P<bare>\S+)|backend (?P<backend>\S+)")
"""How the messages name their subject: a card with its UUID, by its UUID alone, or a backend."""


def find_withheld_cards(cluster: ClusterIndex, nodes: Collection[str]) -> Iterator[Cause]:
    """Yield a cause for each problem of a card of ``nodes`` that a plugin has reported and that has not ended."""
    latest: dict[tuple[str, str, str], Event] = {}
    about = (each for each in cluster.state.events if each.involved_object.kind == "Node")
    for event in sorted(about, key=lambda event: event.last_timestamp or ""):
        node, subject = event.involved_object.name, _find_subject(event.message)
        for reason in _ENDS.get(event.reason, ()):
            latest.pop((node, reason, subject), None)
        if event.reason in _PROBLEMS and node in nodes:
            latest[node, event.reason, subject] = event
    for (node, reason, _), event in sorted(latest.items()):
        yield Cause(
            code=CauseCode.HARDWARE_HELD if reason == _HELD else CauseCode.CARD_UNAVAILABLE,
            message=f"on {node}: {event.message} (event {reason}{_age(cluster, event)})",
            next_step=_PROBLEMS[reason].format(node=node),
            objects=(f"node {node}",),
        )


def _find_subject(message: str) -> str:
    found = _SUBJECT.search(message)
    return next(filter(None, found.groups()), "") if found else ""


def _age(cluster: ClusterIndex, event: Event) -> str:
    age_s = seconds_between(event.last_timestamp, cluster.state.gathered_at)
    return "" if age_s is None or age_s < 0 else f", {format_seconds(age_s)} ago"
