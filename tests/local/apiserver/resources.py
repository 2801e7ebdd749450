"""Documents of ``resource.k8s.io`` kinds, as small as they may be."""

from typing import Any

GROUP = "/apis/resource.k8s.io"
CLAIMS = f"{GROUP}/v1/namespaces/default/resourceclaims"
TEMPLATES = f"{GROUP}/v1/namespaces/default/resourceclaimtemplates"
CLASSES = f"{GROUP}/v1/deviceclasses"
SLICES = f"{GROUP}/v1/resourceslices"
RULES = f"{GROUP}/v1/devicetaintrules"
TAINTED: dict[str, Any] = {"taints": [{"key": "a", "effect": "NoSchedule"}]}


def claim(*requests: dict[str, Any], name: str = "c", **devices: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": list(requests), **devices}}}


def request(name: str = "r", **exactly: Any) -> dict[str, Any]:
    return {"name": name, "exactly": {"deviceClassName": "gpu", **exactly}}


def slice_of(*devices: dict[str, Any], name: str = "s", **spec: Any) -> dict[str, Any]:
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    content: dict[str, Any] = {"devices": list(devices)} if devices else {}
    whole = {"driver": "d.example.com", "nodeName": "n1", "pool": pool, **content, **spec}
    return {"metadata": {"name": name}, "spec": {key: value for key, value in whole.items() if value is not ...}}


def device(name: str = "d", **more: Any) -> dict[str, Any]:
    return {"name": name, **more}
