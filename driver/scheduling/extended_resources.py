"""Extended resources backed by DRA (KEP-5004): a pod requests devices in ``limits``, without a claim of its own.

As in kube-scheduler's dynamicresources plugin, one claim covers all extended resources of a pod, with one request for
each container and resource; the pod's status records which container gets which request. Resources that no class backs
belong to device plugins and are ignored. Limitation: a device plugin that provides the same resource on a node would
serve the pod without a claim, which is not considered here.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from kerf_dra.api.core.v1 import ContainerExtendedResourceRequest, Pod
from kerf_dra.api.model.claims import (
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from kerf_dra.api.model.metadata import ObjectMeta, OwnerReference

EXTENDED_CLAIM: Final = "resource.kubernetes.io/extended-resource-claim"
"""The annotation that marks the claim for extended resources, with the value ``true``."""
IMPLICIT_DOMAIN: Final = "deviceclass.resource.kubernetes.io/"
"""The prefix with which the name of any DeviceClass is an extended resource."""


def classes_by_resource(classes: Iterable[DeviceClass]) -> Mapping[str, str]:
    """Return the class of each extended resource: the newest of several, then the first by name."""
    by_name = sorted(classes, key=lambda class_: class_.metadata.name, reverse=True)
    found: dict[str, str] = {}
    for class_ in sorted(by_name, key=lambda class_: class_.metadata.creation_timestamp or ""):
        found[IMPLICIT_DOMAIN + class_.metadata.name] = class_.metadata.name
        if class_.spec.extended_resource_name:
            found[class_.spec.extended_resource_name] = class_.metadata.name
    return found


def build_requests(
    pod: Pod, classes: Mapping[str, str]
) -> tuple[tuple[DeviceRequest, ...], tuple[ContainerExtendedResourceRequest, ...]]:
    """Return the requests for the pod's extended resources, and which container gets which.

    A request is named by the index of its container and the index of its resource among those of the container.
    """
    requests: list[DeviceRequest] = []
    mappings: list[ContainerExtendedResourceRequest] = []
    for number, container in enumerate((*pod.spec.init_containers, *pod.spec.containers)):
        wanted = {**container.resources.requests, **container.resources.limits}
        for index, resource in enumerate(sorted(wanted)):
            count = int(wanted[resource])
            if resource not in classes or not count:
                continue
            name = f"container-{number}-request-{index}"
            exactly = ExactDeviceRequest(device_class_name=classes[resource], count=count)
            requests.append(DeviceRequest(name=name, exactly=exactly))
            mappings.append(
                ContainerExtendedResourceRequest(
                    container_name=container.name, resource_name=resource, request_name=name
                )
            )
    return tuple(requests), tuple(mappings)


def build_claim(pod: Pod, requests: tuple[DeviceRequest, ...]) -> ResourceClaim:
    """Return the claim for ``requests``, owned by the pod and so deleted with it."""
    owner = OwnerReference(api_version="v1", kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid, controller=True)
    metadata = ObjectMeta(
        generate_name=f"{pod.metadata.name}-extended-resources-",
        namespace=pod.metadata.namespace,
        annotations={EXTENDED_CLAIM: "true"},
        owner_references=(owner,),
    )
    return ResourceClaim(metadata=metadata, spec=ResourceClaimSpec(devices=DeviceClaim(requests=requests)))


def expected_claim(pod: Pod, classes: Iterable[DeviceClass]) -> ResourceClaim | None:
    """Return the claim that the scheduler would create for ``pod``, with a name; None when it needs none."""
    requests, _ = build_requests(pod, classes_by_resource(classes))
    if not requests:
        return None
    claim = build_claim(pod, requests)
    name = claim.metadata.generate_name.removesuffix("-")
    return replace(claim, metadata=replace(claim.metadata, generate_name="", name=name))
