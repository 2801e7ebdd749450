"""One process hosts the plugins of several families: what fails in one does not end the others."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import aiohttp
import anyio
import pytest

from kerf_dra.api.core.v1 import Node as ApiNode
from kerf_dra.api.errors import KerfError, PermanentError
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import DriverName
from kerf_dra.api.resource.v1alpha2 import KINDS as CLASSIC_KINDS
from kerf_dra.driver.families.base import Family
from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.families.shared import SHARED
from kerf_dra.driver.kube.discovery import ClassicFeatures
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kubeletplugin.app import ClassicClusterError, ClusterConnector, HostedFamily, host
from kerf_dra.driver.kubeletplugin.backends.base import Backend, OutdatedProcessError
from kerf_dra.driver.kubeletplugin.backends.registry import BackendChoice
from kerf_dra.driver.kubeletplugin.call_watchdog import HangingCallError
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import FILE_NAME
from kerf_dra.driver.kubeletplugin.cluster.node_watch import NodeWatch
from kerf_dra.driver.kubeletplugin.instance import SocketRemovedError
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.runtime import metrics
from kerf_dra.driver.runtime.backoff import Backoff
from kerf_dra.driver.runtime.probes import Check
from tests.fakes.cards import fpga, gpu
from tests.fakes.claims import NODE, claim, ref, result
from tests.fakes.cluster import FakeCluster
from tests.fakes.hardware import FakeBackend
from tests.fakes.kubelet import FakeKubelet
from tests.kubeletplugin.harness import BOOT, LONGEST_S, short_directory
from tests.kubeletplugin.wait import until
from tests.runtime.ports import reserved_port

HERE = "tests.kubeletplugin.test_hosted_families"
SLICE = "gpu-0-1g-1gb-at-0"
TAKING_ANOTHER_PROCESS: Mapping[str, type[KerfError]] = {
    "another version of the driver": OutdatedProcessError,
    "a call hangs": HangingCallError,
}
RETRY = Backoff(first_s=0.01, factor=1, limit_s=0.01, jitter=0)


class NoCardsError(PermanentError):
    """There is no driver of the kernel."""


def open_fake_gpus(config: Path | None) -> Backend:
    return _open(config, FakeBackend([gpu(0)]))


def open_fake_fpgas(config: Path | None) -> Backend:
    return _open(config, FakeBackend([fpga(0)]))


def _open(config: Path | None, backend: FakeBackend) -> Backend:
    """Open ``backend``, unless its configuration says what is wrong."""
    if config is not None and config.exists():
        problem = config.read_text()
        raise TAKING_ANOTHER_PROCESS.get(problem, NoCardsError)(problem)
    return backend


def with_fake(family: Family, factory: Callable[[Path | None], Backend]) -> Family:
    return replace(family, backends={"fake": f"{HERE}:{factory.__name__}"})


@dataclass
class Node:
    """A node whose process hosts GPUs and FPGAs."""

    root: Path
    gpus: Settings
    fpgas: Settings
    clusters: Mapping[str, FakeCluster]
    address: str = "127.0.0.1:0"
    checks: Mapping[str, Check] = field(default_factory=dict)

    def break_backend(self, family: str, problem: str = "no driver") -> Path:
        """Let the backend of ``family`` fail to open until the file that is returned is removed."""
        path = self.root / f"{family}.broken"
        path.write_text(problem)
        return path

    def kubelet(self, family: Family) -> FakeKubelet:
        return FakeKubelet(self.root / "kubelet", driver=family.driver)

    async def run(self) -> None:
        async def connect(settings: Settings) -> FakeCluster:
            return self.clusters[settings.family.name]

        families = [HostedFamily(settings, connect, boot_id=BOOT) for settings in (self.gpus, self.fpgas)]
        self.checks = {f"{each.name}/{name}": check for each in families for name, check in each.checks.items()}
        await host(families, self.address)

    @property
    def problems(self) -> dict[str, str]:
        """What the readiness checks find wrong."""
        return {name: problem for name, check in self.checks.items() if (problem := check())}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as group:
            group.start_soon(self.run)
            yield
            group.cancel_scope.cancel()


@asynccontextmanager
async def node() -> AsyncIterator[Node]:
    with short_directory() as root, anyio.fail_after(LONGEST_S):
        gpus, fpgas = (
            Settings(
                node_name=NODE,
                family=with_fake(family, factory),
                backends=(BackendChoice(name="fake", config=root / f"{family.name}.broken"),),
                kubelet_root=root / "kubelet",
                state_dir=root / "state",
                cdi_dir=root / "cdi",
                retry=RETRY,
                socket_poll_s=0.02,
                rpc_grace_s=0.1,
                publish_min_interval_s=0.05,
            )
            for family, factory in ((GPU, open_fake_gpus), (FPGA, open_fake_fpgas))
        )
        (root / "kubelet/plugins_registry").mkdir(parents=True)
        yield Node(root, gpus, fpgas, {family.name: FakeCluster(family.driver) for family in (GPU, FPGA)})


def sample(name: str, driver: str) -> float | None:
    return metrics.REGISTRY.get_sample_value(name, {"driver": driver})


async def test_each_family_has_sockets_a_checkpoint_and_cdi_files_of_its_own() -> None:
    async with node() as place, place.running():
        kubelets = place.kubelet(GPU), place.kubelet(FPGA)
        names = [(await kubelet.register()).name for kubelet in kubelets]
        assert names == ["gpu.kerf.dev", "fpga.kerf.dev"]
        held = claim("training", SLICE, result("fpga-0", driver=FPGA.driver))
        for cluster in place.clusters.values():
            cluster.add(held)
        for kubelet in kubelets:
            await kubelet.prepare(ref(held))
        files = {path.name for path in (place.root / "cdi").iterdir()}
        assert files == {f"k8s.{driver}-claim_uid-of-training.json" for driver in names}
        assert {path.parent.name for path in place.root.glob(f"state/*/{FILE_NAME}")} == {*names}
        assert [sample("kerf_claim_records", driver) for driver in names] == [1, 1]
        await kubelets[0].unprepare(ref(held))
        assert [path.name for path in (place.root / "cdi").iterdir()] == [f"k8s.{names[1]}-claim_uid-of-training.json"]
        assert [sample("kerf_claim_records", driver) for driver in names] == [0, 1]
        assert [sample("kerf_registered", driver) for driver in names] == [1, 1]


async def test_a_family_that_cannot_start_is_named_once_and_tried_again_while_the_other_serves(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    async with node() as place:
        broken = place.break_backend("fpga", "no driver of the kernel")
        async with place.running():
            kubelet = place.kubelet(GPU)
            await kubelet.register()
            await until(lambda: place.problems == {"fpga/start": "no driver of the kernel"})
            await kubelet.prepare(place.clusters["gpu"].add(claim("training", SLICE)))
            broken.unlink()
            await place.kubelet(FPGA).register()
            await until(lambda: not place.problems)
        assert caplog.text.count("family fpga does not run") == 1
        assert "family fpga runs now" in caplog.text


async def test_an_unreadable_checkpoint_of_one_family_leaves_the_other_serving() -> None:
    async with node() as place:
        place.fpgas.state.mkdir(parents=True)
        (place.fpgas.state / FILE_NAME).write_bytes(b"x" * 100)
        async with place.running():
            await place.kubelet(GPU).register()
            await until(lambda: "gpu/start" not in place.problems)
            await until(lambda: "file is not a database" in place.problems.get("fpga/start", ""))
            assert not place.kubelet(FPGA).sockets


async def test_a_family_that_the_kubelet_refuses_is_named_by_the_readiness_of_the_process() -> None:
    async with node() as place, place.running():
        await place.kubelet(GPU).register()
        told: list[set[str]] = []

        def is_told() -> bool:
            problems = place.problems
            if "no such plugin" in problems.get("fpga/kubelet", ""):
                told.append({*problems})
            return bool(told)

        async with anyio.create_task_group() as group:
            group.start_soon(until, is_told)  # it offers itself anew, and then the kubelet has said nothing
            await place.kubelet(FPGA).register(error="no such plugin")
        assert not any(name.startswith("gpu/") for name in told[0])


async def test_when_no_family_can_start_the_process_ends_with_the_error() -> None:
    async with node() as place:
        place.break_backend("gpu", "no GPUs")
        place.break_backend("fpga", "no FPGAs")
        with pytest.raises(ExceptionGroup) as raised:
            await place.run()
        assert raised.group_contains(NoCardsError, match="no (GPUs|FPGAs)", depth=None)


@pytest.mark.parametrize(("problem", "error"), TAKING_ANOTHER_PROCESS.items())
async def test_a_family_that_takes_another_process_ends_this_one_though_the_other_serves(
    problem: str, error: type[KerfError]
) -> None:
    async with node() as place:
        place.break_backend("gpu", problem)
        with pytest.raises(ExceptionGroup) as raised:
            await place.run()
        assert raised.group_contains(error, match=problem, depth=None)


async def test_a_family_that_fails_after_the_other_has_failed_for_good_ends_the_process() -> None:
    async with node() as place:
        place.break_backend("fpga", "no FPGAs")

        async def remove_socket() -> None:
            await place.kubelet(GPU).register()
            await until(lambda: "fpga/start" in place.problems)
            place.gpus.dra_socket.unlink()

        async with anyio.create_task_group() as group:
            group.start_soon(remove_socket)
            with pytest.raises(ExceptionGroup) as raised:
                await place.run()
        assert raised.group_contains(SocketRemovedError, depth=None)


async def test_a_family_whose_socket_is_removed_serves_again_while_the_other_goes_on() -> None:
    async with node() as place, place.running():
        await place.kubelet(GPU).register()
        await place.kubelet(FPGA).register()
        await until(lambda: not place.problems)
        place.gpus.dra_socket.unlink()
        await until(lambda: "gpu/kubelet" in place.problems)
        await until(lambda: bool(place.kubelet(GPU).sockets) and place.gpus.dra_socket.exists())
        await place.kubelet(GPU).register()
        await until(lambda: not place.problems)


async def test_one_server_has_the_probes_of_all_families() -> None:
    async with node() as place:
        with reserved_port() as port:
            place.address = f"127.0.0.1:{port}"
            async with place.running():
                await place.kubelet(GPU).register()
                await until(lambda: "gpu/kubelet" not in place.problems and "fpga/kubelet" in place.problems)
                async with aiohttp.ClientSession() as session, session.get(f"http://{place.address}/readyz") as answer:
                    text = await answer.text()
                assert answer.status == 503
                assert "[+] gpu/kubelet" in text
                assert "[-] fpga/kubelet: the kubelet has not asked" in text


async def test_devices_that_several_nodes_reach_are_refused_where_a_kubelet_gives_containers_no_cdi_devices() -> None:
    connector = ClusterConnector(cast("Client", object()), "node-1")
    connector._features = ClassicFeatures(kubernetes=(1, 28), resource=CLASSIC_KINDS)
    connector._node = NodeWatch(cast("Client", object()), ApiNode(metadata=ObjectMeta(name="node-1")))
    with pytest.raises(ClassicClusterError, match=r"need Kubernetes 1\.29 or later"):
        await connector.connect(Settings(node_name="node-1", family=SHARED, backends=()))


async def test_other_families_that_several_nodes_reach_are_refused_where_kerfs_controller_allocates() -> None:
    connector = ClusterConnector(cast("Client", object()), "node-1")
    connector._features = ClassicFeatures(kubernetes=(1, 30), resource=CLASSIC_KINDS)
    connector._node = NodeWatch(cast("Client", object()), ApiNode(metadata=ObjectMeta(name="node-1")))
    family = replace(SHARED, name="radio", driver=DriverName("radio.example.com"))
    with pytest.raises(ClassicClusterError, match=r"need Kubernetes 1\.32 or later"):
        await connector.connect(Settings(node_name="node-1", family=family, backends=()))
