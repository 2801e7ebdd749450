"""Answers that are not what was asked for, to each kind of request of the plugin: a 200 is not believed by itself.

A node has a plugin for GPUs, with a claim on each of two cards, and one for FPGAs, with a third claim. All pods run and
are idle: no process is on the hardware. While the answers are wrong that are about the first claim, or about slices of
GPUs, nothing may be lost, and everything else goes on; afterwards everything does.

It is played twice: on a node whose kubelet lists claims and whose plugin may list them, and on one with neither.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import anyio
import pytest
from msgspec.structs import replace

from kerf_dra.api.core.v1 import NODES, PODS, Container, Node, Pod, PodSpec
from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.allocations import ResourceClaimConsumerReference, ResourceClaimStatus
from kerf_dra.api.model.claims import DeviceClaim, DeviceRequest, ExactDeviceRequest, ResourceClaimSpec
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ClaimRef, ObjectRef
from kerf_dra.api.podresources.v1 import ClaimUse
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.driver.families.base import Family
from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kube.http.client import PatchType
from kerf_dra.driver.kube.http.transport import HttpRequest
from kerf_dra.driver.kubeletplugin.app import ClusterConnector
from kerf_dra.driver.kubeletplugin.cluster.claim_end import ANSWERS_ALONE
from kerf_dra.driver.local.apiserver import ApiServer
from tests.attack.twisted_server import Twist, TwistedServer
from tests.fakes.cards import fpga, gpu
from tests.fakes.claims import NAMESPACE, NODE, claim, result
from tests.fakes.hardware import FakeBackend, Made
from tests.fakes.wrong_answers import WRONG
from tests.runtime.memory_folder import memory_folder
from tests.runtime.virtual_time import VIRTUAL_TIME, pass_time
from tests.schedules.process import Outside, PluginProcess

NOTHING: Any = None
SLICES: Final = ("gpu-0-1g-1gb-at-0", "gpu-1-1g-1gb-at-0")
FUNCTION: Final = "fpga-0"
WRONG_S: Final = 60.0 * (ANSWERS_ALONE + 4)
"""Longer than any end takes to be proven."""
SETTLED_S: Final = 150.0
"""For publications, which are a minute apart, and for what was put off by a back-off."""
SPEC: Final = ResourceClaimSpec(
    devices=DeviceClaim(
        requests=(DeviceRequest(name="accelerator", exactly=ExactDeviceRequest(device_class_name="any")),)
    )
)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


class EventlessBackend(FakeBackend):
    """Cards in a table to which nothing happens by itself."""

    def wait_for_events(self, timeout_s: float) -> Any:
        return ()


@dataclass
class HostedPlugin:
    """One family's plugin, as a process of its own has it."""

    family: Family
    backend: FakeBackend
    process: PluginProcess | None = None

    async def prepare(self, held: ClaimRef) -> None:
        """Prepare as the kubelet does: again until it is done."""
        assert self.process is not None
        assert self.process.plugin is not None
        with anyio.fail_after(3600):
            while True:
                try:
                    await self.process.plugin.preparer.prepare_claim(held)
                except KerfError:
                    await anyio.sleep(10)
                else:
                    return

    async def unprepare(self, held: ClaimRef) -> None:
        assert self.process is not None
        assert self.process.plugin is not None
        await self.process.plugin.preparer.unprepare_claim(held)


@dataclass
class Site:
    """The node and its API server."""

    root: Path
    lists_claims: bool
    """Whether the kubelet lists claims, and the plugin may."""
    server: TwistedServer = field(default_factory=lambda: TwistedServer(ApiServer()))
    gpus: HostedPlugin = field(default_factory=lambda: HostedPlugin(GPU, EventlessBackend([gpu(0), gpu(1)])))
    fpgas: HostedPlugin = field(default_factory=lambda: HostedPlugin(FPGA, EventlessBackend([fpga(0), fpga(1)])))
    running: list[ObjectRef] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.admin = TwistedServer(self.server.server).client()
        self.server.may_list_claims = self.lists_claims

    async def list_uses(self) -> Sequence[ClaimUse]:
        return [ClaimUse(claim=one, pod=one) for one in self.running if self.lists_claims]

    async def start(self, group: anyio.abc.TaskGroup) -> None:
        await self.admin.create(NODES, Node(metadata=ObjectMeta(name=NODE)))
        connector = ClusterConnector(self.server.client(), NODE)
        for plugin in (self.gpus, self.fpgas):
            outside = Outside(
                root=self.root,
                cluster=NOTHING,  # it is connected with the settings that follow from the others
                backend=plugin.backend,
                family=plugin.family,
                boot_id="boot-1",
                chance=Random(0),
                list_uses=self.list_uses,
                wall_clock=lambda: 1e9 + anyio.current_time(),
                observe=lambda: None,
            )
            cluster = await connector.connect(outside.settings)
            plugin.process = PluginProcess(dataclasses.replace(outside, cluster=cluster), on_death=lambda: None)
            group.start_soon(plugin.process.run)

    async def allocate(self, name: str, device: str, family: Family) -> ClaimRef:
        """A claim with its pod, as the scheduler leaves them."""
        spec = PodSpec(node_name=NODE, containers=(Container(name="main", image="idle"),))
        pod = await self.admin.create(PODS, Pod(metadata=ObjectMeta(namespace=NAMESPACE, name=name), spec=spec))
        allocated = claim(name, result(device, driver=family.driver))
        bare = replace(allocated, metadata=ObjectMeta(namespace=NAMESPACE, name=name), spec=SPEC)
        made = await self.admin.create(KINDS.resource_claims, replace(bare, status=ResourceClaimStatus()))
        user = ResourceClaimConsumerReference(resource="pods", name=name, uid=pod.metadata.uid)
        status = replace(allocated.status, reserved_for=(user,))
        await self.admin.update(KINDS.resource_claims, replace(made, status=status), subresource="status")
        return ClaimRef(NAMESPACE, name, made.metadata.uid)

    async def run_pod(self, name: str, device: str, plugin: HostedPlugin) -> ClaimRef:
        held = await self.allocate(name, device, plugin.family)
        await plugin.prepare(held)
        self.running.append(ObjectRef(NAMESPACE, name))
        return held

    def made(self) -> dict[str, Made]:
        """What is on the hardware of both families."""
        return {**self.gpus.backend.made, **self.fpgas.backend.made}

    async def touch_slices(self) -> None:
        """Have somebody take the owner of every slice, so that watches show them and the publisher repairs them."""
        for one in (await self.admin.list(KINDS.resource_slices)).items:
            change = {"metadata": {"ownerReferences": None}}
            await self.admin.patch(KINDS.resource_slices, one.metadata.name, change, type=PatchType.MERGE)

    async def published(self) -> dict[str, int]:
        """The number of devices of each driver's slices."""
        counts: dict[str, int] = {}
        for one in (await self.admin.list(KINDS.resource_slices)).items:
            counts[one.spec.driver] = counts.get(one.spec.driver, 0) + len(one.spec.devices)
        return counts


