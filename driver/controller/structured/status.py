"""Builds the status of a class, and the events of its changes. Pure.

| condition | True | False |
|---|---|---|
| Accepted | the spec is valid | its family is not installed, a field is invalid, or requires impossible hardware |
| Ready | the DeviceClass is as the spec says | not accepted, name taken, not kept by the server, no device can do it |
| Matching | published devices match | no device matches: the message names the faulty field |
| DevicePlugin | nodes may offer the class's extended resource | another class has its name (absent: it has none) |
| Placement | the placement that the class asks for is in effect | it is not (Unknown: no scheduler asks lately) |
| TolerationsInClaims | claims must carry the class's tolerations, or those for monitor devices, themselves | (absent) |
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

import yaml

from kerf_dra.api.kerf.v1alpha1 import (
    DEVICE_PLUGIN,
    PLACEMENT,
    MatchingDevices,
    ResourceClass,
    ResourceClassObject,
    ResourceClassStatus,
)
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.device_attributes import monitor_taint_key
from kerf_dra.api.model.metadata import Condition
from kerf_dra.api.wire import to_builtins
from kerf_dra.driver.controller.conditions import continue_conditions
from kerf_dra.driver.controller.device_types import UnsatisfiableError
from kerf_dra.driver.controller.structured.class_compiler import CompiledClass
from kerf_dra.driver.controller.structured.plan import NOT_ACCEPTED, ClassPlan, NotInPlace, UpToDate
from kerf_dra.driver.families.class_validation import FamilyNotInstalledError

ACCEPTED: Final = "Accepted"
READY: Final = "Ready"
MATCHING: Final = "Matching"
TOLERATIONS: Final = "TolerationsInClaims"

_OURS: Final = frozenset({ACCEPTED, READY, MATCHING, TOLERATIONS, DEVICE_PLUGIN, PLACEMENT})
_SAID_BY_ACCEPTED: Final = frozenset({NOT_ACCEPTED, FamilyNotInstalledError.reason})
"""The reasons of Ready for which the event of Accepted is the only one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchCount:
    """The published devices that a class selects."""

    devices: MatchingDevices | None
    """The numbers of devices; None: they could not be counted."""
    reason: str = ""
    """The reason why the devices could not be counted, or why no device matches."""
    unsupported: str = ""
    """The reason why no published device can do what the class says; empty: one can, or none is published."""
    is_awaited: bool = False
    """Whether no device matches because nodes have not seen the class yet, or do not support its requirements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassEvent:
    """An event about a class."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


def build_status(
    held: ResourceClassObject, plan: ClassPlan, result: UpToDate | NotInPlace, matched: MatchCount, *, now: datetime
) -> ResourceClassStatus:
    """Build the status that ``held`` should have; a condition with an unchanged status keeps its transition time."""
    name = held.metadata.name
    conditions = [_accepted(plan), _ready(name, result, matched.unsupported), _matching(matched)]
    if plan.resource_class is not None and (request := _tolerant_request(plan.resource_class, plan.compiled)):
        conditions.append(_tolerations(request))
    for type_, verdict in ((DEVICE_PLUGIN, plan.device_plugin), (PLACEMENT, plan.placement)):
        if verdict is not None:
            conditions.append(
                Condition(type=type_, status=verdict.status, reason=verdict.reason, message=verdict.message)
            )
    is_there = plan.compiled is not None and isinstance(result, UpToDate)
    return ResourceClassStatus(
        observed_generation=held.metadata.generation,
        conditions=continue_conditions(
            conditions, held.status.conditions, generation=held.metadata.generation, now=now
        ),
        size=plan.compiled.size if plan.compiled else None,
        device_class_name=name if is_there else None,
        matching_devices=matched.devices,
    )


def is_ready(status: ResourceClassStatus) -> bool:
    """Whether the condition Ready is True."""
    return any(condition.type == READY and condition.status == "True" for condition in status.conditions)


