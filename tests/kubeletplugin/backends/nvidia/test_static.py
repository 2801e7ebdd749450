"""MIG devices that an administrator has made for claims: what the contract of backends does not ask of them."""

from pathlib import Path

import pynvml
import pytest

from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kubeletplugin.backends.base import (
    FoundPartition,
    HardwareBusyError,
    HardwareConflictError,
    HardwareHeldError,
)
from kerf_dra.driver.kubeletplugin.backends.nvidia.mig_mode import MigPolicy
from kerf_dra.driver.partitions.geometry import Partition, Placement
from kerf_dra.driver.testing.nvml import CardDescription
from kerf_dra.driver.testing.plugin import PluginStandIn
from tests.fakes.nvml import NEEDS_COMPILER, open_nvml
from tests.fakes.nvml_calls import compute_profiles, create_gpu_instance, destroy_gpu_instance
from tests.kubeletplugin.backends.nvidia.machine import (
    H100,
    PID,
    NvidiaMachineUnderTest,
    StaticMachineUnderTest,
)

pytestmark = NEEDS_COMPILER

STATIC = "migMode of the backend is Static, so claims get only the MIG devices that an administrator has made"


@pytest.fixture
def machine(tmp_path: Path) -> StaticMachineUnderTest:
    return StaticMachineUnderTest(tmp_path)


def static(plugin: PluginStandIn) -> list[FoundPartition]:
    return [found for found in plugin.survey(plugin.cards[0].uuid).partitions if found.is_static]


def half(plugin: PluginStandIn) -> Partition:
    """The first card's 3g.40gb at 4, GPU instance 2."""
    return plugin.machine.partitions(plugin.cards[0])[-1]


def test_a_card_is_had_as_its_mig_devices_and_in_no_other_way(machine: StaticMachineUnderTest) -> None:
    plugin = PluginStandIn(machine, GPU)
    card = plugin.cards[0]
    survey = plugin.survey(card.uuid)
    assert survey.no_whole == "MIG mode is on, and migMode of the backend is Static"
    assert survey.no_partitions == STATIC
    possible = {spec.of(card.uuid) for spec in card.geometry.specs if not survey.find_restriction(spec.of(card.uuid))}
    assert possible == {*machine.partitions(card)}
    assert len(possible) == 4


def test_a_claim_gets_the_uuid_that_the_administrator_sees(machine: StaticMachineUnderTest) -> None:
    plugin = PluginStandIn(machine, GPU)
    handle = plugin.prepare(plugin.allocate(half(plugin), "user"))
    (made,) = (one for one in machine.made if (one.card, one.profile) == (0, "3g.40gb"))
    assert (handle["uuid"], handle["instance"]) == (made.uuid, made.id)


def test_a_card_without_mig_mode_is_had_whole(tmp_path: Path) -> None:
    machine = NvidiaMachineUnderTest(tmp_path, CardDescription(model=H100), policy=MigPolicy.STATIC)
    plugin = PluginStandIn(machine, GPU)
    card = plugin.cards[0]
    survey = plugin.survey(card.uuid)
    assert (survey.no_whole, survey.no_partitions) == ("", "MIG mode is off, and migMode of the backend is Static")
    plugin.prepare(plugin.allocate(card.geometry.whole.of(card.uuid), "user"))


def test_mig_devices_smaller_than_their_gpu_instance_and_instances_without_one_are_not_offered(tmp_path: Path) -> None:
    card = CardDescription(model=H100, is_mig_on=True)
    machine = NvidiaMachineUnderTest(tmp_path, card, policy=MigPolicy.STATIC)
    with open_nvml(machine.hardware):
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        instance = create_gpu_instance(handle, 9, 4, 4)
        pynvml.nvmlGpuInstanceCreateComputeInstance(instance, compute_profiles(instance)[0].id)
        create_gpu_instance(handle, 19, 0, 1)
    plugin = PluginStandIn(machine, GPU)
    assert static(plugin) == []
    assert len(plugin.survey(plugin.cards[0].uuid).partitions) == 2
    for partition in (plugin.cards[0].geometry.specs[0].of(plugin.cards[0].uuid), half(plugin)):
        with pytest.raises((HardwareConflictError, HardwareBusyError)):
            plugin.prepare(plugin.allocate(partition, "user"))
    assert [one.id for one in machine.hardware.list_instances()] == [2, 7]


def test_what_a_process_of_somebody_else_uses_is_not_handed_out_until_it_ends(machine: StaticMachineUnderTest) -> None:
    plugin = PluginStandIn(machine, GPU)
    machine.use(half(plugin))
    with pytest.raises(HardwareConflictError, match=r"in use outside of Kerf: 3g\.40gb at 4"):
        plugin.prepare(plugin.allocate(half(plugin), "user"))
    machine.stop_using(half(plugin))
    plugin.prepare(plugin.allocate(half(plugin), "user"))


def test_a_claim_does_not_end_while_its_process_uses_the_device(machine: StaticMachineUnderTest) -> None:
    plugin = PluginStandIn(machine, GPU)
    record = plugin.allocate(half(plugin), "user")
    plugin.prepare(record)
    machine.use(half(plugin))
    with pytest.raises(HardwareHeldError, match=f"GPU instance 2 .* is in use by process {PID}"):
        plugin.release(record)
    machine.stop_using(half(plugin))
    plugin.release(record)
    assert machine.hardware.list_instances() == machine.made


def test_what_is_removed_before_or_after_the_survey_is_not_made_anew(machine: StaticMachineUnderTest) -> None:
    plugin = PluginStandIn(machine, GPU)
    (found,) = (one for one in static(plugin) if one.matches(half(plugin)))
    with open_nvml(machine.hardware):
        destroy_gpu_instance(pynvml.nvmlDeviceGetHandleByIndex(0), 2)
    record = plugin.allocate(half(plugin), "user")
    with pytest.raises(HardwareBusyError, match=f"MIG device {found.uuid} of card .* does not exist any more"):
        plugin.backend.prepare(record.device, record.config, record.journal, found)
    with pytest.raises(HardwareBusyError, match=f"is not available in partitions now: {STATIC}"):
        plugin.prepare(record)
    plugin.release(record)
    assert [one for one in machine.made if (one.card, one.id) != (0, 2)] == machine.hardware.list_instances()


@pytest.mark.parametrize("is_finished", [True, False], ids=["prepared", "begun"])
def test_what_an_administrator_has_made_stays_though_the_policy_changes(
    machine: StaticMachineUnderTest, is_finished: bool
) -> None:
    plugin = PluginStandIn(machine, GPU)
    record = plugin.allocate(half(plugin), "user")
    plugin.prepare(record)
    if not is_finished:
        record.handle = None  # the process died before it had the answer
    machine.policy = MigPolicy.ON_DEMAND
    plugin.restart()
    plugin.release(record)
    assert machine.hardware.list_instances() == machine.made


def test_what_kerf_has_made_is_removed_though_the_policy_has_changed(tmp_path: Path) -> None:
    machine = NvidiaMachineUnderTest(tmp_path)
    plugin = PluginStandIn(machine, GPU)
    card = plugin.cards[0]
    (spec,) = (one for one in card.geometry.specs if (one.profile, one.placement) == ("3g.40gb", Placement(4, 4)))
    record = plugin.allocate(spec.of(card.uuid), "user")
    plugin.prepare(record)
    machine.policy = MigPolicy.STATIC
    plugin.restart()
    plugin.release(record)
    assert machine.hardware.list_instances() == []
