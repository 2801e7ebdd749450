"""The simulated backend when nothing goes wrong: what it prepares, refuses, shares and releases."""

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kerf_dra.api.kerf.v1alpha1 import DeviceConfig, FpgaConfig, GpuConfig, GpuSharing, TimeSlicing
from kerf_dra.api.model.names import ShareId
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.cdi import ContainerEdits, Device, Kind, Spec, validate
from kerf_dra.driver.kubeletplugin.backends.base import (
    AllocatedDevice,
    Backend,
    CardAbsentError,
    CardChange,
    CardSurvey,
    FoundPartition,
    HardwareBusyError,
    HardwareConflictError,
    HardwareRefusedError,
)
from kerf_dra.driver.kubeletplugin.backends.simulated import SimulatedBackend
from kerf_dra.driver.kubeletplugin.backends.simulated.gpu import MigSwitch
from kerf_dra.driver.kubeletplugin.backends.simulated.steps import HardwareFaults, HardwareStep
from kerf_dra.driver.partitions.geometry import Card, Partition, Placement
from kerf_dra.driver.partitions.unit_map import get_unit_map
from tests.kubeletplugin.backends.simulated.machine import FPGA_MAKING, GPU_MAKING, GPU_TAKING_BACK, Machine, Notes
from tests.partitions.cards import gpu_partition, slots, whole

AES = FpgaConfig(api_version="kerf.dev/v1alpha1", function="aes-gcm")
KEEP = FpgaConfig(api_version="kerf.dev/v1alpha1", release="Keep")


def test_it_is_a_backend(machine: Machine) -> None:
    backend: Backend = machine.open()
    assert backend.name == "simulated"


def test_cards_are_discovered_with_stable_identities(machine: Machine) -> None:
    cards = machine.open().discover()
    assert [(card.kind, card.index) for card in cards] == [("gpu", 0), ("gpu", 1), ("fpga", 0)]
    assert len({card.uuid for card in cards} | {card.pci_bus_id for card in cards}) == 6
    assert machine.open().discover() == cards


def test_a_partition_is_made_and_taken_back(machine: Machine, gpu: Card) -> None:
    backend, device = machine.open(), machine.device(gpu_partition(gpu, "1g.10gb", 3))
    handle = machine.prepare(device, None)
    assert backend.partitions() == [device.partition]
    backend.unprepare(handle)
    assert backend.partitions() == []


def test_a_handle_is_plain_json_that_serves_a_new_process(machine: Machine, gpu: Card) -> None:
    handle = machine.prepare(machine.device(gpu_partition(gpu, "2g.20gb", 2)), None)
    remembered = json.loads(json.dumps(handle))
    again = machine.open()
    assert again.edits(remembered) == machine.open().edits(handle)
    again.unprepare(remembered)
    assert again.partitions() == []


def test_preparing_a_claims_device_again_answers_the_same_without_touching_the_card(
    machine: Machine, gpu: Card
) -> None:
    device = machine.device(gpu_partition(gpu, "3g.40gb", 4))
    handle = machine.prepare(device, None)
    machine.clock.slept_s.clear()
    assert machine.prepare(device, None) == handle
    assert machine.clock.slept_s == []


def test_unpreparing_twice_succeeds(machine: Machine, gpu: Card, fpga: Card) -> None:
    backend = machine.open()
    for partition in (gpu_partition(gpu, "1g.10gb", 0), whole(machine.card(1)), slots(fpga, 0, 1, "aes-gcm")):
        handle = machine.prepare(machine.device(partition), None)
        backend.unprepare(handle)
        backend.unprepare(handle)
    assert backend.partitions() == []


def test_unpreparing_leaves_another_instance_in_the_place_alone(machine: Machine, gpu: Card) -> None:
    """The id of an instance is that of its place: 3g and 4g at 0 have the same, whoever made them."""
    backend = machine.open()
    handle = machine.prepare(machine.device(gpu_partition(gpu, "4g.40gb", 0)), None)
    backend.unprepare(handle)
    backend.cut_by_hand(machine.device(gpu_partition(gpu, "3g.40gb", 0)))
    backend.unprepare(handle)
    assert [partition.profile for partition in backend.partitions()] == ["3g.40gb"]


