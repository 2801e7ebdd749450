"""The plugin as it is run: with an API server, simulated hardware, and a kubelet, all over real sockets."""

import dataclasses
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from anyio.abc import TaskStatus
from msgspec.structs import replace

from kerf_dra.api.core.v1 import CUSTOM_RESOURCE_DEFINITIONS, EVENTS, NODES, Node
from kerf_dra.api.kerf.v1alpha1 import RESOURCE_CLASSES, ResourceClassObject, ResourceClassStatus
from kerf_dra.api.model.allocations import AllocatedDeviceStatus, ResourceClaimStatus
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.claims import DeviceClaim, DeviceRequest, ExactDeviceRequest, ResourceClaim, ResourceClaimSpec
from kerf_dra.api.model.devices import AttributeValue, ResourceSlice
from kerf_dra.api.model.metadata import Condition, ObjectMeta
from kerf_dra.api.model.names import ClaimRef
from kerf_dra.api.resource.kinds import ResourceKinds, allocated_claim_kind
from kerf_dra.driver.demo.environment import find_packaged_folder
from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kube.discovery import discover
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.config import load_access
from kerf_dra.driver.kube.http.errors import ConflictError, ForbiddenError, InvalidError, NotFoundError
from kerf_dra.driver.kubeletplugin import app
from kerf_dra.driver.kubeletplugin.backends.registry import BackendChoice, choose_families
from kerf_dra.driver.kubeletplugin.backends.simulated import open_backend
from kerf_dra.driver.kubeletplugin.cluster.base import Cluster
from kerf_dra.driver.kubeletplugin.cluster.resource_classes import ResourceClassWatch
from kerf_dra.driver.kubeletplugin.settings import ProcessSettings, Settings
from kerf_dra.driver.local.apiserver import ApiServer, ApiServerSettings, InjectedFault
from kerf_dra.driver.runtime import file_lock, metrics
from tests.fakes.claims import NODE, claim, ref, result
from tests.fakes.kubelet import ClaimError, FakeKubelet
from tests.kubeletplugin.harness import LONGEST_S, short_directory
from tests.kubeletplugin.wait import until

SLICE = "gpu-0-1g-10gb-at-0"
FUNCTION = "fpga-0-aes-gcm-at-1"
SPEC = ResourceClaimSpec(
    devices=DeviceClaim(
        requests=(DeviceRequest(name="accelerator", exactly=ExactDeviceRequest(device_class_name="any", count=2)),)
    )
)
VERSIONS = pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])


@dataclass
class Site:
    """A cluster of one node."""

    server: ApiServer
    client: Client
    kinds: ResourceKinds
    kubelet: FakeKubelet
    """What the kubelet is for the GPUs' driver."""
    fpgas: FakeKubelet
    """What it is for the FPGAs' driver."""
    settings: ProcessSettings
    hardware: Path

    @property
    def cdi_dir(self) -> Path:
        return self.settings.plugins[0].cdi_dir

    def change(self, **settings: Any) -> None:
        """Change settings of both families' plugins."""
        changed = tuple(dataclasses.replace(plugin, **settings) for plugin in self.settings.plugins)
        self.settings = dataclasses.replace(self.settings, plugins=changed)

    async def allocated(self, wanted: ResourceClaim) -> ClaimRef:
        """The claim, as the scheduler leaves it."""
        bare = replace(wanted, metadata=replace(wanted.metadata, uid=""), spec=SPEC, status=ResourceClaimStatus())
        made = await self.client.create(self.kinds.resource_claims, bare)
        await self.client.update(self.kinds.resource_claims, replace(made, status=wanted.status), subresource="status")
        return ClaimRef(made.metadata.namespace, made.metadata.name, made.metadata.uid)

    async def slices(self) -> tuple[ResourceSlice, ...]:
        return (await self.client.list(self.kinds.resource_slices)).items

    async def complete_slices(self) -> tuple[ResourceSlice, ...]:
        """Return the slices, once each pool has all of its newest generation: they are written one after the other."""
        while True:
            slices = await self.slices()
            newest: dict[str, int] = {}
            for pool in (one.spec.pool for one in slices):
                newest[pool.name] = max(newest.get(pool.name, 0), pool.generation)
            counts = Counter(one.spec.pool.name for one in slices)
            if all(
                (pool.generation, pool.resource_slice_count) == (newest[pool.name], counts[pool.name])
                for pool in (one.spec.pool for one in slices)
            ):
                return slices
            await anyio.sleep(0.005)

    async def published(self) -> set[str]:
        return {device.name for one in await self.complete_slices() for device in one.spec.devices}

    async def until_shown(self, held: ClaimRef, device: str) -> AllocatedDeviceStatus:
        """Return what the claim shows of a device once it does: no prepare waits for its write."""
        while True:
            read = await self.client.get(self.kinds.resource_claims, held.name, held.namespace)
            for entry in read.status.devices:
                if entry.device == device:
                    return entry
            await anyio.sleep(0.005)

    def write_hardware(self, name: str, document: Any) -> None:
        """Replace a file of the simulated hardware at once, as its users do."""
        folder = self.hardware.parent / "hardware"
        folder.mkdir(exist_ok=True)
        with file_lock.acquire(folder):
            new = folder / f".{name}.by-hand"
            new.write_text(json.dumps(document))
            new.replace(folder / f"{name}.json")

    async def until_published(self, device: str, *, without: str = "") -> None:
        while device not in (names := await self.published()) or without in names:  # noqa: ASYNC110  (as elsewhere)
            await anyio.sleep(0.005)


