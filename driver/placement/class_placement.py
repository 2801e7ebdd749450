"""Which placement a pod has: what the ResourceClasses of its claims say, in one word.

A class says nothing, or ``Packed``, ``Spread`` or ``None`` (``spec.placement``). A pod whose classes say nothing is
packed. If one class says something, that counts for the whole pod: all its claims get one node. If two classes say
different things, no node is preferred, because each preference would be against the wish of one of them.

Only a class whose DeviceClass Kerf has made counts: a DeviceClass of the same name that another program has made is
another class.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kerf_dra.api.kerf.v1alpha1 import ClassPlacement, ResourceClassObject
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.claims import ResourceClaim

_KNOWN: Final[Mapping[str, ClassPlacement]] = {"Packed": "Packed", "Spread": "Spread", "None": "None"}
"""The placements by what an undecoded class has."""


@dataclass(frozen=True, slots=True)
class PodPlacement:
    """The placement of a pod."""

    rule: ClassPlacement
    """The rule by which nodes are ranked for it."""
    classes: tuple[str, ...] = ()
    """The classes that ask for the rule, by name; those that contradict each other if ``is_contradictory``. Empty: no
    class of the pod asks for any."""
    is_contradictory: bool = False
    """Whether its classes ask for different rules, so that no node is preferred."""


PACKED: Final = PodPlacement("Packed")
"""The placement of a pod whose classes say nothing."""


def read_placement(spec: JsonObject) -> ClassPlacement | None:
    """Return the placement in the undecoded spec of a class; None: it asks for none, or for none that exists."""
    found = spec.get("placement")
    return _KNOWN.get(found) if isinstance(found, str) else None


def find_placements(resource_classes: Iterable[ResourceClassObject]) -> Mapping[str, ClassPlacement]:
    """Return the placements that ResourceClasses ask for, by the name of the DeviceClass; the others ask for none."""
    return {
        held.metadata.name: placement
        for held in resource_classes
        if held.status.device_class_name == held.metadata.name and (placement := read_placement(held.spec)) is not None
    }


def find_pod_placement(claims: Iterable[ResourceClaim], placements: Mapping[str, ClassPlacement]) -> PodPlacement:
    """Return the placement of the pod that gets ``claims``; ``placements`` are those of classes by name.

    >>> find_pod_placement([], {"small": "Spread"})
    PodPlacement(rule='Packed', classes=(), is_contradictory=False)
    """
    asked = {name: placements[name] for claim in claims for name in _class_names(claim) if name in placements}
    if not asked:
        return PACKED
    rules, classes = set(asked.values()), tuple(sorted(asked))
    if len(rules) > 1:
        return PodPlacement("None", classes, is_contradictory=True)
    return PodPlacement(rules.pop(), classes)


def _class_names(claim: ResourceClaim) -> Iterator[str]:
    for request in claim.spec.devices.requests:
        if request.exactly is not None:
            yield request.exactly.device_class_name
        for alternative in request.first_available:
            yield alternative.device_class_name
