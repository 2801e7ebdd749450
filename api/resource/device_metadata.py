"""``metadata.resource.k8s.io``: files in which a container reads what devices it got (KEP-5304).

A file is a stream of JSON objects that say the same in several versions, the newest first; a reader takes the first
version that it knows. v1beta1 and v1alpha1 have the same fields (``k8s.io/dynamic-resource-allocation/api/metadata``).
"""

from typing import Final

import msgspec

from api.model.base import Value
from api.model.devices import Attribute
from api.model.metadata import Object
from api.wire import to_builtins

GROUP: Final = "metadata.resource.k8s.io"
VERSIONS: Final = ("v1beta1", "v1alpha1")
"""What is written, newest first: Kubernetes 1.37 and 1.36."""

_ROOT: Final = "/var/run/kubernetes.io/dra-device-attributes"


class DescribedDevice(Value):
    """One device that the claim got; attributes as in its ResourceSlice."""

    driver: str
    pool: str
    name: str
    attributes: dict[str, Attribute] = {}


class DescribedRequest(Value):
    """One request of the claim, by the name of its result: with the sub-request that was chosen."""

    name: str
    devices: tuple[DescribedDevice, ...] = ()


class DeviceMetadata(Object):
    """What one file tells. ``pod_claim_name``: the entry of ``pod.spec.resourceClaims``, for claims of templates."""

    pod_claim_name: str | None = None
    requests: tuple[DescribedRequest, ...] = ()


def encode(metadata: DeviceMetadata) -> bytes:
    """The file's content."""
    fields = to_builtins(metadata)
    documents = ({"kind": "DeviceMetadata", "apiVersion": f"{GROUP}/{version}", **fields} for version in VERSIONS)
    return b"".join(msgspec.json.format(msgspec.json.encode(document)) + b"\n" for document in documents)


def container_path(driver: str, claim: str, pod_claim_name: str, request: str) -> str:
    """Where a container finds the file about a request of a claim that was made from a template, or for itself."""
    place = f"resourceclaimtemplates/{pod_claim_name}" if pod_claim_name else f"resourceclaims/{claim}"
    return f"{_ROOT}/{place}/{request}/{driver}-metadata.json"