@asynccontextmanager
async def site(settings: ApiServerSettings) -> AsyncIterator[Site]:
    with short_directory() as root, anyio.fail_after(LONGEST_S):
        server = ApiServer(settings=settings)
        hardware = root / "cards.yaml"
        device_plugins = root / "kubelet" / "device-plugins"
        device_plugins.mkdir(parents=True)
        cards = [{"kind": "gpu", "model": "h100-80gb-sxm", "count": 2}, {"kind": "fpga", "shell": "quad"}]
        hardware.write_text(json.dumps({"state": "hardware", "pace": 0, "healthPollSeconds": 0.05, "cards": cards}))
        plugins = tuple(
            Settings(
                node_name=NODE,
                family=choice.family,
                backends=choice.backends,
                kubelet_root=root / "kubelet",
                device_plugins_dir=device_plugins,
                cdi_dir=root / "cdi",
                publish_min_interval_s=0.01,
                status_removal_s=0.01,
            )
            for choice in choose_families((), [BackendChoice(name="simulated", config=hardware)])
        )
        settings_ = ProcessSettings(
            node_name=NODE, plugins=plugins, kubeconfig=root / "kubeconfig", probes_address="127.0.0.1:0"
        )
        async with anyio.create_task_group() as group:
            await group.start(server.serve)
            (root / "kubeconfig").write_text(json.dumps(server.kubeconfig()))
            async with Client(await load_access(root / "kubeconfig"), user_agent="kerf-test/1") as client:
                await client.create(NODES, Node(metadata=ObjectMeta(name=NODE)))
                kinds = (await discover(client)).resource
                gpus, fpgas = (FakeKubelet(root / "kubelet", driver=family.driver) for family in (GPU, FPGA))
                yield Site(server, client, kinds, gpus, fpgas, settings_, hardware)
            group.cancel_scope.cancel()


@asynccontextmanager
async def running(place: Site) -> AsyncIterator[None]:
    async with anyio.create_task_group() as group:
        group.start_soon(partial(app.run, place.settings))
        await place.kubelet.register()
        await place.fpgas.register()
        yield
        group.cancel_scope.cancel()


