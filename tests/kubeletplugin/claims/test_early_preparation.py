"""Functions are loaded before their pods are bound, and the result is written to the claim's status (KEP-5007)."""

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from kerf_dra.api.errors import InvalidDocumentError, KerfError, PermanentError, Problem
from kerf_dra.api.model.allocations import AllocatedDeviceStatus
from kerf_dra.api.model.claims import AllocatedClaim, ResourceClaim
from kerf_dra.api.model.metadata import Condition
from kerf_dra.api.model.names import DriverName, ObjectRef
from kerf_dra.driver.kube.http.errors import ConflictError, ForbiddenError
from kerf_dra.driver.kubeletplugin.backends.base import HardwareBusyError, UnsuitableClaimError
from kerf_dra.driver.kubeletplugin.claims.early_preparation import EarlyPreparer
from kerf_dra.driver.kubeletplugin.claims.status_writer import ASK_AGAIN_S
from kerf_dra.driver.kubeletplugin.cluster.base import StatusDroppedError
from kerf_dra.driver.kubeletplugin.inventory.binding_conditions import (
    BindingConditions,
    add_binding_conditions,
    build_device_statuses,
    find_awaited_devices,
    loads_slowly,
)
from kerf_dra.driver.kubeletplugin.inventory.state.health import DeviceHealthTracker
from kerf_dra.driver.partitions.geometry import Partition, Placement
from kerf_dra.driver.runtime import work_queue
from kerf_dra.driver.runtime.backoff import Backoff
from tests.fakes.cards import fpga, gpu
from tests.fakes.claims import DRIVER, claim, ref, result, share_id
from tests.fakes.cluster import FakeClaimInformer, FakeCluster
from tests.kubeletplugin.claim_fixture import NODE_DEVICES, SETTINGS, PluginCore, plugin_core
from tests.kubeletplugin.harness import LONGEST_S
from tests.kubeletplugin.observed_state import ObservedState
from tests.kubeletplugin.wait import until

FUNCTION = "fpga-0-aes-at-0"
OTHER = "fpga-0-aes-at-1"
CONDITIONS = BindingConditions.of_driver(DriverName(DRIVER))
LOADED, FAILED = "gpu.kerf.dev/Loaded", "gpu.kerf.dev/LoadFailed"
POOLS = {"node-1/fpga", "node-1/gpu"}


def waiting(name: str, *devices: str, uid: str = "", share: str | None = None) -> ResourceClaim:
    """A claim whose pod is not bound before its devices are ready."""
    results = [
        replace(result(device, share=share), binding_conditions=(LOADED,), binding_failure_conditions=(FAILED,))
        for device in devices
    ]
    return claim(name, *results, uid=uid)


def seen(held: ResourceClaim) -> AllocatedClaim:
    return AllocatedClaim(metadata=held.metadata, status=held.status)


@dataclass
class EarlyPreparationFixture:
    """The early preparation of one node with fakes of its surroundings."""

    core: PluginCore
    state: ObservedState
    early_preparer: EarlyPreparer
    clock: list[float]
    """One entry: monotonic seconds."""
    now: list[float]
    """The same for Unix time."""

    @property
    def health_tracker(self) -> DeviceHealthTracker:
        return self.state.health

    @property
    def cluster(self) -> FakeCluster:
        return self.core.cluster

    @property
    def informer(self) -> FakeClaimInformer:
        assert self.cluster.claim_informer is not None
        return self.cluster.claim_informer

    def allocate(self, held: ResourceClaim) -> None:
        self.cluster.add(held)
        self.informer.put(seen(held))

    def to_reported_devices(self) -> list[tuple[str, str, str]]:
        """Claim, the condition that is true, its message."""
        return [
            (name, condition.type, condition.message)
            for name, devices in self.cluster.written
            for device in devices
            for condition in device.conditions
            if condition.status == "True" and condition.type in CONDITIONS.types
        ]

    def made(self) -> list[str]:
        return list(self.core.backend.made)


