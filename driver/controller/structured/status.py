"""What is said of a class in its status and in events. Pure.

| condition | True | False |
|---|---|---|
| Accepted | the spec makes sense | a field is wrong, or asks for hardware that cannot exist |
| Ready | the DeviceClass is in place, as the spec says | not accepted, name taken, refused or cut by the server |
| Matching | devices are published for it | none are: says which field is to blame |
| TolerationsInClaims | claims must carry the class's tolerations themselves | (absent) |
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

import yaml

from api.kerf.v1alpha1 import MatchingDevices, ResourceClass, ResourceClassObject, ResourceClassStatus
from api.model.metadata import Condition
from api.wire import to_builtins
from driver.controller.device_types import UnsatisfiableError
from driver.controller.structured.plan import InPlace, Obstacle, Plan

ACCEPTED: Final = "Accepted"
READY: Final = "Ready"
MATCHING: Final = "Matching"
TOLERATIONS: Final = "TolerationsInClaims"

_OURS: Final = frozenset({ACCEPTED, READY, MATCHING, TOLERATIONS})
_LONGEST: Final = 32768
"""Characters of a condition's message (``metav1.Condition``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """What counting found: ``devices`` None when it could not be counted; ``reason`` then, or when there are none."""

    devices: MatchingDevices | None
    reason: str = ""
    is_awaited: bool = False
    """There are none because the nodes have not heard of the class yet, or cannot do what it asks of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """An event about a class."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


def status_of(
    held: ResourceClassObject, plan: Plan, standing: InPlace | Obstacle, matched: Matched, *, now: datetime
) -> ResourceClassStatus:
    """The status that ``held`` should have; a condition that did not change keeps its time."""
    name = held.metadata.name
    conditions = [_accepted(plan), _ready(name, standing), _matching(matched)]
    if plan.resource_class is not None and plan.resource_class.spec.tolerations:
        conditions.append(_tolerations(plan.resource_class))
    is_there = plan.compiled is not None and isinstance(standing, InPlace)
    return ResourceClassStatus(
        observed_generation=held.metadata.generation,
        conditions=tuple(_since(condition, held, now) for condition in conditions),
        size=plan.compiled.size if plan.compiled else None,
        device_class_name=name if is_there else None,
        matching_devices=matched.devices,
    )


def differ(old: ResourceClassStatus, new: ResourceClassStatus) -> bool:
    """Whether ``new`` must be written: conditions of others, and their order, are no difference."""

    def said(status: ResourceClassStatus) -> object:
        conditions = {condition.type: condition for condition in status.conditions if condition.type in _OURS}
        return conditions, status.observed_generation, status.size, status.device_class_name, status.matching_devices

    return said(old) != said(new)


def announcements(old: ResourceClassStatus, new: ResourceClassStatus) -> Iterator[Announcement]:
    """What changed, for events. That all is well is told once, by Ready; Matching speaks when devices come and go."""
    before = {condition.type: condition for condition in old.conditions}
    for condition in new.conditions:
        previous = before.get(condition.type)
        if previous is not None and (previous.status, previous.reason) == (condition.status, condition.reason):
            continue
        if condition.status == "False" and condition.reason != "NotAccepted":  # which Accepted tells better
            yield Announcement(type="Warning", reason=condition.reason, message=condition.message)
        elif condition.status == "True" and (condition.type == READY or (condition.type == MATCHING and previous)):
            yield Announcement(type="Normal", reason=condition.reason, message=condition.message)


def _accepted(plan: Plan) -> Condition:
    if plan.refusal is None:
        return Condition(type=ACCEPTED, status="True", reason="Valid", message="the spec makes sense")
    reason = plan.refusal.reason if isinstance(plan.refusal, UnsatisfiableError) else "InvalidSpec"
    return Condition(type=ACCEPTED, status="False", reason=reason, message="; ".join(map(str, plan.refusal.problems)))


def _ready(name: str, standing: InPlace | Obstacle) -> Condition:
    if isinstance(standing, Obstacle):
        return Condition(type=READY, status="False", reason=standing.reason, message=standing.message)
    if standing.dropped:
        message = (
            f"the API server does not keep {', '.join(standing.dropped)} of the DeviceClass: switch its feature on "
            "(DRAExtendedResource for extendedResourceName), or leave the field out; claims can use the class"
        )
        return Condition(type=READY, status="False", reason="FieldsDropped", message=message)
    return Condition(type=READY, status="True", reason="Compiled", message=f'claims can name the DeviceClass "{name}"')


def _matching(matched: Matched) -> Condition:
    found = matched.devices
    if found is None:
        return Condition(type=MATCHING, status="Unknown", reason="NotCounted", message=matched.reason)
    if found.total == 0 and matched.is_awaited:
        message = f"{matched.reason} (yet): nodes offer it within seconds; shares from Kubernetes 1.36 on"
        return Condition(type=MATCHING, status="Unknown", reason="NotOfferedYet", message=message)
    if found.total == 0:
        return Condition(type=MATCHING, status="False", reason="NothingMatches", message=matched.reason)
    return Condition(type=MATCHING, status="True", reason="DevicesMatch", message="published devices match")


def _tolerations(resource_class: ResourceClass) -> Condition:
    request = {
        "deviceClassName": resource_class.metadata.name,
        "tolerations": to_builtins(resource_class.spec.tolerations),
    }
    message = (
        "a DeviceClass of resource.k8s.io/v1 has no tolerations, claims must carry them: write in their requests:\n"
        + yaml.safe_dump({"exactly": request}, sort_keys=False)
    )
    return Condition(type=TOLERATIONS, status="True", reason="DeviceClassHasNone", message=message)


def _since(condition: Condition, held: ResourceClassObject, now: datetime) -> Condition:
    """``condition`` as of this generation, with the time at which its status was first so."""
    previous = next((one for one in held.status.conditions if one.type == condition.type), None)
    unchanged = previous is not None and previous.status == condition.status and previous.last_transition_time
    return Condition(
        type=condition.type,
        status=condition.status,
        reason=condition.reason,
        message=condition.message[:_LONGEST],
        last_transition_time=unchanged or _rfc3339(now),
        observed_generation=held.metadata.generation,
    )


def _rfc3339(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