@VERSIONS
async def test_from_slices_to_a_prepared_claim_and_back(version: str) -> None:
    async with site(ApiServerSettings(resource_versions=(version,))) as place:
        async with running(place):
            await place.until_published(SLICE)
            held = await place.allocated(claim("training", SLICE, result(FUNCTION, driver=FPGA.driver)))
            (first,), (second,) = await place.kubelet.prepare(held), await place.fpgas.prepare(held)
            assert (first.device_name, second.device_name) == (SLICE, FUNCTION)
            assert len(open_backend(place.hardware).partitions()) == 2
            await place.kubelet.unprepare(held)
            assert len(open_backend(place.hardware).partitions()) == 1, "the other family's part of the claim stays"
            await place.fpgas.unprepare(held)
            assert open_backend(place.hardware).partitions() == []
            assert not list(place.cdi_dir.iterdir())
            with pytest.raises(ClaimError, match=r"claim default/missing .* does not exist"):
                await place.kubelet.prepare(ref(claim("missing")))
        slices = await place.slices()
        assert slices, "slices stay, for the plugin's successor"
        assert {one.spec.node_name for one in slices} == {NODE}
        (owner,) = slices[0].metadata.owner_references
        assert (owner.kind, owner.name) == ("Node", NODE)


async def test_a_claim_shows_what_it_got_from_its_prepare_to_its_end() -> None:
    async with site(ApiServerSettings()) as place, running(place):
        await place.until_published(SLICE)
        held = await place.allocated(claim("training", SLICE, result(FUNCTION, driver=FPGA.driver)))

        async def entries() -> dict[str, AllocatedDeviceStatus]:
            read = await place.client.get(place.kinds.resource_claims, held.name, held.namespace)
            return {entry.device: entry for entry in read.status.devices}

        await place.kubelet.prepare(held)
        gpu = await place.until_shown(held, SLICE)
        (cut,) = open_backend(place.hardware).survey(read_card(gpu)).partitions
        assert gpu.data == {
            "apiVersion": "kerf.dev/v1alpha1",
            "kind": "DeviceStatus",
            "uuid": cut.uuid,
            "card": read_card(gpu),
            "pciBusID": "0000:00:00.0",
            "profile": "1g.10gb",
            "simulated": True,
            "deviceNodes": ["/dev/nvidiactl", "/dev/nvidia0", *caps(gpu)],
            "cdiDevices": [f"k8s.gpu.kerf.dev/claim=claim-{held.uid}-{SLICE}"],
            "sampled": True,
        }
        await place.fpgas.prepare(held)
        fpga = await place.until_shown(held, FUNCTION)
        assert fpga.data is not None
        assert (fpga.data["function"], fpga.data["deviceNodes"]) == ("aes-gcm", ["/dev/dfl-port.1"])
        assert [(one.type, one.status, one.reason) for one in fpga.conditions] == [
            ("Ready", "True", "Prepared"),
            ("Simulated", "True", "SimulatedHardware"),
        ]
        await place.kubelet.unprepare(held)
        while SLICE in await entries():  # noqa: ASYNC110  (as elsewhere)
            await anyio.sleep(0.005)
        assert set(await entries()) == {FUNCTION}, "the other family's device is still prepared"
        await place.fpgas.unprepare(held)
        while await entries():  # noqa: ASYNC110  (as elsewhere)
            await anyio.sleep(0.005)


async def test_where_the_api_server_drops_the_status_of_devices_claims_are_prepared_without(
    caplog: pytest.LogCaptureFixture,
) -> None:
    dropped = {"resourceclaims": ("status.devices",)}
    async with site(ApiServerSettings(dropped_fields=dropped)) as place, running(place):
        await place.until_published(SLICE)
        held = await place.allocated(claim("training", SLICE))
        assert [device.device_name for device in await place.kubelet.prepare(held)] == [SLICE]
        await until(lambda: "its gate DRAResourceClaimDeviceStatus is off" in caplog.text)
        assert caplog.text.count("its gate DRAResourceClaimDeviceStatus is off") == 1


def read_card(entry: AllocatedDeviceStatus) -> str:
    assert entry.data is not None
    return str(entry.data["card"])


def caps(entry: AllocatedDeviceStatus) -> list[str]:
    """The nodes of the MIG device, whose numbers are the driver's."""
    assert entry.data is not None
    nodes = [str(node) for node in entry.data["deviceNodes"] if "nvidia-caps" in node]
    assert len(nodes) == 2
    return nodes


COUNTERS = ("spec.devices[].consumesCounters", "spec.sharedCounters")
WHOLE_CARDS = {"gpu-0", "gpu-1", "fpga-0"}