def test_unpreparing_leaves_an_instance_with_another_uuid_alone(machine: Machine, gpu: Card) -> None:
    backend = machine.open()
    handle = machine.prepare(machine.device(gpu_partition(gpu, "1g.10gb", 0)), None)
    backend.unprepare({**handle, "uuid": "MIG-of-another"})
    assert len(backend.partitions()) == 1


def test_a_card_that_is_away_does_nothing_and_is_found_again(machine: Machine, gpu: Card) -> None:
    """Nothing that is on such a card can be proven to be gone."""
    backend, device = machine.open(), machine.device(gpu_partition(gpu, "1g.10gb", 0))
    handle = machine.prepare(device, None)
    backend.inject(HardwareFaults(absent=("gpu-0",)))
    assert gpu.uuid not in {card.uuid for card in backend.discover()}
    for work in (
        lambda: backend.survey(gpu.uuid),
        lambda: backend.unprepare(handle),
        lambda: backend.abandon(device, Notes(), None),
        lambda: backend.prepare(device, None, Notes(), None),
        lambda: backend.survey("GPU-that-never-was"),
    ):
        with pytest.raises(CardAbsentError):
            work()
    assert backend.wait_for_events(0) == [CardChange(card_uuid=gpu.uuid)]
    backend.inject(HardwareFaults())
    assert backend.wait_for_events(0) == [CardChange(card_uuid=gpu.uuid)]
    backend.unprepare(handle)
    assert backend.partitions() == []


@pytest.mark.parametrize(
    ("first", "second", "error"),
    [
        (("3g.40gb", 0), ("1g.10gb", 3), "Insufficient Resources: 3g.40gb at 0 is there"),
        (("1g.10gb+me", 0), ("1g.10gb+me", 5), "Insufficient Resources"),
        (("1g.10gb", 6), None, "In use by another client"),
    ],
)
def test_what_others_have_is_refused_by_the_hardware_too(
    machine: Machine, gpu: Card, first: tuple[str, int], second: tuple[str, int] | None, error: str
) -> None:
    """The plugin's look at the card comes first, but somebody may come in between."""
    backend = machine.open()
    backend.cut_by_hand(machine.device(gpu_partition(gpu, *first)))
    wanted = whole(gpu) if second is None else gpu_partition(gpu, *second)
    with pytest.raises((HardwareBusyError, HardwareConflictError), match=error):
        backend.prepare(machine.device(wanted, "second"), None, Notes(), None)
    assert backend.partitions() == [gpu_partition(gpu, *first)]


@pytest.mark.parametrize(
    ("switch", "mig", "no_whole", "no_partitions"),
    [
        (MigSwitch.IMMEDIATE, False, "", ""),
        (MigSwitch.IMMEDIATE, True, "", ""),
        (MigSwitch.NEEDS_RESET, False, "", "MIG mode is off and on only after a reset"),
        (MigSwitch.NEEDS_RESET, True, "MIG mode is on and off only after a reset", ""),
        (MigSwitch.NOT_CAPABLE, False, "", "the card has no MIG"),
    ],
)
def test_the_modes_that_are_possible_now_are_surveyed_and_the_others_refused(
    machine: Machine, gpu: Card, switch: MigSwitch, mig: bool, no_whole: str, no_partitions: str
) -> None:
    backend = machine.open()
    backend.change_gpu(0, switch=switch, mig=mig)
    survey = backend.survey(gpu.uuid)
    assert (survey.no_whole, survey.no_partitions) == (no_whole, no_partitions)
    for partition, reason in ((whole(gpu), no_whole), (gpu_partition(gpu, "1g.10gb", 0), no_partitions)):
        backend.change_gpu(0, mig=mig)
        if reason:
            with pytest.raises(HardwareRefusedError, match=f"nvmlDeviceSetMigMode: {reason}"):
                backend.prepare(machine.device(partition), None, Notes(), None)
        else:
            backend.unprepare(backend.prepare(machine.device(partition), None, Notes(), None))


