"""Slices of nodes that are gone are removed, and no others."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from kerf_dra.api.core.v1 import Node
from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.api.model.metadata import ObjectMeta, OwnerReference
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.driver.controller.structured.orphaned_slices import OrphanedSliceCollector
from kerf_dra.driver.kube.http.errors import (
    ConflictError,
    ForbiddenError,
    UnexpectedAnswerError,
    UnreachableError,
)
from tests.fakes.published_slices import gpus, slices
from tests.runtime.virtual_time import VIRTUAL_TIME


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


def of_node(name: str) -> list[ResourceSlice]:
    published = slices(name, gpus("h100-80gb-sxm"))
    return [
        replace(one, metadata=replace(one.metadata, uid=f"uid-of-{one.metadata.name}", resource_version="7"))
        for one in published
    ]


@dataclass
class Cluster:
    """A cluster in memory; ``nodes`` is what the server has, ``seen`` what the cache shows."""

    nodes: set[str]
    slices: list[ResourceSlice]
    seen: set[str] = field(default_factory=set)
    deleted: list[str] = field(default_factory=list)
    errors: dict[str, Exception] = field(default_factory=dict)
    """By operation."""

    def sweeping(self) -> OrphanedSliceCollector:
        return OrphanedSliceCollector(self, KINDS.resource_slices, lambda: self.slices, self._nodes, interval_s=60)  # type: ignore[arg-type]  # the protocol is generic over kinds

    def _nodes(self) -> Iterable[Node]:
        return [Node(metadata=ObjectMeta(name=name)) for name in self.seen]

    async def find(self, kind: Any, name: str) -> Node | None:
        if error := self.errors.get("find"):
            raise error
        return Node(metadata=ObjectMeta(name=name)) if name in self.nodes else None

    async def delete(
        self, kind: Any, name: str, *, uid: str | None = None, resource_version: str | None = None
    ) -> None:
        assert (uid, resource_version) == (f"uid-of-{name}", "7")
        if error := self.errors.get("delete"):
            raise error
        self.deleted.append(name)


async def test_the_slices_of_a_node_that_is_gone_go_at_the_second_look() -> None:
    cluster = Cluster(nodes={"n1"}, seen={"n1"}, slices=[*of_node("n1"), *of_node("n2")])
    sweeping = cluster.sweeping()
    await sweeping.collect_once()
    assert cluster.deleted == []
    await sweeping.collect_once()
    assert cluster.deleted == [one.metadata.name for one in of_node("n2")]


async def test_a_node_that_the_cache_shows_late_keeps_its_slices() -> None:
    cluster = Cluster(nodes={"n1"}, seen=set(), slices=of_node("n1"))
    sweeping = cluster.sweeping()
    for _ in range(3):
        await sweeping.collect_once()
    assert cluster.deleted == []


async def test_slices_that_belong_to_no_single_node_are_left_alone() -> None:
    everywhere = [replace(one, spec=replace(one.spec, node_name=None, all_nodes=True)) for one in of_node("n1")]
    cluster = Cluster(nodes=set(), slices=everywhere)
    sweeping = cluster.sweeping()
    for _ in range(2):
        await sweeping.collect_once()
    assert cluster.deleted == []


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        ("find", UnreachableError("GET", "refused")),
        ("find", UnexpectedAnswerError("GET", "no answer that Node n1 does not exist: 404 of a proxy")),
        ("delete", ForbiddenError("DELETE", 403, "Forbidden", "no")),
        ("delete", ConflictError("DELETE", 409, "Conflict", "another UID")),
    ],
)
async def test_what_fails_is_tried_at_the_next_look(operation: str, error: Exception) -> None:
    cluster = Cluster(nodes=set(), slices=of_node("n1"), errors={operation: error})
    sweeping = cluster.sweeping()
    for _ in range(2):
        await sweeping.collect_once()
    assert cluster.deleted == []
    cluster.errors.clear()
    await sweeping.collect_once()
    assert cluster.deleted == [one.metadata.name for one in of_node("n1")]


async def test_a_slice_that_still_has_an_owner_is_left_to_kubernetes_garbage_collection() -> None:
    owner = OwnerReference(api_version="v1", kind="Node", name="n2", uid="1")
    owned = [replace(one, metadata=replace(one.metadata, owner_references=(owner,))) for one in of_node("n2")]
    cluster = Cluster(nodes={"n1"}, seen={"n1"}, slices=owned)
    sweeping = cluster.sweeping()
    await sweeping.collect_once()
    await sweeping.collect_once()
    assert cluster.deleted == []


async def test_the_collector_looks_at_once_and_every_minute() -> None:
    cluster = Cluster(nodes={"n1"}, seen={"n1"}, slices=of_node("n2"))
    async with anyio.create_task_group() as group:
        group.start_soon(cluster.sweeping().run)
        await anyio.sleep(59)
        assert cluster.deleted == []
        await anyio.sleep(2)
        assert len(cluster.deleted) == len(cluster.slices)
        group.cancel_scope.cancel()