@pytest.mark.parametrize("kubernetes", [(1, 34), (1, 35)])
async def test_where_the_api_server_drops_counters_only_whole_cards_are_offered_from_the_first_slice_on(
    kubernetes: tuple[int, int],
) -> None:
    settings = ApiServerSettings(kubernetes=kubernetes, dropped_fields={"resourceslices": COUNTERS})
    async with site(settings) as place, running(place):
        for device in WHOLE_CARDS:
            await place.until_published(device)
        assert await place.published() == WHOLE_CARDS
        assert {one.spec.pool.generation for one in await place.slices()} == {1}, "written once"


async def test_where_the_api_server_drops_counters_from_some_day_on_only_whole_cards_are_offered_from_then_on() -> None:
    dropped: dict[str, tuple[str, ...]] = {}
    async with site(ApiServerSettings(dropped_fields=dropped)) as place, running(place):
        await place.until_published(SLICE)
        dropped["resourceslices"] = COUNTERS
        for held in await place.slices():
            with suppress(NotFoundError):  # the plugin repairs the pool as soon as one is gone, and may be faster
                await place.client.delete(place.kinds.resource_slices, held.metadata.name)
        await place.until_published("gpu-0", without=SLICE)


def in_shares(profile: str) -> ResourceClassObject:
    spec: JsonObject = {"device": "gpu", "profile": profile, "allocation": "Shared"}
    return ResourceClassObject(metadata=ObjectMeta(name="shares"), spec=spec)


CLASSES = yaml.safe_load((find_packaged_folder("crds") / "kerf.dev_resourceclasses.yaml").read_text())


async def test_what_a_class_offers_in_shares_is_published_within_moments_and_goes_with_the_class() -> None:
    async with site(ApiServerSettings()) as place:
        await place.client.apply(CUSTOM_RESOURCE_DEFINITIONS, CLASSES, field_manager="test")
        async with running(place):
            await place.until_published(SLICE)
            await place.client.create(RESOURCE_CLASSES, in_shares("1g.10gb"))
            await place.until_published(f"{SLICE}-shared")
            await place.client.delete(RESOURCE_CLASSES, "shares")
            await place.until_published(SLICE, without=f"{SLICE}-shared")


async def test_what_a_class_keeps_for_an_extended_resource_is_no_longer_published_for_claims() -> None:
    offer = {"resource": "kerf.dev/small", "perNode": 7}
    spec: JsonObject = {"device": "gpu", "profile": "1g.10gb", "devicePlugin": offer}
    condition = Condition(type="DevicePlugin", status="True", reason="NameFree", message="the name is free")
    async with site(ApiServerSettings()) as place:
        await place.client.apply(CUSTOM_RESOURCE_DEFINITIONS, CLASSES, field_manager="test")
        async with running(place):
            await place.until_published(SLICE)
            offering = ResourceClassObject(metadata=ObjectMeta(name="small"), spec=spec)
            made = await place.client.create(RESOURCE_CLASSES, offering)
            permitted = replace(
                condition, observed_generation=made.metadata.generation, last_transition_time="2026-01-01T00:00:00Z"
            )
            said = replace(made, status=ResourceClassStatus(conditions=(permitted,)))
            await place.client.update(RESOURCE_CLASSES, said, subresource="status")
            await place.until_published(FUNCTION, without=SLICE)


async def test_classes_that_can_be_read_only_later_are_followed_from_then_on() -> None:
    async with site(ApiServerSettings()) as place:
        place.change(classes_poll_s=0.02)
        async with running(place):
            await place.until_published(SLICE)
            await place.client.apply(CUSTOM_RESOURCE_DEFINITIONS, CLASSES, field_manager="test")
            await place.client.create(RESOURCE_CLASSES, in_shares("1g.10gb"))
            await place.until_published(f"{SLICE}-shared")