def test_a_survey_says_what_is_on_the_card_and_what_processes_use(machine: Machine, gpu: Card, fpga: Card) -> None:
    backend = machine.open()
    handle = machine.prepare(machine.device(gpu_partition(gpu, "3g.40gb", 4)), None)
    there = FoundPartition(id="gi-2", profile="3g.40gb", placement=Placement(4, 4), uuid=handle["uuid"], in_use=False)
    assert backend.survey(gpu.uuid) == CardSurvey(card_uuid=gpu.uuid, partitions=(there,))
    backend.change_gpu(1, in_use=True)
    used = FoundPartition(id="processes", profile=None, placement=None, in_use=True)
    assert backend.survey(machine.card(1).uuid).partitions == (used,)
    machine.prepare(machine.device(slots(fpga, 0, 1, "aes-gcm")), None)
    assert backend.survey(fpga.uuid).partitions == (), "a loaded function occupies nothing"
    backend.use_slots(Placement(2, 2))
    [used] = backend.survey(fpga.uuid).partitions
    assert (used.placement, used.in_use) == (Placement(2, 2), True)


def test_what_a_process_uses_is_neither_destroyed_nor_replaced(machine: Machine, gpu: Card, fpga: Card) -> None:
    backend = machine.open()
    handle = machine.prepare(machine.device(gpu_partition(gpu, "1g.10gb", 0)), None)
    [instance] = backend.read_gpu(0).instances
    backend.change_gpu(0, instances=(msgspec.structs.replace(instance, in_use=True),))
    with pytest.raises(HardwareBusyError, match="nvmlComputeInstanceDestroy: In use by another client"):
        backend.unprepare(handle)
    backend.use_slots(Placement(1, 1))
    with pytest.raises(HardwareConflictError, match="a process outside of Kerf uses slots 1"):
        backend.prepare(machine.device(slots(fpga, 1, 2, "fft-large")), None, Notes(), None)


@pytest.mark.parametrize(("profile", "start"), [("1g.10gb", 7), ("3g.40gb", 2), ("9g.90gb", 0)])
def test_an_illegal_placement_is_refused(machine: Machine, gpu: Card, profile: str, start: int) -> None:
    partition = Partition(kind=gpu.kind, card_uuid=gpu.uuid, profile=profile, placement=Placement(start, 1))
    with pytest.raises(HardwareRefusedError, match=rf"Invalid Argument: h100-80gb-sxm has no {profile} at {start}:1"):
        machine.prepare(machine.device(partition), None)
    assert machine.open().partitions() == []


def test_a_card_of_another_kind_is_refused(machine: Machine, gpu: Card, fpga: Card) -> None:
    wrong = machine.device(Partition(kind=fpga.kind, card_uuid=gpu.uuid))
    with pytest.raises(HardwareRefusedError, match="gpu-0 is not of the kind fpga"):
        machine.prepare(wrong, None)


def test_seven_small_partitions_and_their_seven_containers_are_apart(machine: Machine, gpu: Card) -> None:
    backend = machine.open()
    handles = [
        machine.prepare(machine.device(gpu_partition(gpu, "1g.10gb", start), f"claim-{start}"), None)
        for start in range(7)
    ]
    assert len({handle["uuid"] for handle in handles}) == 7
    nodes = [node.path for handle in handles for node in backend.edits(handle).device_nodes if "caps" in node.path]
    assert len(nodes) == len(set(nodes)) == 14


def test_partitions_made_by_hand_are_never_touched(machine: Machine, gpu: Card) -> None:
    backend, by_hand = machine.open(), machine.device(gpu_partition(gpu, "3g.40gb", 4))
    backend.cut_by_hand(by_hand)
    for partition in (by_hand.partition, whole(gpu)):
        with pytest.raises(HardwareConflictError, match=r"in use outside of Kerf: 3g\.40gb at 4"):
            machine.prepare(machine.device(partition, "wanting"), None)
        machine.release(machine.device(partition, "wanting"))
    beside = machine.device(gpu_partition(gpu, "4g.40gb", 0), "beside")
    machine.release(beside, machine.prepare(beside, None))
    assert backend.partitions() == [by_hand.partition]


def test_a_whole_gpu_can_be_cut_again_after_its_claim(machine: Machine, gpu: Card) -> None:
    backend = machine.open()
    handle = machine.prepare(machine.device(whole(gpu)), None)
    assert handle["uuid"] == gpu.uuid
    backend.unprepare(handle)
    machine.prepare(machine.device(gpu_partition(gpu, "1g.10gb", 0)), None)