def needs_update(old: ResourceClassStatus, new: ResourceClassStatus) -> bool:
    """Whether ``new`` has to be written: conditions of others, and the order of conditions, do not count."""

    def content(status: ResourceClassStatus) -> object:
        conditions = {condition.type: condition for condition in status.conditions if condition.type in _OURS}
        return conditions, status.observed_generation, status.size, status.device_class_name, status.matching_devices

    return content(old) != content(new)


def events_of_change(old: ResourceClassStatus, new: ResourceClassStatus) -> Iterator[ClassEvent]:
    """Yield the events of a change: failures, the class becoming Ready, and devices that match after none did."""
    before = {condition.type: condition for condition in old.conditions}
    for condition in new.conditions:
        previous = before.get(condition.type)
        if previous is not None and (previous.status, previous.reason) == (condition.status, condition.reason):
            continue
        if condition.status == "False" and not (condition.type == READY and condition.reason in _SAID_BY_ACCEPTED):
            yield ClassEvent(type="Warning", reason=condition.reason, message=condition.message)
        elif condition.status == "True" and (condition.type == READY or (condition.type == MATCHING and previous)):
            yield ClassEvent(type="Normal", reason=condition.reason, message=condition.message)


def _accepted(plan: ClassPlan) -> Condition:
    if plan.refusal is None:
        return Condition(type=ACCEPTED, status="True", reason="Valid", message="the spec is valid")
    named = UnsatisfiableError | FamilyNotInstalledError
    reason = plan.refusal.reason if isinstance(plan.refusal, named) else "InvalidSpec"
    return Condition(type=ACCEPTED, status="False", reason=reason, message=plan.refusal.listed)


def _ready(name: str, result: UpToDate | NotInPlace, unsupported: str) -> Condition:
    if isinstance(result, NotInPlace):
        return Condition(type=READY, status="False", reason=result.reason, message=result.message)
    if result.dropped:
        message = (
            f"the API server does not keep {', '.join(result.dropped)} of the DeviceClass: enable its feature "
            "(DRAExtendedResource for extendedResourceName), or omit the field; claims can use the class"
        )
        return Condition(type=READY, status="False", reason="FieldsDropped", message=message)
    if unsupported:
        return Condition(type=READY, status="False", reason="NotSupported", message=unsupported)
    return Condition(type=READY, status="True", reason="Compiled", message=f'claims can name the DeviceClass "{name}"')


def _matching(matched: MatchCount) -> Condition:
    found = matched.devices
    if found is None:
        return Condition(type=MATCHING, status="Unknown", reason="NotCounted", message=matched.reason)
    if found.total == 0 and matched.is_awaited:
        message = f"{matched.reason} (yet): nodes publish it within seconds; shares from Kubernetes 1.36.2 on"
        return Condition(type=MATCHING, status="Unknown", reason="NotOfferedYet", message=message)
    if found.total == 0:
        return Condition(type=MATCHING, status="False", reason="NothingMatches", message=matched.reason)
    return Condition(type=MATCHING, status="True", reason="DevicesMatch", message="published devices match")


def _tolerant_request(resource_class: ResourceClass, compiled: CompiledClass | None) -> JsonObject:
    """Return the request of a claim for devices that need tolerations; empty: they need none."""
    spec = resource_class.spec
    request: JsonObject = {"deviceClassName": resource_class.metadata.name}
    tolerations = to_builtins(spec.tolerations)
    if spec.cut == "Monitor" and compiled is not None:
        request["adminAccess"] = True
        tolerations.append({"key": monitor_taint_key(compiled.driver), "operator": "Exists"})
    return {**request, "tolerations": tolerations} if tolerations else {}


def _tolerations(request: JsonObject) -> Condition:
    message = (
        "a DeviceClass of resource.k8s.io/v1 has no tolerations, claims must carry them: write in their requests:\n"
        + yaml.safe_dump({"exactly": request}, sort_keys=False)
    )
    return Condition(type=TOLERATIONS, status="True", reason="DeviceClassHasNone", message=message)