async def test_where_the_api_server_drops_what_makes_devices_shareable_nothing_is_offered_in_shares(
    caplog: pytest.LogCaptureFixture,
) -> None:
    policies = "spec.devices[].capacity{}.requestPolicy"
    dropped = {"resourceslices": ("spec.devices[].allowMultipleAllocations", policies)}
    async with site(ApiServerSettings(dropped_fields=dropped)) as place:
        await place.client.apply(CUSTOM_RESOURCE_DEFINITIONS, CLASSES, field_manager="test")
        await place.client.create(RESOURCE_CLASSES, in_shares("1g.10gb"))
        async with running(place):
            await until(lambda: "no shared devices are published" in caplog.text)
            await place.until_published(SLICE, without=f"{SLICE}-shared")


async def test_where_the_scheduler_would_give_shares_twice_none_is_published_and_an_event_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with site(ApiServerSettings(kubernetes=(1, 36))) as place:
        await place.client.apply(CUSTOM_RESOURCE_DEFINITIONS, CLASSES, field_manager="test")
        async with running(place):
            await place.until_published(SLICE)
            assert "kubernetes#139034" not in caplog.text, "nobody wants any"
            await place.client.create(RESOURCE_CLASSES, in_shares("1g.10gb"))
            while not (events := (await place.client.list(EVENTS)).items):  # noqa: ASYNC110  (as elsewhere)
                await anyio.sleep(0.005)
            await place.until_published(SLICE, without=f"{SLICE}-shared")
        (event,) = events
        assert (event.reason, event.involved_object.name) == ("SharesNotPublished", NODE)
        assert event.message == (
            "ResourceClasses want shares of gpu devices, and none are published: kube-scheduler 1.36.0 gives what "
            "excludes each other to two pods (kubernetes/kubernetes#139034); Kubernetes 1.36.2 has the fix"
        )
        assert caplog.text.count("kubernetes#139034") == 1


async def test_all_families_of_a_process_share_one_watch_of_resource_classes() -> None:
    def lists() -> float:
        value = metrics.REGISTRY.get_sample_value("kerf_informer_lists_total", {"resource": "resourceclasses"})
        return value or 0.0

    async with site(ApiServerSettings()) as place:
        await place.client.apply(CUSTOM_RESOURCE_DEFINITIONS, CLASSES, field_manager="test")
        before = lists()
        async with running(place):
            await place.until_published(SLICE)
            await place.until_published(FUNCTION)
            await place.client.create(RESOURCE_CLASSES, in_shares("1g.10gb"))
            spec: JsonObject = {"device": "fpga", "cut": "Monitor"}
            monitor = ResourceClassObject(metadata=ObjectMeta(name="monitor"), spec=spec)
            await place.client.create(RESOURCE_CLASSES, monitor)
            await place.until_published(f"{SLICE}-shared")
            await place.until_published("fpga-0-monitor")
        assert lists() == before + 1


async def test_when_the_follower_that_runs_the_watch_of_classes_ends_the_next_one_goes_on() -> None:
    async with site(ApiServerSettings()) as place, anyio.create_task_group() as group:
        await place.client.apply(CUSTOM_RESOURCE_DEFINITIONS, CLASSES, field_manager="test")
        watch = ResourceClassWatch(place.client)
        assert await watch.list_now() == ()
        heard: dict[str, list[set[str]]] = {"first": [], "second": [], "third": []}

        async def follow(name: str, *, task_status: TaskStatus[anyio.CancelScope]) -> None:
            with anyio.CancelScope() as scope:
                task_status.started(scope)
                await watch.follow(lambda: heard[name].append({one.metadata.name for one in watch.classes}), poll_s=60)

        async def until_heard(name: str, classes: set[str]) -> None:
            await until(lambda: heard[name][-1:] == [classes])

        first = await group.start(follow, "first")
        await place.client.create(RESOURCE_CLASSES, replace(in_shares("1g.10gb"), metadata=ObjectMeta(name="a")))
        await until_heard("first", {"a"})
        await group.start(follow, "second")
        await until_heard("second", {"a"})
        first.cancel()
        await place.client.create(RESOURCE_CLASSES, replace(in_shares("1g.10gb"), metadata=ObjectMeta(name="b")))
        await until_heard("second", {"a", "b"})
        assert heard["first"] == [{"a"}], "it has ended"
        await group.start(follow, "third")
        await until_heard("third", {"a", "b"})
        group.cancel_scope.cancel()


