"""Nodes without a kubelet whose plugin seems to be there: pods that the scheduler binds to them never run."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio

from tests.e2e.classic.dialects import KERF
from tests.realcluster.api import Api

_AT_ONCE = 20
"""Nodes made at a time: what an API server on a small machine takes without throttling."""


@asynccontextmanager
async def with_cards(api: Api, names: Sequence[str], like: str) -> AsyncIterator[None]:
    """Have nodes tell of as many cards as the real node ``like`` has, for as long as the context lasts."""
    spec = (await api.get(KERF, "NodeInventory", like))["spec"]

    async def tell(name: str) -> None:
        document = {"apiVersion": KERF, "kind": "NodeInventory", "metadata": {"name": name}}
        await api.apply({**document, "spec": {**spec, "ready": True}})

    for start in range(0, len(names), _AT_ONCE):
        async with anyio.create_task_group() as tasks:
            for name in names[start : start + _AT_ONCE]:
                tasks.start_soon(tell, name)
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            for name in names:
                await api.delete(KERF, "NodeInventory", name)
