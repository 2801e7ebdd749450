"""What containers are told of their devices, where class or claim asks for it (KEP-5304). Pure.

One document for each request, made from the claim's record alone, so that a restart makes the same one again.
"""

from collections.abc import Mapping

from api.model.metadata import ObjectMeta
from api.model.prepared import DeviceDescription, PreparedClaim, PreparedDevice
from api.resource.device_metadata import DescribedDevice, DescribedRequest, DeviceMetadata, container_path
from cdi import ContainerEdits, Mount


def documents(record: PreparedClaim) -> Mapping[str, DeviceMetadata]:
    """By request, without sub-request; none for requests whose configuration does not ask for it."""
    devices: dict[str, list[tuple[DeviceDescription, PreparedDevice]]] = {}
    for device in record.devices:
        if device.description is not None:
            for request in device.requests:
                devices.setdefault(request, []).append((device.description, device))
    return {request: _document(record, described) for request, described in devices.items()}


def mount(driver: str, record: PreparedClaim, request: str, host_path: str) -> ContainerEdits:
    """Puts the document of ``request``, which lies at ``host_path``, where containers look for it."""
    inside = container_path(driver, record.claim.name, record.pod_claim_name, request)
    return ContainerEdits(mounts=(Mount(host_path=host_path, container_path=inside, options=("ro", "bind")),))


def _document(record: PreparedClaim, described: list[tuple[DeviceDescription, PreparedDevice]]) -> DeviceMetadata:
    claim = record.claim
    return DeviceMetadata(
        metadata=ObjectMeta(name=claim.name, namespace=claim.namespace, uid=claim.uid, generation=1),
        pod_claim_name=record.pod_claim_name or None,
        requests=(
            DescribedRequest(
                name=described[0][0].request,
                devices=tuple(
                    DescribedDevice(
                        driver=device.share.id.driver,
                        pool=device.share.id.pool,
                        name=device.share.id.device,
                        attributes=description.attributes,
                    )
                    for description, device in described
                ),
            ),
        ),
    )
