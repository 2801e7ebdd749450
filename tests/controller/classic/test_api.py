"""Whether this process leads is read from the API server, once for all concurrent callers."""

from typing import cast

import anyio
import pytest

from kerf_dra.api.core.v1 import LEASES, Lease, LeaseSpec
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.resource.v1alpha2 import KINDS
from kerf_dra.api.wire import Kind
from kerf_dra.driver.controller.classic.api import KubeClaimClient
from kerf_dra.driver.controller.classic.reconciler import NotLeadingError
from kerf_dra.driver.kube.http.client import Client

LEASE = ObjectRef("kerf-system", "kerf-controller")


class Server:
    """A Lease that is read when the test says so."""

    def __init__(self) -> None:
        self.holder = "a"
        self.looks = 0
        self._answers = anyio.Event()

    async def get(self, kind: Kind[Lease], name: str, namespace: str) -> Lease:
        assert (kind, ObjectRef(namespace, name)) == (LEASES, LEASE)
        self.looks += 1
        holder = self.holder  # as it is now, whenever the answer comes
        await self._answers.wait()
        return Lease(metadata=ObjectMeta(name=name, namespace=namespace), spec=LeaseSpec(holder_identity=holder))

    def answer(self) -> None:
        """Answer the read that is in flight; later callers wait for the next one."""
        self._answers.set()
        self._answers = anyio.Event()


def api_of(server: Server) -> KubeClaimClient:
    return KubeClaimClient(cast("Client", server), KINDS, lease=LEASE, identity="a")


async def test_those_who_ask_while_a_look_is_under_way_share_the_next() -> None:
    server = Server()
    api = api_of(server)
    async with anyio.create_task_group() as group:
        group.start_soon(api.confirm_leading)
        await anyio.wait_all_tasks_blocked()
        for _ in range(4):
            group.start_soon(api.confirm_leading)
        for looks in (1, 2):
            await anyio.wait_all_tasks_blocked()
            assert server.looks == looks
            server.answer()
    assert server.looks == 2


async def test_a_look_that_began_before_somebody_asked_says_nothing_to_them() -> None:
    server = Server()
    api = api_of(server)
    refused = []

    async def ask() -> None:
        try:
            await api.confirm_leading()
        except NotLeadingError as error:
            refused.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(api.confirm_leading)
        await anyio.wait_all_tasks_blocked()
        server.holder = "b"
        group.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        server.answer()
        await anyio.wait_all_tasks_blocked()
        server.answer()
    assert len(refused) == 1


async def test_a_refusal_is_no_answer_for_others() -> None:
    server = Server()
    server.holder = "b"
    api = api_of(server)

    async def refuse() -> None:
        with pytest.raises(NotLeadingError):
            await api.confirm_leading()

    async with anyio.create_task_group() as group:
        for _ in range(2):
            group.start_soon(refuse)
        for _ in range(2):
            await anyio.wait_all_tasks_blocked()
            server.answer()
    assert server.looks == 2
