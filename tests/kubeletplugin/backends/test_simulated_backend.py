"""The simulated backend when nothing goes wrong: what it prepares, refuses, shares and releases."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from api.kerf.v1alpha1 import DeviceConfig, FpgaConfig, GpuConfig, GpuSharing, TimeSlicing
from api.model.names import ShareId
from api.model.quantity import Quantity
from cdi import ContainerEdits, Device, Kind, Spec, validate
from driver.kubeletplugin.backends.base import (
    AllocatedDevice,
    Backend,
    HardwareBusyError,
    HardwareRefusedError,
    HealthChange,
    HealthState,
)
from driver.kubeletplugin.backends.simulated import SimulatedBackend
from driver.kubeletplugin.backends.simulated.steps import HardwareFaults, HardwareStep
from driver.partitions.geometry import Card, FpgaCard, Partition, Placement
from driver.partitions.unit_map import get_unit_map
from tests.kubeletplugin.backends.claims import FPGA_MAKING, GPU_MAKING, GPU_TAKING_BACK, Machine
from tests.partitions.cards import gpu_partition, slots, whole

AES = FpgaConfig(api_version="kerf.dev/v1alpha1", function="aes-gcm")
KEEP = FpgaConfig(api_version="kerf.dev/v1alpha1", release="Keep")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "state")


@pytest.fixture
def gpu(machine: Machine) -> Card:
    return machine.card(0)


@pytest.fixture
def fpga(machine: Machine) -> Card:
    return machine.card(2)


def test_it_is_a_backend(machine: Machine) -> None:
    backend: Backend = machine.open()
    assert backend.name == "simulated"


async def test_cards_are_discovered_with_stable_identities(machine: Machine) -> None:
    cards = machine.open().discover()
    assert [(card.kind, card.index) for card in cards] == [("gpu", 0), ("gpu", 1), ("fpga", 0)]
    assert len({card.uuid for card in cards} | {card.pci_bus_id for card in cards}) == 6
    assert machine.open().discover() == cards


async def test_a_partition_is_made_and_taken_back(machine: Machine, gpu: Card) -> None:
    backend, device = machine.open(), machine.device(gpu_partition(gpu, "1g.10gb", 3))
    handle = await backend.prepare(device, None)
    assert list(backend.held().values()) == [device.partition]
    await backend.unprepare(handle)
    assert backend.held() == {}


async def test_a_handle_is_plain_json_that_serves_a_new_process(machine: Machine, gpu: Card) -> None:
    handle = await machine.open().prepare(machine.device(gpu_partition(gpu, "2g.20gb", 2)), None)
    remembered = json.loads(json.dumps(handle))
    again = machine.open()
    assert again.edits(remembered) == machine.open().edits(handle)
    await again.unprepare(remembered)
    assert again.held() == {}


async def test_preparing_a_claims_device_again_answers_the_same_without_touching_the_card(
    machine: Machine, gpu: Card
) -> None:
    device = machine.device(gpu_partition(gpu, "3g.40gb", 4))
    handle = await machine.open().prepare(device, None)
    machine.clock.slept_s.clear()
    assert await machine.open().prepare(device, None) == handle
    assert machine.clock.slept_s == []


async def test_unpreparing_twice_succeeds(machine: Machine, gpu: Card, fpga: Card) -> None:
    backend = machine.open()
    for partition in (gpu_partition(gpu, "1g.10gb", 0), whole(machine.card(1)), slots(fpga, 0, 1, "aes-gcm")):
        handle = await backend.prepare(machine.device(partition), None)
        await backend.unprepare(handle)
        await backend.unprepare(handle)
    assert backend.held() == {}


async def test_unpreparing_an_old_handle_leaves_the_next_claims_partition_alone(machine: Machine, gpu: Card) -> None:
    """The same placement, even the same instance id: what was prepared before must not be destroyed."""
    backend, partition = machine.open(), gpu_partition(gpu, "1g.10gb", 0)
    old = await backend.prepare(machine.device(partition, "old"), None)
    await backend.unprepare(old)
    new = await backend.prepare(machine.device(partition, "new"), None)
    assert {**new, "owner": ""} == {**old, "owner": ""}
    await backend.unprepare(old)
    assert list(backend.held().values()) == [partition]


async def test_a_handle_of_a_card_that_is_gone_is_nothing_to_take_back(machine: Machine, gpu: Card) -> None:
    backend = machine.open()
    handle = await backend.prepare(machine.device(gpu_partition(gpu, "1g.10gb", 0)), None)
    await backend.unprepare({**handle, "card": "GPU-of-another-day"})
    assert len(backend.held()) == 1


async def test_a_foreign_handle_is_refused(machine: Machine) -> None:
    with pytest.raises(HardwareRefusedError, match="no handle of the simulated backend"):
        await machine.open().unprepare({"kind": "tpu"})


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (lambda card: gpu_partition(card, "3g.40gb", 0), lambda card: gpu_partition(card, "1g.10gb", 3)),
        (lambda card: gpu_partition(card, "1g.10gb+me", 0), lambda card: gpu_partition(card, "1g.10gb+me", 5)),
        (lambda card: gpu_partition(card, "1g.10gb", 6), whole),
        (whole, lambda card: gpu_partition(card, "1g.10gb", 6)),
        (whole, whole),
    ],
)
async def test_what_another_claim_has_is_busy(
    machine: Machine, gpu: Card, first: Callable[[Card], Partition], second: Callable[[Card], Partition]
) -> None:
    backend = machine.open()
    await backend.prepare(machine.device(first(gpu), "first"), None)
    with pytest.raises(HardwareBusyError, match=r"Insufficient Resources|In use by another client"):
        await backend.prepare(machine.device(second(gpu), "second"), None)
    assert list(backend.held().values()) == [first(gpu)]


@pytest.mark.parametrize(("profile", "start"), [("1g.10gb", 7), ("3g.40gb", 2), ("9g.90gb", 0)])
async def test_an_illegal_placement_is_refused(machine: Machine, gpu: Card, profile: str, start: int) -> None:
    partition = Partition(kind=gpu.kind, card_uuid=gpu.uuid, profile=profile, placement=Placement(start, 1))
    with pytest.raises(HardwareRefusedError, match=rf"Invalid Argument: h100-80gb-sxm has no {profile} at {start}:1"):
        await machine.open().prepare(machine.device(partition), None)
    assert machine.open().held() == {}


async def test_a_card_that_is_not_there_is_refused(machine: Machine, gpu: Card, fpga: Card) -> None:
    backend = machine.open()
    wrong = machine.device(Partition(kind=fpga.kind, card_uuid=gpu.uuid))
    with pytest.raises(HardwareRefusedError, match="there is no fpga"):
        await backend.prepare(wrong, None)


async def test_seven_small_partitions_and_their_seven_containers_are_apart(machine: Machine, gpu: Card) -> None:
    backend = machine.open()
    handles = [
        await backend.prepare(machine.device(gpu_partition(gpu, "1g.10gb", start), f"claim-{start}"), None)
        for start in range(7)
    ]
    assert len({handle["visible"] for handle in handles}) == 7
    nodes = [node.path for handle in handles for node in backend.edits(handle).device_nodes if "caps" in node.path]
    assert len(nodes) == len(set(nodes)) == 14


async def test_partitions_made_by_hand_are_never_touched(machine: Machine, gpu: Card) -> None:
    backend, by_hand = machine.open(), gpu_partition(gpu, "3g.40gb", 4)
    await backend.cut_by_hand(machine.device(by_hand))
    with pytest.raises(HardwareBusyError):
        await backend.prepare(machine.device(by_hand), None)
    with pytest.raises(HardwareBusyError):
        await backend.prepare(machine.device(whole(gpu)), None)
    await backend.abandon(machine.device(by_hand))
    handle = await backend.prepare(machine.device(gpu_partition(gpu, "4g.40gb", 0)), None)
    await backend.unprepare(handle)
    assert list(backend.held().values()) == [by_hand]


async def test_a_whole_gpu_can_be_cut_again_after_its_claim(machine: Machine, gpu: Card) -> None:
    backend = machine.open()
    handle = await backend.prepare(machine.device(whole(gpu)), None)
    assert handle["visible"] == gpu.uuid
    await backend.unprepare(handle)
    await backend.prepare(machine.device(gpu_partition(gpu, "1g.10gb", 0)), None)


async def test_a_reboot_takes_partitions_functions_and_nothing_else(machine: Machine, gpu: Card, fpga: Card) -> None:
    backend = machine.open()
    cards = backend.discover()
    handle = await backend.prepare(machine.device(gpu_partition(gpu, "1g.10gb", 0)), None)
    await backend.prepare(machine.device(slots(fpga, 0, 1, "aes-gcm")), None)
    backend.reboot()
    assert backend.held() == {}
    assert backend.discover() == cards
    await backend.unprepare(handle)
    assert await backend.prepare(machine.device(gpu_partition(gpu, "1g.10gb", 0)), None) == handle


# FPGAs


async def loaded(backend: SimulatedBackend) -> dict[Placement, str]:
    (card,) = [card for card in backend.discover() if isinstance(card, FpgaCard)]
    return dict(card.loaded)


async def test_a_function_is_loaded_in_the_makers_time_and_blanked_on_release(machine: Machine, fpga: Card) -> None:
    backend = machine.open()
    handle = await backend.prepare(machine.device(slots(fpga, 2, 1, "aes-gcm")), None)
    assert sum(machine.clock.slept_s) == pytest.approx(0.4)
    assert await loaded(backend) == {Placement(2, 1): "aes-gcm"}
    await backend.unprepare(handle)
    assert await loaded(backend) == {}


async def test_a_kept_function_is_a_warm_hit_for_the_next_claim(machine: Machine, fpga: Card) -> None:
    backend, partition = machine.open(), slots(fpga, 2, 1, "aes-gcm")
    handle = await backend.prepare(machine.device(partition, "first"), KEEP)
    await backend.unprepare(handle)
    assert backend.held() == {}
    assert await loaded(backend) == {Placement(2, 1): "aes-gcm"}
    machine.clock.slept_s.clear()
    await backend.prepare(machine.device(partition, "second"), KEEP)
    assert sum(machine.clock.slept_s) == 0


async def test_a_kept_function_gives_way_to_another(machine: Machine, fpga: Card) -> None:
    backend = machine.open()
    await backend.unprepare(await backend.prepare(machine.device(slots(fpga, 1, 1, "aes-gcm")), KEEP))
    await backend.prepare(machine.device(slots(fpga, 0, 2, "fft-large")), None)
    assert await loaded(backend) == {Placement(0, 2): "fft-large"}


async def test_slots_of_another_claim_are_busy(machine: Machine, fpga: Card) -> None:
    backend = machine.open()
    await backend.prepare(machine.device(slots(fpga, 1, 2, "fft-large"), "first"), None)
    with pytest.raises(HardwareBusyError, match="slots 2-3 are in use"):
        await backend.prepare(machine.device(slots(fpga, 2, 2, "fft-large"), "second"), None)
    await backend.prepare(machine.device(slots(fpga, 3, 1, "zstd"), "third"), None)


async def test_raw_slots_get_the_function_that_the_config_names(machine: Machine, fpga: Card) -> None:
    backend = machine.open()
    await backend.prepare(machine.device(slots(fpga, 1, 3)), AES)
    assert await loaded(backend) == {Placement(1, 1): "aes-gcm"}
    with pytest.raises(HardwareBusyError):
        await backend.prepare(machine.device(slots(fpga, 3, 1, "zstd"), "other"), None)


async def test_a_whole_fpga_holds_all_slots(machine: Machine, fpga: Card) -> None:
    backend = machine.open()
    handle = await backend.prepare(machine.device(whole(fpga)), AES)
    assert [node.path for node in backend.edits(handle).device_nodes] == [f"/dev/dfl-port.{port}" for port in range(4)]
    with pytest.raises(HardwareBusyError):
        await backend.prepare(machine.device(slots(fpga, 3, 1, "zstd"), "other"), None)


REFUSED: list[tuple[str, Callable[[Machine], Partition], DeviceConfig | None, str]] = [
    ("no function", lambda machine: slots(machine.card(2), 0, 1), None, "stands for no function"),
    (
        "two functions",
        lambda machine: slots(machine.card(2), 0, 1, "zstd"),
        AES,
        "stands for zstd, but the claim's FpgaConfig asks for aes-gcm",
    ),
    (
        "an unknown function",
        lambda machine: slots(machine.card(2), 0, 1, "dpu"),
        None,
        "shell quad has no function 'dpu'; it has aes-gcm, fft-large, zstd",
    ),
    (
        "no image for the slots",
        lambda machine: slots(machine.card(2), 1, 1, "zstd"),
        None,
        "zstd of shell quad has no image for slots 1; it has for 0 and 3",
    ),
    (
        "a GPU's config",
        lambda machine: slots(machine.card(2), 0, 1, "zstd"),
        GpuConfig(api_version="kerf.dev/v1alpha1"),
        "is an FPGA, but the claim gives it a GpuConfig",
    ),
    (
        "an FPGA's config",
        lambda machine: gpu_partition(machine.card(0), "1g.10gb", 0),
        AES,
        "is a GPU, but the claim gives it an FpgaConfig",
    ),
]


@pytest.mark.parametrize(
    ("partition", "config", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
async def test_what_can_never_work_is_refused_before_anything_is_touched(
    machine: Machine, partition: Callable[[Machine], Partition], config: DeviceConfig | None, message: str
) -> None:
    backend = machine.open()
    with pytest.raises(HardwareRefusedError, match=message):
        await backend.prepare(machine.device(partition(machine)), config)
    assert backend.held() == {}
    assert machine.clock.slept_s == []


async def test_admin_access_neither_makes_nor_disturbs_nor_takes_back(machine: Machine, gpu: Card, fpga: Card) -> None:
    backend = machine.open()
    for card, partition in ((gpu, gpu_partition(gpu, "1g.10gb", 0)), (fpga, slots(fpga, 0, 1, "aes-gcm"))):
        await backend.prepare(machine.device(partition, "user"), None)
        before = backend.held()
        for watched in (partition, whole(card)):
            device = machine.device(watched, "admin", admin=True)
            handle = await backend.prepare(device, None)
            assert backend.edits(handle).device_nodes
            await backend.unprepare(handle)
            await backend.abandon(device)
        assert backend.held() == before


async def test_the_end_of_admin_access_leaves_a_kept_function(machine: Machine, fpga: Card) -> None:
    backend, partition = machine.open(), slots(fpga, 0, 1, "aes-gcm")
    await backend.unprepare(await backend.prepare(machine.device(partition), KEEP))
    await backend.unprepare(await backend.prepare(machine.device(partition, "admin", admin=True), None))
    assert await loaded(backend) == {Placement(0, 1): "aes-gcm"}


# What containers get


EDITS: list[tuple[str, Callable[[Machine], Partition], DeviceConfig | None, dict[str, Any]]] = [
    (
        "a GPU partition",
        lambda machine: gpu_partition(machine.card(1), "1g.10gb", 3),
        None,
        {
            "env": ["NVIDIA_VISIBLE_DEVICES=void", "KERF_DEVICE_GPU_1_1G_10GB_AT_3=MIG-"],
            "paths": [
                "/dev/nvidiactl",
                "/dev/nvidia1",
                f"/dev/nvidia-caps/nvidia-cap{3 + (15 + 10) * 9}",
                f"/dev/nvidia-caps/nvidia-cap{3 + (15 + 10) * 9 + 1}",
            ],
        },
    ),
    (
        "a shared whole GPU",
        lambda machine: whole(machine.card(0)),
        GpuConfig(
            api_version="kerf.dev/v1alpha1", sharing=GpuSharing(strategy="TimeSlicing", time_slicing=TimeSlicing())
        ),
        {
            "env": ["NVIDIA_VISIBLE_DEVICES=void", "KERF_DEVICE_GPU_0=GPU-", "KERF_SHARING_GPU_0=TimeSlicing"],
            "paths": ["/dev/nvidiactl", "/dev/nvidia0"],
        },
    ),
    (
        "an FPGA function",
        lambda machine: slots(machine.card(2), 1, 2, "fft-large"),
        None,
        {"env": ["KERF_DEVICE_FPGA_0_FFT_LARGE_AT_1=fft-large"], "paths": ["/dev/dfl-port.1", "/dev/dfl-port.2"]},
    ),
]


@pytest.mark.parametrize(("partition", "config", "expected"), [row[1:] for row in EDITS], ids=[row[0] for row in EDITS])
async def test_a_container_sees_its_device_and_nothing_else(
    machine: Machine, partition: Callable[[Machine], Partition], config: DeviceConfig | None, expected: dict[str, Any]
) -> None:
    backend = machine.open()
    edits = backend.edits(await backend.prepare(machine.device(partition(machine)), config))
    assert all(variable.startswith(start) for variable, start in zip(edits.env, expected["env"], strict=True))
    assert [node.path for node in edits.device_nodes] == expected["paths"]
    assert {(n.host_path, n.type, n.major, n.minor) for n in edits.device_nodes} == {("/dev/null", "c", 1, 3)}
    assert errors_of(edits) == []


def errors_of(edits: ContainerEdits) -> list[object]:
    spec = Spec(kind=Kind.parse("k8s.kerf.dev/claim"), devices=(Device(name="d", container_edits=edits),))
    return list(validate(spec))


def share_of(machine: Machine, gpu: Card, claim: str, capacity: str, amount: str) -> AllocatedDevice:
    partition = dataclasses.replace(gpu_partition(gpu, "3g.40gb", 0), shared=True)
    device = machine.device(partition, claim)
    share = ShareId(device.share.id, f"share-of-{claim}")
    return dataclasses.replace(device, share=share, consumed_capacity={capacity: Quantity(amount)})


@pytest.mark.parametrize("capacity", ["memory", "kerf.dev/memory"])
async def test_shares_of_one_partition_see_the_same_device_and_each_its_own_limit(
    machine: Machine, gpu: Card, capacity: str
) -> None:
    backend = machine.open()
    mps = GpuConfig(api_version="kerf.dev/v1alpha1", sharing=GpuSharing(strategy="Mps"))
    handles = [
        await backend.prepare(share_of(machine, gpu, claim, capacity, amount), config)
        for claim, amount, config in (("one", "4Gi", mps), ("two", "8Gi", None))
    ]
    assert len(backend.held()) == 1
    variables = [dict(one.split("=", 1) for one in backend.edits(handle).env) for handle in handles]
    name = "GPU_0_3G_40GB_AT_0_SHARED"
    assert variables[0][f"KERF_DEVICE_{name}"] == variables[1][f"KERF_DEVICE_{name}"]
    assert [one[f"KERF_MEMORY_LIMIT_{name}"] for one in variables] == [str(4 * 2**30), str(8 * 2**30)]
    assert [one.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT") for one in variables] == ["0=4096M", None]
    await backend.unprepare(handles[0])
    assert backend.held() == {}, "whoever is last: any handle takes the partition back"


async def test_management_nodes_are_never_in_a_container(machine: Machine) -> None:
    backend = machine.open()
    for number, partition in enumerate(every_partition(machine)):
        backend.reboot()
        config = AES if partition.kind == "fpga" and not partition.function else None
        for admin in (False, True):
            handle = await backend.prepare(machine.device(partition, f"claim-{number}", admin=admin), config)
            nodes = backend.edits(handle).device_nodes
            assert nodes
            for node in nodes:
                assert "fme" not in node.path
                assert node.path not in ("/dev/nvidia-caps/nvidia-cap1", "/dev/nvidia-caps/nvidia-cap2")


def every_partition(machine: Machine) -> list[Partition]:
    return [spec.of(card.uuid) for card in machine.cards.values() for spec in get_unit_map(card).specs]


# Health


def health_changes(backend: SimulatedBackend) -> list[HealthChange]:
    return [event for event in backend.wait_for_events(0) if isinstance(event, HealthChange)]


async def test_an_ill_card_is_told_of_once_and_once_more_when_it_is_well(machine: Machine, gpu: Card) -> None:
    backend = machine.open()
    backend.inject(HardwareFaults(ill={"gpu-0": "Xid 79", "fpga-0-slot-3": "hot", "gpu-9": "no such card"}))
    first, second = health_changes(backend)
    assert [(first.reason, first.partition, first.state), (second.reason, second.card_uuid)] == [
        ("hot", slots(machine.card(2), 3, 1), HealthState.UNHEALTHY),
        ("Xid 79", gpu.uuid),
    ]
    backend.inject(HardwareFaults(ill={"fpga-0-slot-3": "hot"}))
    well = HealthChange(card_uuid=gpu.uuid, partition=None, state=HealthState.HEALTHY, reason="recovered")
    assert health_changes(backend) == [well]


async def test_a_device_can_fall_ill_be_lost_and_heal_while_the_plugin_runs(machine: Machine, gpu: Card) -> None:
    backend = machine.open()
    for faults, condition in (
        (HardwareFaults(ill={"gpu-0": "Xid 63"}), HealthState.UNHEALTHY),
        (HardwareFaults(ill={"gpu-0": "Xid 63"}, lost={"gpu-0": "Xid 79"}), HealthState.LOST),
        (HardwareFaults(), HealthState.HEALTHY),
    ):
        machine.open().inject(faults)
        [change] = health_changes(backend)
        assert (change.card_uuid, change.state) == (gpu.uuid, condition)


async def test_a_lost_card_refuses_new_work_but_lets_go_of_old(machine: Machine, gpu: Card) -> None:
    backend = machine.open()
    device = machine.device(gpu_partition(gpu, "1g.10gb", 0))
    handle = await backend.prepare(device, None)
    backend.inject(HardwareFaults(lost={"gpu-0": "Xid 79"}))
    assert await backend.prepare(device, None) == handle, "what is prepared stays prepared"
    with pytest.raises(HardwareRefusedError, match="gpu-0 is lost: Xid 79"):
        await backend.prepare(machine.device(gpu_partition(gpu, "1g.10gb", 1), "other"), None)
    await backend.unprepare(handle)
    assert backend.held() == {}


async def test_an_ill_card_does_what_it_is_told(machine: Machine, gpu: Card) -> None:
    """Whoever got it tolerates its taint."""
    backend = machine.open()
    backend.inject(HardwareFaults(ill={"gpu-0": "Xid 63"}))
    await backend.prepare(machine.device(gpu_partition(gpu, "1g.10gb", 1)), None)
    assert len(backend.held()) == 1


def test_every_step_has_a_place_in_one_of_the_sequences() -> None:
    assert {*GPU_MAKING, *GPU_TAKING_BACK, *FPGA_MAKING, HardwareStep.KEEP, HardwareStep.BLANK} == set(HardwareStep)