async def conditional(place: Site) -> set[str]:
    """Devices that are published with binding conditions."""
    return {
        device.name for one in await place.complete_slices() for device in one.spec.devices if device.binding_conditions
    }


async def test_slow_functions_are_published_with_conditions_from_the_first_slice_on() -> None:
    async with site(ApiServerSettings()) as place:
        place.change(early_load_s=0.5)
        async with running(place):
            await place.until_published(FUNCTION)
            named = await conditional(place)
        slow = {name for name in named if "-fft-large-" in name}
        bare = {name for name in named if "-slot" in name or name == "fpga-0"}
        assert slow
        assert named == slow | bare, "bare slots may get the slow function"
        generations = {one.spec.pool.generation for one in await place.complete_slices()}
        assert generations == {1}, "written once"


async def test_a_class_can_have_partitions_prepared_before_binding_also_one_that_comes_later() -> None:
    async with site(ApiServerSettings()) as place:
        place.change(early_load_s=None)
        await place.client.apply(CUSTOM_RESOURCE_DEFINITIONS, CLASSES, field_manager="test")
        async with running(place):
            await place.until_published(SLICE)
            assert await conditional(place) == set()
            spec: JsonObject = {"device": "gpu", "profile": "1g.10gb", "prepare": "BeforeBinding"}
            await place.client.create(
                RESOURCE_CLASSES, ResourceClassObject(metadata=ObjectMeta(name="early"), spec=spec)
            )
            while not (named := await conditional(place)):  # noqa: ASYNC110  (as elsewhere)
                await anyio.sleep(0.005)
            assert SLICE in named
            assert all("-1g-10gb-at-" in name for name in named)
            driver = GPU.driver
            conditions = {
                "binding_conditions": (f"{driver}/Loaded",),
                "binding_failure_conditions": (f"{driver}/LoadFailed",),
            }
            waiting = claim("waiting", replace(result(SLICE), **conditions))
            held = await place.allocated(waiting)
            await until(lambda: len(open_backend(place.hardware).partitions()) == 1)  # before the kubelet has asked
            await place.until_shown(held, SLICE)
            await place.kubelet.prepare(held)


async def test_where_the_api_server_drops_conditions_none_are_published(caplog: pytest.LogCaptureFixture) -> None:
    fields = ("spec.devices[].bindingConditions", "spec.devices[].bindingFailureConditions")
    async with site(ApiServerSettings(dropped_fields={"resourceslices": fields})) as place:
        place.change(early_load_s=0)
        async with running(place):
            await until(lambda: "the API server drops binding conditions" in caplog.text)
            await place.until_published(FUNCTION)


async def numa_nodes(place: Site) -> set[AttributeValue | None]:
    name = "resource.kubernetes.io/numaNode"
    return {device.attributes[name].value for one in await place.complete_slices() for device in one.spec.devices}


async def test_numa_nodes_are_lists_only_by_the_setting_and_where_the_api_server_takes_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for takes_lists, is_set, expected in ((True, False, {0, 1}), (True, True, {(0,), (1,)}), (False, True, {0, 1})):
        caplog.clear()
        async with site(ApiServerSettings(dropped_fields={}) if takes_lists else ApiServerSettings()) as place:
            place.change(list_attributes=is_set)
            async with running(place):
                await place.until_published(SLICE)
                await place.until_published(FUNCTION)
                assert await numa_nodes(place) == expected
        assert ("the API server takes no lists" in caplog.text) == (is_set and not takes_lists)


async def test_an_ill_card_is_tainted_on_the_server() -> None:
    async with site(ApiServerSettings()) as place, running(place):
        await place.until_published("gpu-0")
        place.write_hardware("faults", {"degraded": {"gpu-0": "Xid 79"}})
        while True:
            devices = [device for one in await place.complete_slices() for device in one.spec.devices]
            tainted = {device.name for device in devices if device.taints}
            if tainted:
                break
            await anyio.sleep(0.005)
        assert tainted == {device.name for device in devices if device.name.startswith("gpu-0")}