def test_a_reboot_takes_partitions_functions_and_nothing_else(machine: Machine, gpu: Card, fpga: Card) -> None:
    backend = machine.open()
    cards = backend.discover()
    handle = machine.prepare(machine.device(gpu_partition(gpu, "1g.10gb", 0)), None)
    machine.prepare(machine.device(slots(fpga, 0, 1, "aes-gcm")), None)
    backend.reboot()
    assert backend.partitions() == []
    assert backend.discover() == cards
    backend.unprepare(handle)
    assert machine.prepare(machine.device(gpu_partition(gpu, "1g.10gb", 0)), None) == handle


def test_cards_whose_state_directory_is_gone_are_not_as_new(machine: Machine, gpu: Card, fpga: Card) -> None:
    """A release succeeded while the directory was not there, and the partition was back with it, nobody's."""
    backend = machine.open()
    handles = [
        machine.prepare(machine.device(gpu_partition(gpu, "1g.10gb", 0)), None),
        machine.prepare(machine.device(slots(fpga, 0, 1, "aes-gcm")), None),
    ]
    before = backend.partitions()
    away = machine.state.rename(machine.state.with_name("away"))
    for card, handle in zip((gpu, fpga), handles, strict=True):
        with pytest.raises(HardwareBusyError, match=r"the state directory .* cannot be read"):
            backend.unprepare(handle)
        with pytest.raises(HardwareBusyError, match=r"the state directory .* cannot be read"):
            backend.survey(card.uuid)
    away.rename(machine.state)
    assert backend.partitions() == before
    for handle in handles:
        backend.unprepare(handle)
    assert backend.partitions() == []


# FPGAs


def loaded(backend: SimulatedBackend) -> dict[Placement, str]:
    (card,) = [card for card in backend.discover() if card.kind == "fpga"]
    return dict(card.loaded)


def test_a_function_is_loaded_in_the_makers_time_and_blanked_on_release(machine: Machine, fpga: Card) -> None:
    backend = machine.open()
    handle = machine.prepare(machine.device(slots(fpga, 2, 1, "aes-gcm")), None)
    assert sum(machine.clock.slept_s) == pytest.approx(0.4)
    assert loaded(backend) == {Placement(2, 1): "aes-gcm"}
    backend.unprepare(handle)
    assert loaded(backend) == {}


def test_a_kept_function_is_a_warm_hit_for_the_next_claim(machine: Machine, fpga: Card) -> None:
    backend, partition = machine.open(), slots(fpga, 2, 1, "aes-gcm")
    handle = machine.prepare(machine.device(partition, "first"), KEEP)
    backend.unprepare(handle)
    assert loaded(backend) == {Placement(2, 1): "aes-gcm"}
    machine.clock.slept_s.clear()
    machine.prepare(machine.device(partition, "second"), KEEP)
    assert sum(machine.clock.slept_s) == 0


def test_a_kept_function_gives_way_to_another(machine: Machine, fpga: Card) -> None:
    backend = machine.open()
    backend.unprepare(machine.prepare(machine.device(slots(fpga, 1, 1, "aes-gcm")), KEEP))
    machine.prepare(machine.device(slots(fpga, 0, 2, "fft-large")), None)
    assert loaded(backend) == {Placement(0, 2): "fft-large"}


@pytest.mark.parametrize(
    ("function", "place", "image"),
    [("aes-gcm", Placement(1, 3), Placement(1, 1)), ("fft-large", Placement(0, 4), Placement(0, 2))],
)
def test_raw_slots_get_the_first_largest_image_of_the_function_that_the_config_names(
    function: str, place: Placement, image: Placement, machine: Machine, fpga: Card
) -> None:
    backend = machine.open()
    config = FpgaConfig(api_version="kerf.dev/v1alpha1", function=function)
    handle = machine.prepare(machine.device(slots(fpga, place.start, place.size)), config)
    assert loaded(backend) == {image: function}
    assert handle["slots"] == list(place)


