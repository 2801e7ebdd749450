"""Objects of the contract, as documents."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tools.realcluster.api import Document

RESOURCE: Final = "resource.k8s.io/v1"
DRIVER: Final = "contract.example.com"


def namespace(name: str) -> Document:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def config_map(name: str, space: str, data: Mapping[str, str] | None = None, **metadata: Any) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": space, **metadata},
        "data": dict(data or {}),
    }


def slice_of(name: str, node: str, devices: Sequence[Document], **spec: Any) -> Document:
    """A ResourceSlice that is a pool by itself; fields of ``spec`` that are None are left out."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    fields = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": list(devices), **spec}
    return {
        "apiVersion": RESOURCE,
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {key: value for key, value in fields.items() if value is not None},
    }


def claim(name: str, space: str, *requests: Document, **devices: Any) -> Document:
    return {
        "apiVersion": RESOURCE,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": space},
        "spec": {"devices": {"requests": list(requests), **devices}},
    }


def template(name: str, space: str, *requests: Document, **devices: Any) -> Document:
    return {
        "apiVersion": RESOURCE,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": space},
        "spec": {"spec": {"devices": {"requests": list(requests), **devices}}},
    }


def exactly(name: str, device_class: str, **more: Any) -> Document:
    return {"name": name, "exactly": {"deviceClassName": device_class, **more}}


def device_class(name: str, *expressions: str) -> Document:
    """A class that selects by CEL."""
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    return {
        "apiVersion": RESOURCE,
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": selectors} if selectors else {},
    }


def pod(name: str, space: str, **claims: Mapping[str, str]) -> Document:
    """A pod with ``claims``: name in the pod to its source."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": space},
        "spec": {
            "terminationGracePeriodSeconds": 0,  # no kubelet says that it has ended
            "resourceClaims": [{"name": claim, **source} for claim, source in claims.items()],
            "containers": [
                {"name": "c", "image": "none", "resources": {"claims": [{"name": claim} for claim in claims]}}
            ],
        },
    }
