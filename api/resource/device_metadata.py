"""``metadata.resource.k8s.io``: files that describe a container's devices to it (KEP-5304).

A file is a stream of JSON objects with the same content in several versions, newest first; a reader takes the first
version that it knows. v1beta1 and v1alpha1 have the same fields (``k8s.io/dynamic-resource-allocation/api/metadata``).
"""

from typing import Final

import msgspec

from kerf_dra.api.model.base import Value
from kerf_dra.api.model.devices import Attribute
from kerf_dra.api.model.metadata import Object
from kerf_dra.api.wire import to_builtins

GROUP: Final = "metadata.resource.k8s.io"
VERSIONS: Final = ("v1beta1", "v1alpha1")
"""The versions that are written, newest first: those of Kubernetes 1.37 and 1.36."""

_ROOT: Final = "/var/run/kubernetes.io/dra-device-attributes"


class DescribedDevice(Value):
    """A device of the claim, with the attributes of its ResourceSlice."""

    driver: str
    pool: str
    name: str
    attributes: dict[str, Attribute] = {}


class DescribedRequest(Value):
    """A request of the claim and its devices; the name includes the sub-request that was allocated."""

    name: str
    devices: tuple[DescribedDevice, ...] = ()


class DeviceMetadata(Object):
    """The content of a file. ``pod_claim_name`` is the entry of ``pod.spec.resourceClaims`` of a template's claim."""

    pod_claim_name: str | None = None
    requests: tuple[DescribedRequest, ...] = ()


def encode(metadata: DeviceMetadata) -> bytes:
    """Encode the content of a file."""
    fields = to_builtins(metadata)
    documents = ({"kind": "DeviceMetadata", "apiVersion": f"{GROUP}/{version}", **fields} for version in VERSIONS)
    return b"".join(msgspec.json.format(msgspec.json.encode(document)) + b"\n" for document in documents)


def container_path(driver: str, claim: str, pod_claim_name: str, request: str) -> str:
    """Return the path of a request's file in a container; ``pod_claim_name`` is empty without a template."""
    place = f"resourceclaimtemplates/{pod_claim_name}" if pod_claim_name else f"resourceclaims/{claim}"
    return f"{_ROOT}/{place}/{request}/{driver}-metadata.json"