def test_slots_without_a_function_are_blank_whatever_was_left_in_them(machine: Machine, fpga: Card) -> None:
    backend = machine.open()
    backend.unprepare(machine.prepare(machine.device(slots(fpga, 1, 1, "aes-gcm")), KEEP))
    assert loaded(backend) == {Placement(1, 1): "aes-gcm"}
    handle = machine.prepare(machine.device(slots(fpga, 0, 2)), None)
    assert loaded(backend) == {}
    assert machine.prepare(machine.device(slots(fpga, 0, 2)), None) == handle
    edits = backend.edits(handle)
    assert [node.path for node in edits.device_nodes] == ["/dev/dfl-port.0", "/dev/dfl-port.1"]
    assert edits.env == ("KERF_DEVICE_FPGA_0_SLOTS_0_1=",)
    machine.prepare(machine.device(slots(fpga, 0, 2, "fft-large"), "late"), None)
    backend.unprepare(handle)
    assert loaded(backend) == {Placement(0, 2): "fft-large"}, "nothing of the first claim was there to take back"


def test_slots_that_a_process_uses_are_not_made_blank(machine: Machine, fpga: Card) -> None:
    backend = machine.open()
    backend.unprepare(machine.prepare(machine.device(slots(fpga, 1, 1, "aes-gcm")), KEEP))
    backend.use_slots(Placement(1, 1))
    with pytest.raises(HardwareConflictError, match="a process outside of Kerf uses slots 1"):
        backend.prepare(machine.device(slots(fpga, 1, 1), "late"), None, Notes(), None)
    assert loaded(backend) == {Placement(1, 1): "aes-gcm"}


def test_a_whole_fpga_has_all_ports(machine: Machine, fpga: Card) -> None:
    handle = machine.prepare(machine.device(whole(fpga)), AES)
    edits = machine.open().edits(handle)
    assert [node.path for node in edits.device_nodes] == [f"/dev/dfl-port.{port}" for port in range(4)]


def test_a_gpu_with_the_configuration_of_an_fpga_is_refused_before_anything_is_touched(machine: Machine) -> None:
    backend = machine.open()
    with pytest.raises(HardwareRefusedError, match="is a GPU, but the claim gives it a FpgaConfig"):
        machine.prepare(machine.device(gpu_partition(machine.card(0), "1g.10gb", 0)), AES)
    assert backend.partitions() == []
    assert machine.clock.slept_s == []


def test_admin_access_neither_makes_nor_disturbs_nor_takes_back(machine: Machine, gpu: Card, fpga: Card) -> None:
    backend = machine.open()
    for card, partition in ((gpu, gpu_partition(gpu, "1g.10gb", 0)), (fpga, slots(fpga, 0, 1, "aes-gcm"))):
        machine.prepare(machine.device(partition, "user"), None)
        before = backend.partitions()
        for watched in (partition, whole(card)):
            device = machine.device(watched, "admin", admin=True)
            handle = machine.prepare(device, None)
            assert backend.edits(handle).device_nodes
            backend.unprepare(handle)
            machine.release(device, handle)
            machine.release(device)
        assert backend.partitions() == before


def test_the_end_of_admin_access_leaves_a_kept_function(machine: Machine, fpga: Card) -> None:
    backend, partition = machine.open(), slots(fpga, 0, 1, "aes-gcm")
    backend.unprepare(machine.prepare(machine.device(partition), KEEP))
    backend.unprepare(machine.prepare(machine.device(partition, "admin", admin=True), None))
    assert loaded(backend) == {Placement(0, 1): "aes-gcm"}


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
        {"env": ["KERF_DEVICE_FPGA_0_FFT_LARGE_AT_1_2=fft-large"], "paths": ["/dev/dfl-port.1", "/dev/dfl-port.2"]},
    ),
]


@pytest.mark.parametrize(("partition", "config", "expected"), [row[1:] for row in EDITS], ids=[row[0] for row in EDITS])
def test_a_container_sees_its_device_and_nothing_else(
    machine: Machine, partition: Callable[[Machine], Partition], config: DeviceConfig | None, expected: dict[str, Any]
) -> None:
    backend = machine.open()
    edits = backend.edits(machine.prepare(machine.device(partition(machine)), config))
    assert all(variable.startswith(start) for variable, start in zip(edits.env, expected["env"], strict=True))
    assert [node.path for node in edits.device_nodes] == expected["paths"]
    assert {(n.host_path, n.type, n.major, n.minor) for n in edits.device_nodes} == {("/dev/null", "c", 1, 3)}
    assert errors_of(edits) == []


