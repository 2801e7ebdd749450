"""Pods that ask for devices by an extended resource in their limits (KEP-5004): the claim that the scheduler makes.

A class is asked for by its ``extendedResourceName``, or by ``deviceclass.resource.kubernetes.io/NAME``. Resources that
no class stands for come from device plugins, and are none of our business. A node whose device plugin offers the same
resource would serve the pod without a claim; that is not looked at.
"""

from collections.abc import Iterable
from typing import Final

from api.core.v1 import Pod
from api.model.claims import (
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from api.model.metadata import ObjectMeta

IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"
"""Before a class's name: the resource that stands for it without further ado."""


def extended_claim(pod: Pod, classes: Iterable[DeviceClass]) -> ResourceClaim | None:
    """The claim for the extended resources of ``pod``; None: it asks for none that one of ``classes`` stands for."""
    by_resource = _by_resource(classes)
    requests = tuple(
        DeviceRequest(
            name=f"container-{number}-request-{position}",
            exactly=ExactDeviceRequest(device_class_name=by_resource[resource], count=int(amount)),
        )
        for number, container in enumerate((*pod.spec.init_containers, *pod.spec.containers))
        for position, (resource, amount) in enumerate(
            (resource, amount)
            for resource, amount in sorted(container.resources.limits.items())
            if resource in by_resource and amount
        )
    )
    if not requests:
        return None
    name = f"{pod.metadata.name}-extended-resources"
    return ResourceClaim(
        metadata=ObjectMeta(name=name, namespace=pod.metadata.namespace),
        spec=ResourceClaimSpec(devices=DeviceClaim(requests=requests)),
    )


def _by_resource(classes: Iterable[DeviceClass]) -> dict[str, str]:
    """The class of each resource: of several the newest, then the first by name."""
    by_name = sorted(classes, key=lambda class_: class_.metadata.name, reverse=True)
    oldest_first = sorted(by_name, key=lambda class_: class_.metadata.creation_timestamp or "")
    found = {IMPLICIT + class_.metadata.name: class_.metadata.name for class_ in oldest_first}
    named = {each.spec.extended_resource_name: each.metadata.name for each in oldest_first}
    return found | {resource: name for resource, name in named.items() if resource}