@asynccontextmanager
async def early_preparation(
    root: Path, *, retry_s: float = 15, ask_again_s: float = ASK_AGAIN_S
) -> AsyncIterator[EarlyPreparationFixture]:
    clock, now = [10.0], [1000.0]
    async with plugin_core(root, FakeCluster()) as core, anyio.create_task_group() as group:
        group.cancel_scope.deadline = anyio.current_time() + LONGEST_S
        state = ObservedState(
            core.state.records, devices=core.state.devices, now=lambda: now[0], clock=lambda: clock[0]
        )
        state.suspects = core.state.suspects
        early_preparer = EarlyPreparer(
            settings=dataclasses.replace(SETTINGS, load_retry_s=retry_s),
            state=state,
            cluster=core.cluster,
            preparer=core.preparer,
            status_writer=core.status_writer,
            checkpoint=core.checkpoint,
            now=lambda: now[0],
            retries=Backoff(first_s=0.001, factor=1, limit_s=0.001, jitter=0),
            ask_again_s=ask_again_s,
        )
        group.start_soon(early_preparer.run)
        await early_preparer.synced.wait()
        yield EarlyPreparationFixture(core, state, early_preparer, clock, now)
        assert not group.cancel_scope.cancel_called, "what the test waits for never came"
        group.cancel_scope.cancel()


async def test_a_claim_that_waits_is_made_ready_and_told_and_the_kubelet_finds_it(tmp_path: Path) -> None:
    async with early_preparation(tmp_path) as fixture:
        held = waiting("crypto", FUNCTION)
        fixture.allocate(held)
        await until(lambda: bool(fixture.cluster.written))
        assert fixture.to_reported_devices() == [("crypto", LOADED, "the devices of the claim are ready")]
        record = fixture.core.checkpoint.get(ref(held).uid)
        assert record is not None
        assert record.awaits_pod
        serial = next(iter(fixture.core.backend.made.values())).serial
        record = await fixture.core.preparer.prepare_claim(ref(held))
        assert not record.awaits_pod, "its pod has come"
        assert record.devices[0].handle is not None
        assert record.devices[0].handle["serial"] == serial, "nothing was loaded again"
        assert fixture.core.checkpoint.get(ref(held).uid) == record


async def test_claims_that_do_not_wait_for_this_node_are_left_alone(tmp_path: Path) -> None:
    elsewhere = waiting("elsewhere", FUNCTION)
    assert elsewhere.status.allocation is not None
    results = tuple(replace(each, pool="node-2/fpga") for each in elsewhere.status.allocation.devices.results)
    devices = replace(elsewhere.status.allocation.devices, results=results)
    status = replace(elsewhere.status, allocation=replace(elsewhere.status.allocation, devices=devices))
    async with early_preparation(tmp_path) as fixture:
        for held in (replace(elsewhere, status=status), claim("at-once", FUNCTION), claim("pending")):
            fixture.allocate(held)
        await anyio.wait_all_tasks_blocked()
        assert (fixture.cluster.written, fixture.made()) == ([], [])


async def test_a_load_that_fails_in_vain_sends_the_pod_elsewhere_and_sets_the_card_back(tmp_path: Path) -> None:
    async with early_preparation(tmp_path) as fixture:
        fixture.core.backend.fail("prepare", FUNCTION, PermanentError("the image is for another shell"))
        fixture.allocate(waiting("crypto", FUNCTION))
        await until(lambda: bool(fixture.cluster.written))
        assert fixture.to_reported_devices() == [("crypto", FAILED, f"{FUNCTION}: the image is for another shell")]
        assert fixture.made() == []
        assert dict(fixture.core.checkpoint.records) == {}
        fixture.allocate(waiting("again", OTHER))
        await until(lambda: len(fixture.cluster.written) == 2)
        assert fixture.to_reported_devices()[1] == ("again", FAILED, f"{FUNCTION}: the image is for another shell")
        assert fixture.core.backend.calls == [("prepare", FUNCTION), ("abandon", FUNCTION)], "not even tried"
        fixture.allocate(waiting("bare", "fpga-0-slot-1"))
        await until(lambda: len(fixture.cluster.written) == 3)
        assert fixture.to_reported_devices()[2][1] == LOADED, "another function"
        fixture.clock[0] += 300
        fixture.now[0] -= 86_400  # somebody has set the node's clock
        fixture.allocate(waiting("later", FUNCTION))
        await until(lambda: len(fixture.cluster.written) == 4)
        assert fixture.to_reported_devices()[3][1] == LOADED