async def test_a_node_that_the_cluster_does_not_know_is_an_error_not_a_wait() -> None:
    async with site(ApiServerSettings()) as place:
        await place.client.delete(NODES, NODE)
        with pytest.raises(ExceptionGroup) as raised:
            await app.run(place.settings)
        assert raised.group_contains(app.UnknownNodeError, match=f"has no Node {NODE}: give the plugin", depth=None)


async def test_the_status_of_a_claim_over_two_families_keeps_both_drivers_entries() -> None:
    async with site(ApiServerSettings()) as place:
        held = await place.allocated(claim("training", SLICE, "gpu-1", result(FUNCTION, driver=FPGA.driver)))
        kind = allocated_claim_kind(place.kinds.version)
        connector = app.ClusterConnector(place.client, NODE)
        gpus, fpgas = [await connector.connect(plugin) for plugin in place.settings.plugins]

        async def write(cluster: Cluster, *entries: AllocatedDeviceStatus) -> set[str]:
            read = await place.client.get(kind, held.name, held.namespace)
            await cluster.write_device_status(read, entries)
            return {one.driver for one in (await place.client.get(kind, held.name, held.namespace)).status.devices}

        of_gpu = AllocatedDeviceStatus(driver=GPU.driver, pool=f"{NODE}/gpu", device=SLICE)
        of_fpga = AllocatedDeviceStatus(driver=FPGA.driver, pool=f"{NODE}/fpga", device=FUNCTION)
        others = [
            AllocatedDeviceStatus(driver=GPU.driver, pool=f"{NODE}/gpu", device=name) for name in (SLICE, "gpu-1")
        ]
        assert await write(gpus, *others) == {GPU.driver}
        assert await write(fpgas, of_fpga) == {GPU.driver, FPGA.driver}
        assert await write(gpus) == {FPGA.driver}, "all entries of the driver are replaced, however many"
        assert await write(fpgas) == set()
        assert await write(gpus, of_gpu) == {GPU.driver}
        assert await write(fpgas, of_fpga) == {GPU.driver, FPGA.driver}
        stale = [await place.client.get(kind, held.name, held.namespace)]
        assert await write(gpus, of_gpu) == {GPU.driver, FPGA.driver}
        stale.append(await place.client.get(kind, held.name, held.namespace))
        for read in stale:  # in the first one the place of its entry is the other driver's by now
            with pytest.raises(ConflictError):
                await gpus.write_device_status(read, ())
            assert await write(gpus) == {FPGA.driver}


class UnprivilegedClient(Client):
    """A client that may not write entries of devices, as Kubernetes 1.36 says it."""

    async def patch(self, kind: Any, name: str, *_: Any, **__: Any) -> Any:
        message = (
            f'ResourceClaim.resource.k8s.io "{name}" is invalid: status.devices: Forbidden: changing status.devices '
            'requires resource="resourceclaims/driver", verb="[associated-node:patch arbitrary-node:patch]" permission'
        )
        raise InvalidError(f"PATCH {kind.plural}", HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid", message)


async def test_a_permission_that_is_missing_for_entries_is_one_although_the_answer_calls_the_claim_invalid() -> None:
    async with site(ApiServerSettings()) as place:
        held = await place.allocated(claim("training", SLICE))
        read = await place.client.get(allocated_claim_kind(place.kinds.version), held.name, held.namespace)
        access = await load_access(place.settings.kubeconfig)
        async with UnprivilegedClient(access, user_agent="kerf-test/1") as client:
            cluster = await app.ClusterConnector(client, NODE).connect(place.settings.plugins[0])
            with pytest.raises(ForbiddenError, match="resourceclaims/driver") as raised:
                await cluster.write_device_status(read, ())
            assert (raised.value.status, raised.value.reason) == (HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid")


async def test_a_plugin_that_may_not_list_claims_knows_that_it_does_not_know_them() -> None:
    async with site(ApiServerSettings()) as place:
        cluster = await app.ClusterConnector(place.client, NODE).connect(place.settings.plugins[0])
        assert await cluster.list_claims() == ()
        place.server.faults.add(InjectedFault(code=HTTPStatus.FORBIDDEN), verb="list", resource="resourceclaims")
        assert await cluster.list_claims() is None
        assert await cluster.list_claims() == ()
