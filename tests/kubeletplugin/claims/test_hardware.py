"""Hardware work: cards in parallel, each card one call at a time, one failure hides no other."""

from typing import Any

import anyio
import pytest

from api.errors import PermanentError
from api.model.prepared import PreparedDevice
from driver.kubeletplugin.backends.base import HardwareBusyError
from driver.kubeletplugin.claims.hardware import DevicesFailedError, HardwareExecutor
from tests.fakes.cards import gpu
from tests.fakes.claims import CONFIGURATIONS, claim, ref
from tests.fakes.hardware import FakeBackend
from tests.kubeletplugin.records import device, record

CLAIM = ref(claim("training"))
FIRST, SECOND = device("gpu-0-1g-1gb-at-0"), device("gpu-0-1g-1gb-at-1", start=1)
ELSEWHERE = device("gpu-1-1g-1gb-at-0", card="GPU-1")


def executor(timeout_s: float = 60) -> tuple[FakeBackend, HardwareExecutor]:
    backend = FakeBackend([gpu(0), gpu(1)])
    return backend, HardwareExecutor({"fake": backend}, CONFIGURATIONS, timeout_s=timeout_s)


def handles(devices: tuple[PreparedDevice, ...]) -> list[Any]:
    return [device.handle for device in devices]


async def test_devices_come_back_in_order_with_their_handles() -> None:
    backend, hardware = executor()
    prepared = await hardware.prepare(CLAIM, [FIRST, ELSEWHERE, SECOND])
    assert [device.share for device in prepared] == [FIRST.share, ELSEWHERE.share, SECOND.share]
    assert all(device.handle is not None for device in prepared)
    assert len(backend.made) == 3


async def test_cards_work_in_parallel_and_each_card_serially() -> None:
    backend, hardware = executor()
    gates = [backend.gate("prepare", device.share.id.device) for device in (FIRST, SECOND, ELSEWHERE)]
    async with anyio.create_task_group() as group:
        group.start_soon(hardware.prepare, CLAIM, [FIRST, SECOND, ELSEWHERE])
        await gates[0].reached.wait()
        await gates[2].reached.wait()
        await anyio.wait_all_tasks_blocked()
        assert not gates[1].reached.is_set()
        for gate in gates:
            gate.opened.set()
    assert backend.most_busy == 2


async def test_a_failure_names_the_device_and_leaves_the_others_done() -> None:
    backend, hardware = executor()
    backend.fail("prepare", SECOND.share.id.device, HardwareBusyError("in use by another client"))
    with pytest.raises(DevicesFailedError, match=r"^gpu-0-1g-1gb-at-1: in use by another client$") as raised:
        await hardware.prepare(CLAIM, [FIRST, SECOND, ELSEWHERE])
    assert [handle is not None for handle in handles(raised.value.devices)] == [True, False, True]
    await hardware.release(CLAIM, raised.value.devices, {})
    assert backend.made == {}
    assert sorted(backend.calls[3:]) == [
        ("abandon", "gpu-0-1g-1gb-at-1"),
        ("unprepare", "gpu-0-1g-1gb-at-0"),
        ("unprepare", "gpu-1-1g-1gb-at-0"),
    ]


async def test_every_failure_is_told() -> None:
    backend, hardware = executor()
    backend.fail("prepare", FIRST.share.id.device, PermanentError("broken"))
    backend.fail("prepare", ELSEWHERE.share.id.device, ZeroDivisionError("oops"))
    with pytest.raises(DevicesFailedError, match=r"gpu-0-1g-1gb-at-0: broken; gpu-1-1g-1gb-at-0: oops"):
        await hardware.prepare(CLAIM, [FIRST, SECOND, ELSEWHERE])


async def test_a_backend_that_hangs_is_given_up_and_its_card_works_on() -> None:
    backend, hardware = executor(timeout_s=0.01)
    backend.gate("prepare", FIRST.share.id.device)
    with pytest.raises(DevicesFailedError, match=r"backend fake gave no answer within 0\.01 s"):
        await hardware.prepare(CLAIM, [FIRST])
    await hardware.prepare(CLAIM, [SECOND])


async def test_a_backend_that_is_no_longer_configured_is_named() -> None:
    _, hardware = executor()
    with pytest.raises(DevicesFailedError, match=r"its backend 'gone' is not configured \(any more\); there is fake"):
        await hardware.release(CLAIM, [device(backend="gone")], {})


async def test_a_device_that_others_share_is_left_to_them() -> None:
    backend, hardware = executor()
    shared, others = device(FIRST.share.id.device, share="one"), device(FIRST.share.id.device, share="other")
    devices = await hardware.prepare(CLAIM, [shared, SECOND])
    await hardware.release(CLAIM, devices, {"uid-of-other": record("other", others)})
    assert [made.device for made in backend.made.values()] == [FIRST.share.id.device]