@pytest.mark.parametrize(
    "refused",
    [
        InvalidDocumentError("claim a/b", [Problem("", "namespace a may not use aes")]),
        UnsuitableClaimError("the device stands for zstd, but namespace a may not use aes"),
    ],
    ids=["another namespace's", "another function"],
)
async def test_a_claim_that_may_not_have_a_function_keeps_it_from_no_other_claim(
    tmp_path: Path, refused: KerfError
) -> None:
    """FP-06 (the allow-list of namespaces, before a pod is bound). A claim with a wrong FpgaConfig had the card tainted
    for five minutes.
    """
    async with early_preparation(tmp_path) as fixture:
        fixture.core.backend.fail("prepare", FUNCTION, refused)
        fixture.allocate(waiting("forbidden", FUNCTION))
        await until(lambda: bool(fixture.cluster.written))
        [(name, condition, message)] = fixture.to_reported_devices()
        assert (name, condition) == ("forbidden", FAILED)
        assert "namespace a may not use aes" in message
        fixture.cluster.claims.clear()
        fixture.allocate(waiting("allowed", FUNCTION))
        await until(lambda: len(fixture.cluster.written) == 2)
        assert fixture.to_reported_devices()[1][:2] == ("allowed", LOADED)


async def test_one_device_that_could_not_be_loaded_is_enough(tmp_path: Path) -> None:
    async with early_preparation(tmp_path) as fixture:
        fixture.core.backend.fail("prepare", FUNCTION, PermanentError("the image is for another shell"))
        fixture.allocate(waiting("crypto", FUNCTION))
        await until(lambda: bool(fixture.cluster.written))
        fixture.allocate(waiting("both", "fpga-0-slot-1", FUNCTION))
        await until(lambda: len(fixture.cluster.written) == 2)
        name, devices = fixture.cluster.written[1]
        assert name == "both"
        assert FAILED in {condition.type for device in devices for condition in device.conditions}
        assert fixture.made() == []


async def test_a_load_that_fails_is_tried_again_before_the_pod_goes_elsewhere(tmp_path: Path) -> None:
    async with early_preparation(tmp_path) as fixture:
        fixture.core.backend.fail("prepare", FUNCTION, HardwareBusyError("busy"))
        fixture.allocate(waiting("crypto", FUNCTION))
        await until(lambda: bool(fixture.cluster.written))
        assert fixture.to_reported_devices() == [("crypto", LOADED, "the devices of the claim are ready")]


async def test_one_failure_in_vain_is_enough_to_send_the_pod_elsewhere(tmp_path: Path) -> None:
    async with early_preparation(tmp_path) as fixture:
        fixture.core.backend.fail("prepare", OTHER, HardwareBusyError("busy"))
        fixture.core.backend.fail("prepare", FUNCTION, PermanentError("the image is for another shell"))
        fixture.allocate(waiting("both", OTHER, FUNCTION))
        await until(lambda: bool(fixture.cluster.written))
        assert {condition for _, condition, _ in fixture.to_reported_devices()} == {FAILED}


async def test_patience_has_an_end(tmp_path: Path) -> None:
    async with early_preparation(tmp_path, retry_s=0) as fixture:
        fixture.core.backend.fail("prepare", FUNCTION, HardwareBusyError("busy"))
        fixture.allocate(waiting("crypto", FUNCTION))
        await until(lambda: bool(fixture.cluster.written))
        assert fixture.to_reported_devices() == [("crypto", FAILED, f"{FUNCTION}: busy")]


