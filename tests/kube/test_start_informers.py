"""No decision is made before every list was read, and a list that cannot be read ends the process (NE-14, NE-15)."""

from collections.abc import Mapping

import anyio
import pytest

from kerf_dra.driver.kube.informer import AnyInformer, NotListedError, start_informers
from kerf_dra.driver.runtime.metrics import REGISTRY
from kerf_dra.driver.runtime.probes import Probes


class Informer:
    """An informer whose list is read at the start, or when the test says so."""

    def __init__(self, *, listed: bool) -> None:
        self._listed = anyio.Event()
        self.runs = False
        if listed:
            self._listed.set()

    @property
    def synced(self) -> bool:
        return self._listed.is_set()

    async def run(self) -> None:
        self.runs = True
        await anyio.sleep_forever()

    async def wait_synced(self) -> None:
        await self._listed.wait()

    def answer(self) -> None:
        self._listed.set()


async def start(informers: Mapping[str, AnyInformer], *, within_s: float) -> None:
    async with anyio.create_task_group() as group:
        await start_informers(
            group, informers, add_check=Probes(REGISTRY).add_check, within_s=within_s, hint="is the CRD there?"
        )
        group.cancel_scope.cancel()


async def test_a_list_that_does_not_come_ends_the_process_with_its_name() -> None:
    # NE-15
    informers = {name: Informer(listed=name == "nodes") for name in ("nodes", "nodeinventories", "classes")}
    with pytest.RaisesGroup(
        pytest.RaisesExc(NotListedError, match="within 0 s: nodeinventories, classes; is the CRD there")
    ):
        await start(informers, within_s=0)


async def test_the_controller_waits_until_the_last_list_is_in() -> None:
    # NE-14
    first, last = Informer(listed=True), Informer(listed=False)
    ready = anyio.Event()

    async def starting() -> None:
        await start({"first": first, "last": last}, within_s=60)
        ready.set()

    async with anyio.create_task_group() as group:
        group.start_soon(starting)
        await anyio.wait_all_tasks_blocked()
        assert (first.runs, last.runs, ready.is_set()) == (True, True, False)
        last.answer()
        with anyio.fail_after(60):
            await ready.wait()
