"""Extended resources by the device plugin interface are not offered where drivers allocate, and the class says why."""

from tests.e2e.classic.dialects import KERF
from tests.e2e.classic.namespace import ClassicNamespace
from tests.e2e.wait import eventually
from tools.realcluster.api import Document


async def test_a_class_that_offers_a_resource_is_told_that_no_node_does(namespace: ClassicNamespace) -> None:
    resource = f"kerf.dev/{namespace.name}"
    spec = {"device": "gpu", "profile": "1g.10gb", "devicePlugin": {"resource": resource, "perNode": 1}}
    await namespace.api.apply(
        {"apiVersion": KERF, "kind": "ResourceClass", "metadata": {"name": namespace.name}, "spec": spec}
    )

    async def find_conditions() -> dict[str, Document] | None:
        held = await namespace.api.get(KERF, "ResourceClass", namespace.name)
        return {one["type"]: one for one in held.get("status", {}).get("conditions", ())} or None

    found = await eventually("the class has conditions", find_conditions)
    assert {type_: (one["status"], one["reason"]) for type_, one in found.items()} == {
        "Accepted": ("False", "ClassicDRA"),
        "DevicePlugin": ("False", "ClassicDRA"),
    }
    node = await namespace.api.get("v1", "Node", namespace.node.name)
    assert resource not in node["status"]["allocatable"]
    await namespace.api.delete(KERF, "ResourceClass", namespace.name)
