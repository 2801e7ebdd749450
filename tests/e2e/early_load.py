"""What is seen of devices that are prepared before their pod is bound."""

from collections.abc import Mapping

from tests.e2e.namespace import Namespace
from tests.e2e.wait import eventually
from tools.realcluster.api import Api, Document


async def cordon(api: Api, node: str, *, is_on: bool) -> None:
    """Cordon or uncordon a node."""
    await api.patch("v1", "Node", node, {"spec": {"unschedulable": is_on}})


async def wait_conditions(namespace: Namespace, **wanted: str) -> None:
    """Wait until the claims' devices have these conditions, and others: what a prepare writes may follow it."""

    async def are_there() -> bool:
        found = {type_.rpartition("/")[2]: status for type_, status in (await _conditions(namespace)).items()}
        return found.items() >= wanted.items()

    await eventually(f"the conditions {wanted}", are_there, but=lambda: _conditions(namespace))


async def wait_bound(namespace: Namespace, name: str) -> Document:
    """Return the pod once it is bound."""

    async def is_bound() -> Document | None:
        pod = await namespace.pod(name)
        return pod if pod["spec"].get("nodeName") else None

    return await eventually(f"pod {name} is bound", is_bound, within_s=120, but=lambda: namespace.describe_pod(name))


async def _conditions(namespace: Namespace) -> Mapping[str, str]:
    devices = [device for claim in await namespace.claims() for device in claim.get("status", {}).get("devices", ())]
    return {one["type"]: one["status"] for device in devices for one in device["conditions"]}
