"""Objects of the cluster that describe hardware come to a backend as documents, and change what is published."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml

from kerf_dra.api.core.v1 import CUSTOM_RESOURCE_DEFINITIONS
from kerf_dra.api.kerf.discovery_objects import (
    DISCOVERED_DEVICES,
    DISCOVERY_CONFIGURATIONS,
    DiscoveredDeviceObject,
    DiscoveryConfigurationObject,
)
from kerf_dra.api.kerf.fpga_objects import FPGA_IMAGES, FPGA_SHELLS
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.families.registry import BUILT_IN_BY_NAME
from kerf_dra.driver.families.shared import SHARED
from kerf_dra.driver.families.shared.node_labels import NODE_LABEL, make_labels
from kerf_dra.driver.kube.http.client import Client, PatchType
from kerf_dra.driver.kube.http.config import load_access
from kerf_dra.driver.kube.http.errors import ForbiddenError, NotFoundError
from kerf_dra.driver.kube.informer import Informer
from kerf_dra.driver.kube.store import ObjectChange
from kerf_dra.driver.kubeletplugin.backends.base import DescribedBackend, DiscoveryChange
from kerf_dra.driver.kubeletplugin.cluster.descriptions import DescriptionWatch, watch_descriptions
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.local.apiserver import ApiServer
from kerf_dra.driver.partitions.geometry import Card
from tests.fakes.cards import fpga, gpu
from tests.fakes.dfl.machine import INTERFACE, build_document
from tests.fakes.hardware import FakeBackend
from tests.kubeletplugin.harness import Machine, machine
from tests.kubeletplugin.wait import until
from tools.generate import crds

SHELL = build_document("FpgaShell", "lab", interfaceUUID=INTERFACE, slots=[{}])


class DescribedFake(FakeBackend):
    """A FakeBackend whose FPGA is there once it is described."""

    def __init__(self, cards: Sequence[Card], file: Path) -> None:
        super().__init__(cards, file)
        self.documents: list[Sequence[JsonObject]] = []
        self.discoveries = 0

    def describe(self, documents: Sequence[JsonObject]) -> None:
        self.documents.append(documents)

    def discover(self) -> Sequence[Card]:
        self.discoveries += 1
        cards = super().discover()
        return cards if self.documents and self.documents[-1] else [card for card in cards if card.kind != "fpga"]


def describe(node: Machine) -> DescribedFake:
    backend = DescribedFake([gpu(0), fpga(0)], node.root / "hardware.json")
    node.backend = backend
    return backend


def published_devices(node: Machine) -> set[str]:
    pools = node.cluster.published[-1] if node.cluster.published else ()
    return {device.name for pool in pools for content in pool.slices for device in content.devices}


async def test_what_is_described_is_known_before_the_first_discovery_and_followed_from_then_on() -> None:
    with machine() as node:
        backend = describe(node)
        node.cluster.descriptions.put(SHELL)
        async with node.plugin():
            await until(lambda: "fpga-0" in published_devices(node))
            assert backend.documents[0] == [SHELL]
            node.cluster.descriptions.put()
            await until(lambda: "fpga-0" not in published_devices(node))
            node.cluster.descriptions.put(SHELL)
            await until(lambda: "fpga-0" in published_devices(node))


async def test_descriptions_that_cannot_be_read_keep_nothing_else_from_being_published() -> None:
    with machine() as node:
        backend = describe(node)
        node.cluster.descriptions.documents = None
        async with node.plugin():
            await until(lambda: "gpu-0" in published_devices(node))
        assert backend.documents[0] == ()


async def test_a_backend_that_says_so_is_discovered_again() -> None:
    with machine() as node:
        backend = describe(node)
        async with node.plugin():
            await until(lambda: "gpu-0" in published_devices(node))
            before = backend.discoveries
            backend.tell(DiscoveryChange())
            await until(lambda: backend.discoveries > before)


def test_only_backends_that_take_descriptions_get_them(tmp_path: Path) -> None:
    assert isinstance(DescribedFake([], tmp_path / "a"), DescribedBackend)
    assert not isinstance(FakeBackend([], tmp_path / "b"), DescribedBackend)
    assert BUILT_IN_BY_NAME["fpga"].description_kinds == (FPGA_SHELLS, FPGA_IMAGES)
    assert BUILT_IN_BY_NAME["gpu"].description_kinds == ()


class ListingClient:
    """The one call of ``kerf_dra.driver.kube.http.client.Client`` that ``list_now`` makes."""

    def __init__(self, **answers: Any) -> None:
        self._answers = answers

    async def list(self, kind: Any, *, label_selector: str) -> Any:
        assert not label_selector, "administrators do not label what they describe"
        await anyio.lowlevel.checkpoint()
        answer = self._answers[kind.plural]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize("error", [NotFoundError("GET", 404, "NotFound", ""), ForbiddenError("GET", 403, "", "")])
async def test_kinds_that_are_not_there_or_may_not_be_read_are_none(error: Exception) -> None:
    shells = FPGA_SHELLS.decode_list(b'{"items": []}')
    for answers in ({"fpgashells": error}, {"fpgashells": shells, "fpgaimages": error}):
        watch = DescriptionWatch(ListingClient(**answers), (FPGA_SHELLS, FPGA_IMAGES), poll_s=1)  # type: ignore[arg-type]
        assert await watch.list_now() is None
    both = ListingClient(fpgashells=shells, fpgaimages=FPGA_IMAGES.decode_list(b'{"items": []}'))
    assert await DescriptionWatch(both, (FPGA_SHELLS, FPGA_IMAGES), poll_s=1).list_now() == []  # type: ignore[arg-type]


async def test_what_others_write_into_the_status_of_an_object_is_no_change_of_it(tmp_path: Path) -> None:
    async with embedded_cluster(tmp_path) as admin, anyio.create_task_group() as group:
        await admin.apply(FPGA_SHELLS, SHELL, field_manager="admin")
        told: list[Sequence[JsonObject]] = []
        watch = DescriptionWatch(admin, (FPGA_SHELLS, FPGA_IMAGES), poll_s=0.01)
        group.start_soon(watch.follow, told.append)
        await until(lambda: bool(told))
        status = {"status": {"nodes": {"total": 1}}}
        await admin.patch(FPGA_SHELLS, "lab", status, type=PatchType.MERGE, subresource="status")
        file = {"file": "a", "sha256": "a0" * 32, "slots": [[0]]}
        spec = {"function": "aes", "interfaceUUID": INTERFACE, "afuID": INTERFACE, "loadSeconds": 1, "files": [file]}
        await admin.apply(FPGA_IMAGES, build_document("FpgaImage", "aes", **spec), field_manager="admin")
        await until(lambda: len(told[-1]) == 2)
        assert [len(one) for one in told] == [1, 2], "the status was written in between"
        assert told[0] == [SHELL]
        group.cancel_scope.cancel()


async def test_nothing_is_reported_before_all_kinds_are_known_nor_where_there_are_none(tmp_path: Path) -> None:
    """An object that is missing may still come: its hardware would be withdrawn for a moment."""
    async with embedded_cluster(tmp_path) as admin, anyio.create_task_group() as group:
        for kind in (FPGA_SHELLS, FPGA_IMAGES):
            await admin.delete(CUSTOM_RESOURCE_DEFINITIONS, f"{kind.plural}.{kind.group}")
        told: list[Sequence[JsonObject]] = []
        none: list[Sequence[JsonObject]] = []
        await DescriptionWatch(admin, (), poll_s=0.01).follow(none.append)
        group.start_soon(DescriptionWatch(admin, (FPGA_SHELLS, FPGA_IMAGES), poll_s=0.01).follow, told.append)
        by_name = {crd["metadata"]["name"]: crd for crd in crds.documents()}
        await admin.apply(
            CUSTOM_RESOURCE_DEFINITIONS, by_name[f"{FPGA_SHELLS.plural}.{FPGA_SHELLS.group}"], field_manager="admin"
        )
        seen: list[ObjectChange[Any]] = []
        await admin.apply(FPGA_SHELLS, SHELL, field_manager="admin")
        witness = Informer(admin, FPGA_SHELLS, on_change=seen.append)
        group.start_soon(witness.run)
        for number in range(3):
            await admin.apply(FPGA_SHELLS, {**SHELL, "metadata": {"name": f"lab-{number}"}}, field_manager="admin")
        await until(lambda: len(seen) == 4)
        assert told == []
        await admin.apply(
            CUSTOM_RESOURCE_DEFINITIONS, by_name[f"{FPGA_IMAGES.plural}.{FPGA_IMAGES.group}"], field_manager="admin"
        )
        await until(lambda: bool(told))
        assert (len(told), len(told[0]), none) == (1, 4, [])
        group.cancel_scope.cancel()


async def test_a_node_follows_of_discovered_devices_its_own_and_the_shared_ones(tmp_path: Path) -> None:
    settings = Settings(node_name="n1", family=SHARED, backends=(), kubelet_root=tmp_path, classes_poll_s=0.01)
    async with embedded_cluster(tmp_path) as admin, anyio.create_task_group() as group:
        spec: JsonObject = {"discoveryHandler": {"name": "static"}}
        configuration = DiscoveryConfigurationObject(metadata=ObjectMeta(name="cams"), spec=spec)
        await admin.create(DISCOVERY_CONFIGURATIONS, configuration)
        labels = {
            "cams-000001": make_labels("n1", shared=False),
            "cams-000002": make_labels("n2", shared=False),
            "cams-00000a": make_labels("n2", shared=True),
        }
        for name, its in labels.items():
            seen = {"configurationName": "cams", "deviceID": name, "shared": name.endswith("a")}
            await admin.create(
                DISCOVERED_DEVICES, DiscoveredDeviceObject(metadata=ObjectMeta(name=name, labels=its), spec=seen)
            )
        watch = watch_descriptions(admin, settings)
        assert _names(await watch.list_now()) == {"cams", "cams-000001", "cams-00000a"}
        told: list[Sequence[JsonObject]] = []
        group.start_soon(watch.follow, told.append)
        await until(lambda: bool(told))
        assert _names(told[-1]) == {"cams", "cams-000001", "cams-00000a"}
        for name, value in (("cams-000001", "n2"), ("cams-000002", "n1")):
            patch = {"metadata": {"labels": {NODE_LABEL: value}}}
            await admin.patch(DISCOVERED_DEVICES, name, patch, type=PatchType.MERGE)
        await until(lambda: _names(told[-1]) == {"cams", "cams-000002", "cams-00000a"})
        group.cancel_scope.cancel()


def _names(documents: Sequence[JsonObject] | None) -> set[str]:
    return {one["metadata"]["name"] for one in documents or ()}


@asynccontextmanager
async def embedded_cluster(tmp_path: Path) -> AsyncIterator[Client]:
    """An API server with Kerf's kinds, and an administrator's client."""
    server = ApiServer()
    async with anyio.create_task_group() as group:
        await group.start(server.serve)
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(server.kubeconfig()))
        async with Client(await load_access(kubeconfig), user_agent="tests") as admin:
            for crd in crds.documents():
                await admin.apply(CUSTOM_RESOURCE_DEFINITIONS, crd, field_manager="admin")
            with anyio.fail_after(60):
                yield admin
        group.cancel_scope.cancel()
