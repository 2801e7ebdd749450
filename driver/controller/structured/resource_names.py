"""The names of extended resources in the cluster: which class may have which. Pure.

One name must not be counted by the scheduler, as an extended resource of a DeviceClass (KEP-5004), and by the kubelet,
as the resource of a device plugin. Of several ResourceClasses with one name the oldest has it, on all nodes.

The controller says in the condition ``DevicePlugin`` whether nodes may offer a class's resource, and nodes offer none
without it, so a controller that does not run lets nothing be counted twice.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from kerf_dra.api.kerf.v1alpha1 import ResourceClass, ResourceClassObject
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.claims import DeviceClass

Owners = tuple[tuple[str, str], ...]
"""The ResourceClasses with one name, as creation time and name, the first first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceNames:
    """The names of extended resources that classes have."""

    of_device_classes: Mapping[str, str] = field(default_factory=dict)
    """The DeviceClass of each extended resource, by the resource."""
    of_device_plugins: Mapping[str, Owners] = field(default_factory=dict)
    """The ResourceClasses of each device plugin's resource, by the resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePluginVerdict:
    """Whether nodes may offer the resource of a class: reason and message are those of the condition."""

    status: Literal["True", "False"]
    reason: str
    message: str


NAME_FREE: Final = "NameFree"
NAME_TAKEN: Final = "NameTaken"


def resource_of(spec: JsonObject) -> str:
    """Return the device plugin's resource of an undecoded class; empty: it has none."""
    offer = spec.get("devicePlugin")
    resource = offer.get("resource") if isinstance(offer, dict) else None
    return resource if isinstance(resource, str) else ""


def collect_resource_names(
    resource_classes: Iterable[ResourceClassObject], device_classes: Iterable[DeviceClass]
) -> ResourceNames:
    """Collect the names that classes have now."""
    plugins: dict[str, list[tuple[str, str]]] = {}
    for held in resource_classes:
        if resource := resource_of(held.spec):
            plugins.setdefault(resource, []).append((held.metadata.creation_timestamp or "", held.metadata.name))
    return ResourceNames(
        of_device_classes={
            name: each.metadata.name for each in device_classes if (name := each.spec.extended_resource_name)
        },
        of_device_plugins={resource: tuple(sorted(owners)) for resource, owners in plugins.items()},
    )


def judge_device_plugin(resource_class: ResourceClass, names: ResourceNames) -> DevicePluginVerdict | None:
    """Return whether nodes may offer the class's resource; None: it has none."""
    offer = resource_class.spec.device_plugin
    if offer is None:
        return None
    if (other := names.of_device_classes.get(offer.resource)) is not None:
        message = (
            f'{offer.resource} is the extended resource of the DeviceClass "{other}", which the scheduler counts: no '
            "node offers it by a device plugin; choose another name, or pods may use that one without a device plugin"
        )
        return DevicePluginVerdict(status="False", reason=NAME_TAKEN, message=message)
    owners = names.of_device_plugins.get(offer.resource, ())
    if owners and (owner := owners[0][1]) != resource_class.metadata.name:
        message = (
            f'{offer.resource} is the resource of the older ResourceClass "{owner}": no node offers it for this class; '
            "choose another name"
        )
        return DevicePluginVerdict(status="False", reason=NAME_TAKEN, message=message)
    message = f"each node of the class keeps {offer.per_node} placements for {offer.resource}, as far as it has them"
    return DevicePluginVerdict(status="True", reason=NAME_FREE, message=message)
