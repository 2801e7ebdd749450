"""Faults of the classes that claims name: a class that is not there, not compiled, or matches no device.

Kerf's controller compiles a ResourceClass to a DeviceClass of the same name, and says in the conditions of the
ResourceClass why it does not.
"""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Final

from api.kerf.v1alpha1 import ResourceClassObject
from api.model.claims import ResourceClaim
from driver.diagnostics.cluster_index import ClusterIndex
from driver.diagnostics.explain.report import Cause, CauseCode

_CONDITIONS: Final = ("Accepted", "Ready")
"""The conditions that say why there is no DeviceClass, the cause before its consequence."""
_MATCHING: Final = "Matching"
"""The condition that says why no published device matches."""


def find_missing_classes(cluster: ClusterIndex, claims: Sequence[ResourceClaim]) -> Iterator[Cause]:
    """Yield a cause for each class that ``claims`` name and that does not exist."""
    for claim, path, name in _named_classes(claims):
        if name in cluster.classes:
            continue
        where = f"claim {claim.ref}, {path}.deviceClassName: "
        objects = f"claim {claim.ref}", f"deviceclass {name}"
        source = _resource_class(cluster, name)
        if source is not None:
            why, step = _why_not_compiled(source)
            yield Cause(
                code=CauseCode.CLASS_NOT_COMPILED,
                message=f"{where}ResourceClass {name} has no DeviceClass: {why}",
                next_step=step,
                objects=(*objects, f"resourceclass {name}"),
            )
        else:
            near = get_close_matches(name, cluster.classes, n=3)
            yield Cause(
                code=CauseCode.CLASS_MISSING,
                message=f"{where}device class {name} does not exist"
                + (f"; there is {', '.join(near)}" if near else ""),
                next_step="create the class, or correct the name in the claim or its template; kubectl get "
                "deviceclasses lists what there is",
                objects=objects,
            )


def find_classes_without_devices(cluster: ClusterIndex, claims: Sequence[ResourceClaim]) -> Iterator[Cause]:
    """Yield a cause for each class of ``claims`` of which Kerf's controller says that no device matches."""
    for name in dict.fromkeys(name for _, _, name in _named_classes(claims)):
        source = _resource_class(cluster, name)
        condition = (
            next((each for each in source.status.conditions if each.type == _MATCHING), None) if source else None
        )
        if condition is not None and condition.status != "True" and condition.message:
            yield Cause(
                code=CauseCode.CLASS_MATCHES_NOTHING,
                message=f"ResourceClass {name}: {condition.message}",
                next_step="change the class, or add a node with such devices",
                objects=(f"resourceclass {name}",),
            )


def _why_not_compiled(source: ResourceClassObject) -> tuple[str, str]:
    name, status = source.metadata.name, source.status
    if (status.observed_generation or 0) < source.metadata.generation or not status.conditions:
        return (
            f"the controller has not looked at generation {source.metadata.generation} of it",
            "see whether Kerf's controller runs: kubectl get pods -A shows it",
        )
    by_type = {condition.type: condition for condition in status.conditions}
    for type_ in _CONDITIONS:
        condition = by_type.get(type_)
        if condition is not None and condition.status == "False":
            step = f"correct the field: kubectl edit resourceclass {name}" if type_ == "Accepted" else ""
            return (
                f"condition {type_} is False, {condition.reason}: {condition.message}",
                step or f"see the condition and act on it: kubectl describe resourceclass {name}",
            )
    return "somebody has deleted it", "wait some seconds: Kerf's controller creates it again; if it stays, see its log"


def _resource_class(cluster: ClusterIndex, name: str) -> ResourceClassObject | None:
    return next((each for each in cluster.state.resource_classes if each.metadata.name == name), None)


def _named_classes(claims: Sequence[ResourceClaim]) -> Iterator[tuple[ResourceClaim, str, str]]:
    """Yield claim, path of the request and name of the class, for each request and alternative of ``claims``."""
    for claim in claims:
        for index, request in enumerate(claim.spec.devices.requests):
            path = f"spec.devices.requests[{index}]"
            if request.exactly is not None:
                yield claim, f"{path}.exactly", request.exactly.device_class_name
            for number, alternative in enumerate(request.first_available):
                yield claim, f"{path}.firstAvailable[{number}]", alternative.device_class_name
