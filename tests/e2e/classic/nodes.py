"""Nodes without a kubelet, with the inventory of a plugin: pods that the scheduler binds to them never run."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio

from tests.e2e.classic.dialects import KERF
from tools.realcluster.api import Api

_DRIVERS = ("gpu.kerf.dev", "fpga.kerf.dev")
_AT_ONCE = 20
"""The number of inventories written concurrently, which an API server on a small machine does not throttle."""


@asynccontextmanager
async def with_cards(api: Api, names: Sequence[str], like: str, *, gpus: int | None = None) -> AsyncIterator[None]:
    """Give the nodes ``names`` the inventories of the real node ``like`` for as long as the context lasts.

    With ``gpus`` each has so many GPUs like the first one there.
    """
    every = [(driver, (await api.get(KERF, "NodeInventory", f"{like}-{driver}"))["spec"]) for driver in _DRIVERS]
    if gpus is not None:
        for driver, spec in every:
            if driver == "gpu.kerf.dev":
                first = spec["cards"][0]
                spec["cards"] = [{**first, "index": index, "uuid": f"{first['uuid']}-{index}"} for index in range(gpus)]

    async def apply_inventory(name: str) -> None:
        for driver, spec in every:
            document = {"apiVersion": KERF, "kind": "NodeInventory", "metadata": {"name": f"{name}-{driver}"}}
            await api.apply({**document, "spec": {**spec, "node": name, "ready": True}})

    for start in range(0, len(names), _AT_ONCE):
        async with anyio.create_task_group() as tasks:
            for name in names[start : start + _AT_ONCE]:
                tasks.start_soon(apply_inventory, name)
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            for name in names:
                for driver in _DRIVERS:
                    await api.delete(KERF, "NodeInventory", f"{name}-{driver}")
