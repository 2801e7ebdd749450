"""Events that a tenant writes into its own namespace say nothing about nodes in the answers of others."""

from pathlib import Path
from typing import Final

from kerf_dra.api.core.v1 import EVENTS, NAMESPACES, Event, Namespace, ObjectReference
from kerf_dra.api.model.metadata import ObjectMeta
from tests.diagnostics.test_collector import cluster, collect

_REASON: Final = "CardInQuarantine"


def event(namespace: str, about: str) -> Event:
    """Return an event in ``namespace`` whose object is a Node that claims to be in the namespace ``about``."""
    node = ObjectReference(api_version="v1", kind="Node", name="node-1", uid="node-1", namespace=about)
    metadata = ObjectMeta(name=f"event-{namespace}", namespace=namespace)
    message = f"card gpu-0 (GPU-0) gets no claims: {namespace} says so"
    return Event(metadata=metadata, involved_object=node, reason=_REASON, message=message, type="Warning", count=1)


async def test_what_a_tenant_writes_about_a_node_is_in_no_answer(tmp_path: Path) -> None:
    """Whoever may create events in one namespace could have had cards named as ill to everyone."""
    async with cluster(tmp_path) as (_, client):
        await client.create(NAMESPACES, Namespace(metadata=ObjectMeta(name="tenant")))
        await client.create(EVENTS, event("default", ""))
        await client.create(EVENTS, event("tenant", "tenant"))
        state = await collect(client)
    assert [each.message for each in state.events] == ["card gpu-0 (GPU-0) gets no claims: default says so"]