def errors_of(edits: ContainerEdits) -> list[object]:
    spec = Spec(kind=Kind.parse("k8s.gpu.kerf.dev/claim"), devices=(Device(name="d", container_edits=edits),))
    return list(validate(spec))


def share_of(machine: Machine, gpu: Card, claim: str, capacity: str, amount: str) -> AllocatedDevice:
    partition = dataclasses.replace(gpu_partition(gpu, "3g.40gb", 0), shared=True)
    device = machine.device(partition, claim)
    share = ShareId(device.share.id, f"share-of-{claim}")
    return dataclasses.replace(device, share=share, consumed_capacity={capacity: Quantity(amount)})


@pytest.mark.parametrize("capacity", ["memory", "gpu.kerf.dev/memory"])
def test_shares_of_one_partition_see_the_same_device_and_each_its_own_limit(
    machine: Machine, gpu: Card, capacity: str
) -> None:
    backend = machine.open()
    mps = GpuConfig(api_version="kerf.dev/v1alpha1", sharing=GpuSharing(strategy="Mps"))
    handles = [
        machine.prepare(share_of(machine, gpu, claim, capacity, amount), config)
        for claim, amount, config in (("one", "4Gi", mps), ("two", "8Gi", None))
    ]
    assert len(backend.partitions()) == 1
    variables = [dict(one.split("=", 1) for one in backend.edits(handle).env) for handle in handles]
    name = "GPU_0_3G_40GB_AT_0_SHARED"
    assert variables[0][f"KERF_DEVICE_{name}"] == variables[1][f"KERF_DEVICE_{name}"]
    assert [one[f"KERF_MEMORY_LIMIT_{name}"] for one in variables] == [str(4 * 2**30), str(8 * 2**30)]
    assert [one.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT") for one in variables] == ["0=4096M", None]
    backend.unprepare(handles[0])
    assert backend.partitions() == [], "whoever is last: any handle takes the partition back"


def test_management_nodes_are_never_in_a_container(machine: Machine) -> None:
    backend = machine.open()
    for number, partition in enumerate(every_partition(machine)):
        backend.reboot()
        config = AES if partition.kind == "fpga" and not partition.function else None
        for admin in (False, True):
            handle = machine.prepare(machine.device(partition, f"claim-{number}", admin=admin), config)
            nodes = backend.edits(handle).device_nodes
            assert nodes
            for node in nodes:
                assert "fme" not in node.path
                assert node.path not in ("/dev/nvidia-caps/nvidia-cap1", "/dev/nvidia-caps/nvidia-cap2")


def every_partition(machine: Machine) -> list[Partition]:
    return [spec.of(card.uuid) for card in machine.cards.values() for spec in get_unit_map(card).specs]


def test_a_lost_card_refuses_new_work_but_lets_go_of_old(machine: Machine, gpu: Card) -> None:
    backend = machine.open()
    device = machine.device(gpu_partition(gpu, "1g.10gb", 0))
    handle = machine.prepare(device, None)
    backend.inject(HardwareFaults(lost={"gpu-0": "Xid 79"}))
    assert machine.prepare(device, None) == handle, "what is prepared stays prepared"
    with pytest.raises(HardwareRefusedError, match="gpu-0 is lost: Xid 79"):
        machine.prepare(machine.device(gpu_partition(gpu, "1g.10gb", 1), "other"), None)
    backend.unprepare(handle)
    assert backend.partitions() == []


def test_an_ill_card_does_what_it_is_told(machine: Machine, gpu: Card) -> None:
    """Whoever got it tolerates its taint."""
    backend = machine.open()
    backend.inject(HardwareFaults(degraded={"gpu-0": "Xid 63"}))
    machine.prepare(machine.device(gpu_partition(gpu, "1g.10gb", 1)), None)
    assert len(backend.partitions()) == 1


def test_every_step_has_a_place_in_one_of_the_sequences() -> None:
    others = {HardwareStep.LOAD_LAYOUT, HardwareStep.KEEP, HardwareStep.BLANK, HardwareStep.RESET}
    assert {*GPU_MAKING, *GPU_TAKING_BACK, *FPGA_MAKING, *others} == set(HardwareStep)