def gpu_slices(*methods: str) -> Callable[[HttpRequest], bool]:
    """Writes and watches of the slices of GPUs alone."""
    driver = GPU.driver

    def is_twisted(request: HttpRequest) -> bool:
        about = f"{request.body or b''!r}{request.query}"
        return request.method in methods and "resourceslices" in request.path and driver in about

    return is_twisted


def first_claim(method: str) -> Callable[[HttpRequest], bool]:
    return lambda request: request.method == method and "/resourceclaims/first" in request.path


def is_list(request: HttpRequest) -> bool:
    of_claims = request.path.endswith("/resourceclaims")
    return request.method == "GET" and (of_claims or gpu_slices("GET")(request)) and "watch" not in request.query


def is_watch(request: HttpRequest) -> bool:
    return gpu_slices("GET")(request) and "watch" in request.query


REQUESTS: Final[dict[str, Callable[[HttpRequest], bool]]] = {
    "POST": gpu_slices("POST"),
    "PUT": gpu_slices("PUT"),
    "PATCH": first_claim("PATCH"),
    "GET": first_claim("GET"),
    "LIST": is_list,
    "watch": is_watch,
}


async def play(site: Site, twist: Twist) -> None:
    """Have each kind of request answered wrongly in turn, and judge."""
    async with anyio.create_task_group() as group:

        def be_wrong(request: str) -> None:
            site.server.twist, site.server.is_twisted, site.server.twisted = twist, REQUESTS[request], 0
            site.server.expires_watches = request == "LIST"

        be_wrong("POST")
        with anyio.fail_after(3600):
            await site.start(group)
        await pass_time(SETTLED_S)
        assert site.server.twisted, "slices were created meanwhile"
        be_wrong("PATCH")
        first = await site.run_pod("first", SLICES[0], site.gpus)
        second = await site.run_pod("second", SLICES[1], site.gpus)
        third = await site.run_pod("third", FUNCTION, site.fpgas)
        made = site.made()
        await pass_time(SETTLED_S)
        assert site.server.twisted, "the claim's status was written meanwhile"
        for request in ("PUT", "watch", "LIST", "GET"):
            be_wrong(request)
            await site.touch_slices()
            await pass_time(WRONG_S if request == "GET" else SETTLED_S)
            assert site.server.twisted, f"nothing was asked by {request}"
            assert site.made() == made, f"lost by answers to {request}"
        await go_on(site)
        site.server.twist, site.server.expires_watches = None, False
        await pass_time(SETTLED_S)
        assert site.made() == made
        await site.gpus.prepare(first)
        assert site.made() == made, "nothing is made again"
        counts = await site.published()
        assert min(counts[GPU.driver], counts[FPGA.driver]) > 4, "whole cards and their parts"
        for held, plugin in ((first, site.gpus), (second, site.gpus), (third, site.fpgas)):
            await plugin.unprepare(held)
        assert site.made() == {}
        for plugin in (site.gpus, site.fpgas):
            assert plugin.process is not None
            assert plugin.process.is_serving, "its process has ended"
            plugin.process.kill()
        group.cancel_scope.cancel()


async def go_on(site: Site) -> None:
    """The other card, and the other family, go on while what is read of the first claim is wrong."""
    for name, device, plugin in (("fourth", "gpu-1-1g-1gb-at-1", site.gpus), ("fifth", "fpga-1", site.fpgas)):
        held = await site.allocate(name, device, plugin.family)
        with anyio.fail_after(SETTLED_S):
            await plugin.prepare(held)
        await plugin.unprepare(held)


@pytest.mark.parametrize("wrong", list(WRONG))
async def test_an_answer_that_is_not_what_was_asked_for_takes_nothing_and_stops_nothing(wrong: str) -> None:
    for lists_claims in (True, False):
        with memory_folder() as folder:
            await play(Site(Path(folder), lists_claims), WRONG[wrong])