@pytest.mark.parametrize("way", ["deallocated", "deleted", "made anew"])
async def test_what_was_loaded_for_a_pod_that_never_came_is_taken_back_at_once(way: str, tmp_path: Path) -> None:
    async with early_preparation(tmp_path) as fixture:
        held = waiting("crypto", FUNCTION)
        fixture.allocate(held)
        await until(lambda: bool(fixture.cluster.written))
        suspicion = fixture.core.state.suspects.next_event
        if way == "deleted":
            fixture.cluster.remove(ref(held))
            fixture.informer.remove(seen(held))
        else:
            fixture.allocate(claim("crypto", uid="another" if way == "made anew" else ""))
        await suspicion.wait()
        suspects = fixture.core.state.suspects.take()
        assert suspects == {ref(held).uid}
        await fixture.core.garbage_collector.collect(suspects)
        assert fixture.made() == [], "without the grace that running pods get"


@pytest.mark.parametrize("now", [None, claim("crypto"), claim("crypto", FUNCTION, uid="another")])
async def test_a_claim_that_is_gone_before_the_cache_shows_it_is_told_nothing(
    now: ResourceClaim | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", work_queue.__name__)
    async with early_preparation(tmp_path) as fixture:
        if now is not None:
            fixture.cluster.add(now)
        fixture.informer.put(seen(waiting("crypto", FUNCTION)))
        await until(lambda: fixture.cluster.reads == 1)
        await anyio.wait_all_tasks_blocked()
        assert (fixture.cluster.written, fixture.made(), fixture.cluster.reads) == ([], [], 1)
        assert [each for each in caplog.records if each.name == work_queue.__name__] == [], "it is no failure"


async def test_a_successor_tells_what_its_predecessor_made_ready(tmp_path: Path) -> None:
    held = waiting("crypto", FUNCTION)
    async with early_preparation(tmp_path) as fixture:
        fixture.cluster.write_errors.append(ConflictError("PATCH", 409, "Conflict", "changed"))
        fixture.allocate(held)
        await until(lambda: not fixture.cluster.write_errors)
        assert fixture.cluster.written == []
    async with early_preparation(tmp_path) as fixture:
        fixture.allocate(held)
        await until(lambda: bool(fixture.cluster.written))
        assert fixture.to_reported_devices()[0][:2] == ("crypto", LOADED)
        assert fixture.core.backend.calls == [], "it was there already"


@pytest.mark.parametrize(
    "refused",
    [
        ForbiddenError("PATCH", 403, "Forbidden", "resourceclaims/driver"),
        StatusDroppedError(ObjectRef("default", "crypto")),
    ],
    ids=["a permission is missing", "the API server drops the field"],
)
async def test_a_plugin_that_may_not_tell_stops_making_pods_wait(
    refused: Exception, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with early_preparation(tmp_path) as fixture:
        fixture.cluster.write_errors.append(refused)
        fixture.allocate(waiting("crypto", FUNCTION))
        await until(lambda: not fixture.state.prepares_early)
        assert "as claims cannot be written: " in caplog.text


async def test_a_refused_write_stops_it_for_a_while_only(tmp_path: Path) -> None:
    """A webhook refused one namespace, and nothing was prepared early any more until somebody restarted the plugin."""
    async with early_preparation(tmp_path, ask_again_s=0.01) as fixture:
        fixture.cluster.write_errors.append(ForbiddenError("PATCH", 403, "Forbidden", "a webhook"))
        fixture.allocate(waiting("crypto", FUNCTION))
        await until(lambda: bool(fixture.cluster.written))
        assert fixture.state.prepares_early
        assert fixture.to_reported_devices()[0][:2] == ("crypto", LOADED)


async def test_what_is_wrong_with_a_claim_is_not_told_another_one_with_the_same_device(tmp_path: Path) -> None:
    """Both devices of a claim had failed, and the next claim for one of them was told of the other, with names."""
    async with early_preparation(tmp_path) as fixture:
        refused = InvalidDocumentError("claim secret/layoffs", [Problem("", "namespace secret may not use aes")])
        fixture.core.backend.fail("prepare", OTHER, refused)
        fixture.core.backend.fail("prepare", FUNCTION, PermanentError("the image is for another shell"))
        fixture.allocate(waiting("layoffs", FUNCTION, OTHER))
        await until(lambda: bool(fixture.cluster.written))
        assert "namespace secret may not use aes" in fixture.to_reported_devices()[0][2], "its own"
        fixture.allocate(waiting("next", FUNCTION))
        await until(lambda: len(fixture.cluster.written) == 2)
        [(_, condition, message)] = [each for each in fixture.to_reported_devices() if each[0] == "next"]
        assert (condition, "another shell" in message, "secret" in message) == (FAILED, True, False)


def test_a_claim_waits_until_every_device_is_told() -> None:
    held = seen(waiting("crypto", FUNCTION, "gpu-0"))
    results = find_awaited_devices(held.status, DRIVER, POOLS, CONDITIONS)
    assert [each.device for each in results] == [FUNCTION, "gpu-0"]
    for failure in (None, "in vain"):
        devices = build_device_statuses(results, CONDITIONS, failure=failure, now=0)
        half = replace(held.status, devices=devices[:1])
        assert find_awaited_devices(half, DRIVER, POOLS, CONDITIONS) == results
        assert find_awaited_devices(replace(held.status, devices=devices), DRIVER, POOLS, CONDITIONS) == ()
    unsaid = AllocatedDeviceStatus(
        driver=DRIVER, pool="node-1/fpga", device=FUNCTION, conditions=(Condition(type=LOADED, status="False"),)
    )
    assert find_awaited_devices(replace(held.status, devices=(unsaid,)), DRIVER, POOLS, CONDITIONS) == results


def test_what_a_claim_is_told_is_complete() -> None:
    (device,) = build_device_statuses(
        [replace(result(FUNCTION, share="s"), binding_conditions=(LOADED,))], CONDITIONS, failure="x", now=60
    )
    assert (device.driver, device.pool, device.device, device.share_id) == (
        DRIVER,
        "node-1/fpga",
        FUNCTION,
        share_id("s"),
    )
    assert [(one.type, one.status, one.reason, one.message, one.last_transition_time) for one in device.conditions] == [
        (LOADED, "False", "LoadFailed", "x", "1970-01-01T00:01:00Z"),
        (FAILED, "True", "LoadFailed", "x", "1970-01-01T00:01:00Z"),
    ]


@pytest.mark.parametrize(
    ("function", "at_least_s", "expected"),
    [("aes", 0.2, True), ("aes", 0.3, False), (None, 0.2, True), (None, 0.3, False)],
)
def test_which_functions_load_slowly(function: str | None, at_least_s: float, expected: bool) -> None:
    partition = Partition(kind="fpga", card_uuid="FPGA-0", placement=Placement(0, 1), function=function)
    assert loads_slowly(fpga(0), partition, at_least_s) is expected
    assert not loads_slowly(gpu(0), Partition(kind="gpu", card_uuid="GPU-0"), 0)


def test_only_slow_devices_get_conditions() -> None:
    (pool,) = [pool for pool in NODE_DEVICES.pools if pool.name.endswith("fpga")]
    devices = [
        device for content in add_binding_conditions(pool, {FUNCTION}, CONDITIONS).slices for device in content.devices
    ]
    conditional = {device.name: device for device in devices if device.binding_conditions}
    assert set(conditional) == {FUNCTION}
    assert conditional[FUNCTION].binding_conditions == (LOADED,)
    assert conditional[FUNCTION].binding_failure_conditions == (FAILED,)
