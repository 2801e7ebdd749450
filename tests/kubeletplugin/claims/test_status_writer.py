"""What claims got is written to their status, soon where the API server answers, and later where it does not."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kerf_dra.api.model.allocations import AllocatedDeviceStatus
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.names import ClaimRef, DriverName, ObjectRef
from kerf_dra.api.model.prepared import ClaimState, PreparedClaim
from kerf_dra.driver.kube.http.errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    ServerError,
    UnreachableError,
)
from kerf_dra.driver.kubeletplugin.backends.base import CardSample, DeviceSample, Handle
from kerf_dra.driver.kubeletplugin.backends.card_executor import CardExecutor
from kerf_dra.driver.kubeletplugin.claims.allocated_devices import resolve_devices
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import open_checkpoint
from kerf_dra.driver.kubeletplugin.claims.hardware import HardwareExecutor
from kerf_dra.driver.kubeletplugin.claims.status_writer import ASK_AGAIN_S, DeviceStatusWriter
from kerf_dra.driver.kubeletplugin.cluster.base import StatusDroppedError
from kerf_dra.driver.kubeletplugin.cluster.claim_end import SeenClaims
from kerf_dra.driver.kubeletplugin.inventory.binding_conditions import BindingConditions, build_device_statuses
from kerf_dra.driver.runtime import metrics, work_queue
from kerf_dra.driver.runtime.backoff import Backoff
from kerf_dra.driver.runtime.concurrency import LONGEST_YIELD_S, UnansweredCalls
from tests.fakes.claims import CONFIGURATIONS, DRIVER, claim, ref, result
from tests.fakes.cluster import FakeCluster
from tests.fakes.hardware import FakeBackend
from tests.kubeletplugin.claim_fixture import CARDS, NODE_DEVICES
from tests.kubeletplugin.observed_state import ObservedState
from tests.runtime.virtual_time import VIRTUAL_TIME

BOOT = "boot-1"
REMOVAL_S = 10.0
SLICE = "gpu-0-1g-1gb-at-0"
CONDITIONS = BindingConditions.of_driver(DriverName(DRIVER))
FORBIDDEN = ForbiddenError("PATCH claim", 403, "Forbidden", "cannot patch resourceclaims/status")
DROPPED = StatusDroppedError(ObjectRef("default", "training"))


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


@dataclass
class WriterFixture:
    """The writer of a node, over records that the test makes."""

    cluster: FakeCluster
    writer: DeviceStatusWriter
    hardware: HardwareExecutor
    unanswered: UnansweredCalls
    records: dict[str, PreparedClaim] = field(default_factory=dict)
    is_running: bool = False

    def prepare(self, held: ResourceClaim, *, boot_id: str = BOOT) -> None:
        """Make the record of a claim that is prepared."""
        devices = resolve_devices(held, DRIVER, CONFIGURATIONS, NODE_DEVICES)
        handles = tuple(
            replace(device, handle={"device": device.share.id.device, "serial": 1, "uuid": "MIG-1"}, cdi_ids=("a/b=c",))
            for device in devices
        )
        self.records[held.metadata.uid] = PreparedClaim(
            claim=ref(held), state=ClaimState.PREPARED, boot_id=boot_id, devices=handles
        )

    async def publish(self, held: ResourceClaim) -> None:
        """Have a prepare of ``held``, as it was read for it, end, and wait for its first write."""
        self.writer.request(ref(held), held)
        if self.is_running:
            await settle()
        else:
            async with running(self):
                pass

    def held(self, name: str = "training", namespace: str = "default") -> ResourceClaim:
        return self.cluster.claims[namespace, name]

    def shown(self, name: str = "training", namespace: str = "default") -> dict[str, set[str]]:
        """Return the true conditions by device; those with data have ``data`` beside them."""
        return {
            entry.device: {one.type for one in entry.conditions if one.status == "True"}
            | ({"data"} if entry.data else set())
            for entry in self.held(name, namespace).status.devices
        }


class MeasuredBackend(FakeBackend):
    """A backend that can be sampled."""

    def sample(self, card_uuid: str, handles: Sequence[Handle]) -> CardSample:
        del card_uuid
        return CardSample(devices=(DeviceSample(),) * len(handles))


def build_fixture(root: Path, *, backend: type[FakeBackend] = FakeBackend, is_sampling: bool = True) -> WriterFixture:
    cluster = FakeCluster()
    records: dict[str, PreparedClaim] = {}
    unanswered = UnansweredCalls()
    with open_checkpoint(root, boot_id=BOOT) as checkpoint:
        executor = CardExecutor({"fake": backend(CARDS)}, call_timeout_s=60, discovery_timeout_s=60)
        hardware = HardwareExecutor(executor, CONFIGURATIONS, checkpoint, boot_id=BOOT)
        writer = DeviceStatusWriter(
            driver=DriverName(DRIVER),
            boot_id=BOOT,
            cluster=cluster,
            state=ObservedState(records, devices=NODE_DEVICES),
            hardware=hardware,
            now=lambda: 1000.0,
            removal_s=REMOVAL_S,
            seen=SeenClaims(),
            unanswered=unanswered,
            is_sampling=is_sampling,
            retries=Backoff(first_s=1, factor=2, limit_s=300, jitter=0),
        )
    return WriterFixture(cluster, writer, hardware, unanswered, records)


@asynccontextmanager
async def running(fixture: WriterFixture) -> AsyncIterator[None]:
    async with anyio.create_task_group() as group:
        group.start_soon(fixture.writer.run)
        fixture.is_running = True
        await settle()
        yield
        fixture.is_running = False
        group.cancel_scope.cancel()


async def settle() -> None:
    await anyio.sleep(0.001)


def count(outcome: str) -> float:
    labels = {"driver": DRIVER, "outcome": outcome}
    return metrics.REGISTRY.get_sample_value("kerf_claim_status_writes_total", labels) or 0.0


@pytest.mark.parametrize(
    ("backend", "is_sampling", "sampled"),
    [(MeasuredBackend, True, True), (MeasuredBackend, False, None), (FakeBackend, True, None)],
)
async def test_a_device_is_called_sampled_where_its_backend_can_be_and_that_is_on(
    backend: type[FakeBackend], is_sampling: bool, sampled: bool | None, tmp_path: Path
) -> None:
    fixture = build_fixture(tmp_path, backend=backend, is_sampling=is_sampling)
    held = claim("training", SLICE)
    fixture.cluster.add(held)
    fixture.prepare(held)
    await fixture.publish(held)
    (entry,) = fixture.held().status.devices
    assert (entry.data or {}).get("sampled") is sampled


async def test_a_prepared_claim_shows_what_it_got_with_one_write(tmp_path: Path) -> None:
    fixture = build_fixture(tmp_path)
    held = claim("training", SLICE)
    fixture.cluster.add(held)
    fixture.prepare(held)
    await fixture.publish(held)
    (entry,) = fixture.held().status.devices
    assert entry.data == {
        "apiVersion": "kerf.dev/v1alpha1",
        "kind": "DeviceStatus",
        "uuid": "MIG-1",
        "card": "GPU-0",
        "pciBusID": "0000:00:00.0",
        "profile": "1g.1gb",
        "cdiDevices": ["a/b=c"],
    }
    assert [(one.type, one.status, one.last_transition_time) for one in entry.conditions] == [
        ("Ready", "True", "1970-01-01T00:16:40Z")
    ]
    assert fixture.cluster.reads == 0, "the claim that was read for the prepare is enough"
    await fixture.publish(fixture.held())
    assert len(fixture.cluster.written) == 1, "it shows that already"


@pytest.mark.parametrize(
    ("ends_after_s", "written_after_s"), [(0.5, 0.5), (60.0, LONGEST_YIELD_S)], ids=["short", "hangs"]
)
async def test_the_write_waits_for_the_answer_of_another_call_and_not_for_one_that_hangs(
    ends_after_s: float, written_after_s: float, tmp_path: Path
) -> None:
    fixture = build_fixture(tmp_path)
    held = claim("training", SLICE)
    fixture.cluster.add(held)
    fixture.prepare(held)

    async def wait_for_an_answer() -> None:
        with fixture.unanswered.counted():
            await anyio.sleep(ends_after_s)

    began = anyio.current_time()
    async with anyio.create_task_group() as calls:
        calls.start_soon(wait_for_an_answer)
        await anyio.lowlevel.checkpoint()
        async with running(fixture):
            await fixture.publish(held)
            await anyio.sleep_until(began + written_after_s - 0.1)
            assert not fixture.cluster.written, "a caller waits for its answer"
            await anyio.sleep_until(began + written_after_s + 0.1)
            assert len(fixture.cluster.written) == 1
        calls.cancel_scope.cancel()


async def test_what_a_claim_showed_when_it_was_read_may_be_gone_when_it_is_prepared(tmp_path: Path) -> None:
    fixture = build_fixture(tmp_path)
    held = claim("training", SLICE)
    fixture.cluster.add(held)
    fixture.prepare(held)
    await fixture.publish(held)
    read, record = fixture.held(), fixture.records.pop(ref(held).uid)
    async with running(fixture):
        fixture.writer.request(ref(held))
        await settle()
        assert fixture.shown() == {}
        fixture.records[ref(held).uid] = record
        await fixture.publish(read)
        assert fixture.shown() == {SLICE: {"Ready", "data"}}


async def test_what_another_has_written_since_the_claim_was_read_stays(tmp_path: Path) -> None:
    fixture = build_fixture(tmp_path)
    read = claim("training", SLICE, result("nic", driver="nic.example"))
    fixture.cluster.add(read)
    loaded = build_device_statuses([result(SLICE)], CONDITIONS, failure=None, now=0)
    await fixture.writer.write(read, loaded)
    other = AllocatedDeviceStatus(driver="nic.example", pool="node-1/nic", device="nic", data={"ip": "10.0.0.1"})
    now = fixture.held()
    fixture.cluster.add(replace(now, status=replace(now.status, devices=(*now.status.devices, other))))
    fixture.prepare(read)
    await fixture.publish(read)
    assert fixture.shown() == {SLICE: {CONDITIONS.loaded, "Ready", "data"}, "nic": {"data"}}
    assert fixture.cluster.reads == 1
    await fixture.writer.write(fixture.held(), build_device_statuses([result(SLICE)], CONDITIONS, failure="no", now=0))
    assert fixture.shown()[SLICE] == {CONDITIONS.failed, "Ready", "data"}, "and nobody else's write takes it away"


async def test_a_claim_that_is_unprepared_shows_nothing_but_its_binding_conditions(tmp_path: Path) -> None:
    fixture = build_fixture(tmp_path)
    for name in ("plain", "awaited"):
        held = claim(name, SLICE)
        fixture.cluster.add(held)
        fixture.prepare(held)
        loads = build_device_statuses([result(SLICE)], CONDITIONS, failure=None, now=0)
        await fixture.writer.write(held, loads if name == "awaited" else ())
    async with running(fixture):
        for name in ("plain", "awaited"):
            released = replace(fixture.records[f"uid-of-{name}"], state=ClaimState.RELEASING)
            fixture.records[f"uid-of-{name}"] = released
            fixture.writer.request(released.claim)
        await settle()
        assert (fixture.shown("plain"), fixture.shown("awaited")) == ({}, {SLICE: {CONDITIONS.loaded}})


async def test_what_an_unprepared_claim_shows_is_removed_a_while_later_and_costs_no_write_if_it_is_gone_by_then(
    tmp_path: Path,
) -> None:
    fixture = build_fixture(tmp_path)
    for name in ("kept", "deleted"):
        fixture.cluster.add(claim(name, SLICE))
        fixture.prepare(fixture.held(name))
        await fixture.publish(fixture.held(name))
    written = len(fixture.cluster.written)
    async with running(fixture):
        for name in ("kept", "deleted"):
            fixture.writer.request_removal(fixture.records.pop(f"uid-of-{name}").claim)
        read = fixture.cluster.reads
        await anyio.sleep(REMOVAL_S - 1)
        assert (len(fixture.cluster.written), fixture.cluster.reads) == (written, read)
        fixture.cluster.remove(ClaimRef("default", "deleted", "uid-of-deleted"))
        await anyio.sleep(1)
        await settle()
        assert (len(fixture.cluster.written), fixture.shown("kept")) == (written + 1, {})


@pytest.mark.parametrize(
    "error", [UnreachableError("PATCH claim", "refused"), RuntimeError("a backend's edits failed")], ids=repr
)
async def test_a_write_that_fails_is_tried_again_with_back_off(error: Exception, tmp_path: Path) -> None:
    fixture = build_fixture(tmp_path)
    held = claim("training", SLICE)
    fixture.cluster.add(held)
    fixture.prepare(held)
    fixture.cluster.write_errors += [error] * 3
    async with running(fixture):
        await fixture.publish(held)
        await anyio.sleep(1 + 2)
        assert fixture.cluster.written == []
        await anyio.sleep(4)
        await settle()
        assert fixture.shown() == {SLICE: {"Ready", "data"}}


async def test_what_the_api_server_finds_invalid_is_not_tried_for_ever(tmp_path: Path) -> None:
    fixture = build_fixture(tmp_path)
    held = claim("training", SLICE)
    fixture.cluster.add(held)
    fixture.prepare(held)
    invalid = InvalidError("PATCH claim", 422, "Invalid", "must be an allocated device in the claim")
    fixture.cluster.write_errors += [invalid] * 10
    async with running(fixture):
        await anyio.sleep(3600)
    assert len(fixture.cluster.write_errors) == 9


@pytest.mark.parametrize(("error", "outcome"), [(FORBIDDEN, "forbidden"), (DROPPED, "dropped")])
async def test_where_it_may_not_be_written_it_is_said_once_and_asked_again_ten_minutes_later(
    error: Exception, outcome: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fixture = build_fixture(tmp_path)
    claims = [claim(f"training-{number}", SLICE) for number in range(5)]
    fixture.cluster.write_errors += [error] * 2
    before = count(outcome)
    async with running(fixture):
        for held in claims:
            fixture.cluster.add(held)
            fixture.prepare(held)
            await fixture.publish(held)
        assert len(fixture.cluster.write_errors) == 1, "one claim is enough to know"
        fixture.writer.request(ClaimRef("other", "gone", "uid-of-gone"))  # of which there is nothing to write
        await anyio.sleep(ASK_AGAIN_S + 1)
        assert (fixture.cluster.write_errors, fixture.cluster.written) == ([], [])
        assert count(outcome) == before + 2
        await anyio.sleep(ASK_AGAIN_S + 1)
        assert all(fixture.shown(held.metadata.name) == {SLICE: {"Ready", "data"}} for held in claims)
    assert sum("the status of claims does not show their devices" in line for line in caplog.messages) == 1
    assert str(error) in caplog.text


async def test_where_it_may_not_be_written_nothing_is_kept_of_claims_that_are_unprepared(tmp_path: Path) -> None:
    """Beside one that stayed, a plugin without the permission kept every claim of its life to ask about it again."""
    fixture = build_fixture(tmp_path)
    fixture.cluster.write_errors += [FORBIDDEN] * 10
    stays, *jobs = [claim(f"training-{number}", SLICE) for number in range(30)]
    async with running(fixture):
        for held in (stays, *jobs):
            fixture.cluster.add(held)
            fixture.prepare(held)
            await fixture.publish(held)
        for held in jobs:
            del fixture.records[held.metadata.uid]
            fixture.writer.request(ref(held))
        await anyio.sleep(2 * ASK_AGAIN_S + 1)
        fixture.cluster.write_errors.clear()
        asked = fixture.cluster.reads
        await anyio.sleep(2 * ASK_AGAIN_S)
        assert fixture.cluster.reads == asked + 1
        assert fixture.shown(stays.metadata.name) == {SLICE: {"Ready", "data"}}


async def test_a_namespace_that_refuses_does_not_keep_others_from_being_written(tmp_path: Path) -> None:
    fixture = build_fixture(tmp_path)
    refused, taken = claim("refused", SLICE), claim("taken", SLICE)
    taken = replace(taken, metadata=replace(taken.metadata, namespace="other"))
    fixture.cluster.write_errors.append(FORBIDDEN)
    for held in (refused, taken):
        fixture.cluster.add(held)
        fixture.prepare(held)
        await fixture.publish(held)
    assert (fixture.shown("refused"), fixture.shown("taken", "other")) == ({}, {SLICE: {"Ready", "data"}})


async def test_a_claim_that_is_deleted_before_its_write_is_no_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", work_queue.__name__)
    fixture = build_fixture(tmp_path)
    fixture.cluster.write_errors.append(NotFoundError("PATCH", 404, "NotFound", "gone"))
    async with running(fixture):
        for name in ("gone", "stays"):
            held = claim(name, SLICE)
            fixture.cluster.add(held)
            fixture.prepare(held)
            await fixture.publish(held)
        assert (fixture.shown("gone"), fixture.shown("stays")) == ({}, {SLICE: {"Ready", "data"}})
    assert [each for each in caplog.records if each.name == work_queue.__name__] == []


async def test_each_namespace_that_refuses_costs_one_write_in_ten_minutes(tmp_path: Path) -> None:
    fixture = build_fixture(tmp_path)
    fixture.cluster.write_errors += [FORBIDDEN] * 3
    for namespace in ("one", "two", "three", "one", "two"):
        held = claim(f"training-{len(fixture.records)}", SLICE)
        held = replace(held, metadata=replace(held.metadata, namespace=namespace))
        fixture.cluster.add(held)
        fixture.prepare(held)
        await fixture.publish(held)
    assert (fixture.cluster.write_errors, fixture.cluster.written) == ([], [])


async def test_after_a_restart_claims_show_what_is_prepared_now_and_nothing_that_was_of_an_earlier_boot(
    tmp_path: Path,
) -> None:
    fixture = build_fixture(tmp_path)
    for name in ("missed", "rebooted"):
        fixture.cluster.add(claim(name, SLICE))
        fixture.prepare(fixture.held(name))
    await fixture.publish(fixture.held("rebooted"))
    fixture.prepare(fixture.held("rebooted"), boot_id="boot-0")
    async with running(fixture):
        assert (fixture.shown("missed"), fixture.shown("rebooted")) == ({SLICE: {"Ready", "data"}}, {})


async def test_a_claim_that_was_made_anew_with_the_same_name_is_left_alone(tmp_path: Path) -> None:
    fixture = build_fixture(tmp_path)
    anew = claim("training", SLICE, uid="another")
    fixture.cluster.add(anew)
    fixture.prepare(claim("training", SLICE))
    async with running(fixture):
        fixture.writer.request(ClaimRef("default", "gone", "uid-of-gone"))
        await settle()
    assert (fixture.cluster.reads, fixture.cluster.written) == (2, [])


async def test_where_claims_have_no_place_for_it_nothing_is_asked(tmp_path: Path) -> None:
    fixture = build_fixture(tmp_path)
    fixture.cluster.has_device_status = False
    held = claim("training", SLICE)
    fixture.cluster.add(held)
    fixture.prepare(held)
    async with running(fixture):
        await fixture.publish(held)
        fixture.writer.request(ref(held))
        await settle()
    assert (fixture.cluster.reads, fixture.cluster.written) == (0, [])


OTHER_SLICE = "gpu-0-1g-1gb-at-1"
TRANSIENT = (
    UnreachableError("PATCH claim", "refused"),
    ConflictError("PATCH claim", 409, "Conflict", "the object has been modified"),
    ServerError("PATCH claim", 500, "InternalError", "etcd"),
)
EVENTS = ("prepare", "prepare with an old read", "unprepare", "allocate anew", "delete", "touch", "fail", "wait")


def happen(fixture: WriterFixture, event: str, number: int) -> ResourceClaim | None:
    """Have something happen to the claim; returns what a prepare has read of it."""
    held = fixture.cluster.claims.get(("default", "training"))
    uid = f"uid-{number}"
    if event == "delete":
        fixture.cluster.claims.clear()
    elif event == "fail":
        fixture.cluster.write_errors += [TRANSIENT[number % len(TRANSIENT)]] * (number % 4)
    elif event == "unprepare":
        for record in [*fixture.records.values()]:
            del fixture.records[record.claim.uid]
            fixture.writer.request_removal(record.claim)
    elif held is None or event == "allocate anew":
        version = str(held.metadata.version + 1 if held is not None else 1)
        anew = claim("training", (SLICE, OTHER_SLICE)[number % 2], uid=uid if held is None else held.metadata.uid)
        fixture.cluster.add(replace(anew, metadata=replace(anew.metadata, resource_version=version)))
    elif event == "touch":
        version = str(held.metadata.version + 1)
        fixture.cluster.add(replace(held, metadata=replace(held.metadata, resource_version=version)))
    elif event.startswith("prepare"):
        fixture.prepare(held)
        return held
    return None


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 11)), max_size=14))
def test_whatever_happens_a_claim_shows_in_the_end_what_its_record_has(events: list[tuple[str, int]]) -> None:
    async def live(root: Path) -> None:
        fixture = build_fixture(root)
        async with running(fixture), anyio.create_task_group() as calls:
            for event, number in events:
                if (read := happen(fixture, event, number)) is not None:
                    if "old" in event:
                        happen(fixture, "touch", number)
                    calls.start_soon(fixture.publish, read)
                await anyio.sleep(number if event == "wait" else 0)
            fixture.cluster.write_errors.clear()
            await anyio.sleep(ASK_AGAIN_S)
        for held in fixture.cluster.claims.values():
            assert held.status.allocation is not None
            allocated = {each.device for each in held.status.allocation.devices.results}
            record = fixture.records.get(held.metadata.uid)
            prepared = {device.share.id.device for device in record.devices} if record is not None else set()
            assert fixture.shown() == {device: {"Ready", "data"} for device in prepared & allocated}

    with TemporaryDirectory() as root:
        name, options = VIRTUAL_TIME
        anyio.run(live, Path(root), backend=name, backend_options=options)
