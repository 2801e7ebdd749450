"""API version and kind of what fakes of an API server answer: a client takes no answer without them."""

from typing import Any

PREFIX = {"apis": 2, "api": 1}
"""How many parts of a path name group and version."""
KINDS = {
    "cardmaintenances": "CardMaintenance",
    "customresourcedefinitions": "CustomResourceDefinition",
    "deviceclasses": "DeviceClass",
    "devicetaintrules": "DeviceTaintRule",
    "discovereddevices": "DiscoveredDevice",
    "discoveryconfigurations": "DiscoveryConfiguration",
    "events": "Event",
    "fpgaclaimparameters": "FpgaClaimParameters",
    "fpgaclassparameters": "FpgaClassParameters",
    "fpgaimages": "FpgaImage",
    "fpgashells": "FpgaShell",
    "gpuclaimparameters": "GpuClaimParameters",
    "gpuclassparameters": "GpuClassParameters",
    "leases": "Lease",
    "mutatingadmissionpolicybindings": "MutatingAdmissionPolicyBinding",
    "namespaces": "Namespace",
    "nodeinventories": "NodeInventory",
    "nodes": "Node",
    "pods": "Pod",
    "podschedulingcontexts": "PodSchedulingContext",
    "resourceclaims": "ResourceClaim",
    "resourceclaimtemplates": "ResourceClaimTemplate",
    "resourceclasses": "ResourceClass",
    "resourceslices": "ResourceSlice",
}
"""The kind of each collection's objects."""


def identified(path: str, document: dict[str, Any]) -> dict[str, Any]:
    """Return ``document``, a list if it has items, with the identity of what ``path`` names, as far as it has none."""
    root, *parts = path.strip("/").split("/")
    api_version, rest = "/".join(parts[: PREFIX[root]]), parts[PREFIX[root] :]
    collection = rest[2] if rest[0] == "namespaces" and len(rest) > 2 else rest[0]
    kind = KINDS[collection] + ("List" if "items" in document else "")
    return {"apiVersion": api_version, "kind": kind, **document}
