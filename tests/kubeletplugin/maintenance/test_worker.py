"""What a node does with a free card: once, with nothing of it in use, verified, whatever is killed or fails."""

from pathlib import Path

import anyio
import pytest

from kerf_dra.api.kerf.card_maintenance import WorkState
from kerf_dra.driver.kubeletplugin.backends.base import (
    CardAbsentError,
    HardwareBusyError,
    HardwareRefusedError,
    HealthChange,
    HealthState,
)
from kerf_dra.driver.kubeletplugin.claims.hardware import DevicesFailedError
from kerf_dra.driver.kubeletplugin.maintenance.work_file import FILE_NAME, WorkStage
from kerf_dra.driver.partitions.geometry import Partition, Placement
from tests.fakes.cards import fpga, gpu
from tests.fakes.claims import result
from tests.fakes.hardware import FakeBackend
from tests.kubeletplugin.claims.repair.node import FIRST, SECOND
from tests.kubeletplugin.maintenance.node import KEY, MaintainedNode, maintenance
from tests.runtime.virtual_time import VIRTUAL_TIME, pass_time

WHAT_TO_DO = "the card stays withheld: look at it, then end this maintenance (kerf undrain)"


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


@pytest.fixture
def node(tmp_path: Path) -> MaintainedNode:
    return MaintainedNode(tmp_path)


@pytest.mark.parametrize("then", ["Reset", "MigOn", "MigOff"])
async def test_a_free_card_is_worked_on_once_verified_and_returned(node: MaintainedNode, then: str) -> None:
    async with node.running():
        node.put(maintenance(then=then))
        work = await node.until("Done")
        await anyio.sleep(60)
        assert node.backend.acts == [(then, "GPU-1")]
        assert (work.message, work.attempts, work.observed_generation) == (f"{then} is done", 0, 2)
        assert (node.is_withheld("gpu-1"), node.is_withheld("gpu-0")) == (False, False)
        assert [len(node.events(reason)) for reason in ("CardMaintenanceBegun", "CardReturned")] == [1, 1]
        tested = [("prepare", "gpu-1-1g-1gb-at-0"), ("unprepare", "gpu-1-1g-1gb-at-0")]
        assert node.backend.calls[1:] == ([] if then == "MigOff" else tested), "a partition was made and removed"
        assert node.backend.made == {}


async def test_nothing_is_done_before_the_card_is_free_or_without_then(node: MaintainedNode) -> None:
    async with node.running():
        node.put(maintenance(is_free=False), maintenance("GPU-0", name="other", then="None"))
        await anyio.sleep(60)
        assert (node.backend.acts, node.work(), node.work("other")) == ([], None, None)
        assert node.is_withheld("gpu-1")
        assert node.is_withheld("gpu-0")


async def test_the_free_condition_of_an_older_generation_does_not_count(node: MaintainedNode) -> None:
    async with node.running():
        document = maintenance()
        document["metadata"]["generation"] = 3
        node.put(document)
        await anyio.sleep(60)
        assert node.backend.acts == []


async def test_another_generation_is_worked_on_again(node: MaintainedNode) -> None:
    async with node.running():
        node.put(maintenance())
        await node.until("Done")
        node.put(maintenance(generation=3, then="MigOn"))
        await node.until("Done")
        assert node.backend.acts == [("Reset", "GPU-1"), ("MigOn", "GPU-1")]


# What keeps an act from beginning


async def test_what_a_claim_has_of_the_card_is_named_and_waited_for(node: MaintainedNode) -> None:
    async with node.running() as plugin:
        await node.prepare("other", FIRST)
        ref = await node.prepare("training", SECOND)
        node.put(maintenance())
        work = await node.until("Waiting")
        assert work.message == f"claim default/training has {SECOND} on this node: end its pods"
        await anyio.sleep(60)
        assert node.backend.acts == []
        await plugin.preparer.unprepare_claim(ref)
        await node.until("Done")
        assert node.made(FIRST) is not None, "the other card's partition is as it was"


async def test_a_claim_with_admin_access_counts_too(node: MaintainedNode) -> None:
    async with node.running():
        await node.prepare("watch", result(SECOND, admin=True))
        node.put(maintenance())
        await node.until("Waiting", says="which only watches it")
        assert node.backend.acts == []


async def test_a_foreign_partition_is_named_and_not_lost(node: MaintainedNode) -> None:
    made = node.backend.cut_by_hand(
        Partition(kind="gpu", card_uuid="GPU-1", profile="1g.1gb", placement=Placement(1, 1))
    )
    async with node.running():
        node.put(maintenance())
        await node.until("Waiting", says="1g.1gb at 1 is on the card, which is not Kerf's")
        node.backend.remove_by_hand(made.serial)
        await node.until("Done")


async def test_who_has_the_card_open_is_named_and_nothing_is_reset_until_they_end(node: MaintainedNode) -> None:
    node.backend.holders = {"GPU-1": ["dcgm (7)", "exporter (8)"], "GPU-0": ["other (9)"]}
    async with node.running():
        node.put(maintenance())
        await node.until("Waiting", says="the card is held open by dcgm (7), exporter (8): end them")
        await anyio.sleep(60)
        assert (node.backend.acts, node.record()) == ([], None)
        node.backend.holders["GPU-1"] = []
        await node.until("Done")
        assert node.backend.acts == [("Reset", "GPU-1")]


async def test_slices_that_are_not_written_yet_are_waited_for(node: MaintainedNode) -> None:
    async with node.running():
        node.cluster.stale = node.cluster.published[-1]
        node.put(maintenance())
        await node.until("Waiting", says="does not have the taint of all devices")
        node.cluster.stale = None
        await node.until("Done")


async def test_a_card_that_does_not_answer_is_not_touched(node: MaintainedNode) -> None:
    async with node.running():
        node.backend.survey_errors = [CardAbsentError("GPU is lost")] * 100
        node.put(maintenance())
        work = await node.until("Waiting")
        assert "GPU is lost" in work.message
        assert "boot the node" in work.message
        await anyio.sleep(60)
        assert node.backend.acts == []


async def test_an_act_that_the_hardware_refuses_is_tried_again(node: MaintainedNode) -> None:
    node.backend.act_errors = [HardwareBusyError("in use by another client")]
    async with node.running():
        node.put(maintenance())
        await node.until("Waiting", says="in use by another client")
        assert node.backend.ends == ["GPU-1"], "what the refused act has changed is restored"
        await node.until("Done")
        assert len(node.backend.acts) == 2


async def test_a_backend_that_cannot_reset_says_so(node: MaintainedNode) -> None:
    node.backend = FakeBackend([gpu(0), gpu(1), fpga(0)])
    async with node.running():
        node.put(maintenance())
        assert (await node.until("Failed")).message.startswith("backend fake cannot do Reset: use a hook")
        assert node.is_withheld()


# While it runs, and after


async def test_nothing_of_the_card_is_prepared_while_it_is_worked_on(node: MaintainedNode) -> None:
    node.backend.survey_errors = []
    async with node.running() as plugin:
        node.backend.report("GPU-1", "row remapping is due")
        plugin.state.health.update(lost("GPU-1"))
        node.put(maintenance())
        await node.until("Verifying")
        with pytest.raises(DevicesFailedError, match="is in maintenance, and its node does Reset: CardMaintenance fan"):
            await node.prepare("late", SECOND)
        await node.prepare("other", FIRST)
        assert (await node.until("Failed")).attempts == 3
        await node.prepare("tolerating", "gpu-1-1g-1gb-at-3")


async def test_three_failed_verifications_leave_the_card_withheld_and_say_why(node: MaintainedNode) -> None:
    async with node.running():
        for _ in range(3):
            node.backend.fail("prepare", "gpu-1-1g-1gb-at-0", HardwareRefusedError("ECC error"))
        node.put(maintenance())
        work = await node.until("Failed")
        assert (work.message, work.attempts) == (f"the card is not well after Reset: ECC error; {WHAT_TO_DO}", 3)
        await anyio.sleep(60)
        assert node.is_withheld()
        assert node.backend.acts == [("Reset", "GPU-1")]
        assert node.backend.made == {}
        [event] = node.events("CardMaintenanceFailed")
        assert event.endswith("the card stays withheld: look at it, then end this maintenance (kerf undrain)")


async def test_a_card_that_comes_up_late_is_returned(node: MaintainedNode) -> None:
    async with node.running():
        node.put(maintenance())
        node.backend.fail("prepare", "gpu-1-1g-1gb-at-0", HardwareBusyError("initializing"))
        assert (await node.until("Done")).attempts == 1
        assert not node.is_withheld()


async def test_a_card_that_vanishes_in_the_middle_has_failed(node: MaintainedNode) -> None:
    async with node.running():
        node.backend.act_errors = [CardAbsentError("GPU-1 has fallen off the bus")]
        node.put(maintenance())
        work = await node.until("Failed")
        assert "fallen off the bus" in work.message
        assert "boot the node" in work.message
        await anyio.sleep(60)
        assert len(node.backend.acts) == 1


async def test_mig_mode_that_is_not_on_afterwards_has_failed(node: MaintainedNode) -> None:
    node.backend.no_partitions["GPU-1"] = "MIG mode is off"
    async with node.running():
        node.put(maintenance(then="MigOn"))
        assert (await node.until("Failed")).message == (
            f"the card is not well after MigOn: MIG mode is not on: MIG mode is off; {WHAT_TO_DO}"
        )


async def test_devices_that_another_mode_forbids_are_withdrawn_before_the_taint_goes(node: MaintainedNode) -> None:
    """A pod would be allocated a partition of a card whose MIG mode was just switched off."""
    async with node.running():
        first = len(node.cluster.published)
        node.backend.no_partitions_after["MigOff"] = "MIG mode is off"
        node.put(maintenance(then="MigOff"))
        await node.until("Done")
        await pass_time(1)
        untainted = [
            {
                device.name
                for pool in pools
                for content in pool.slices
                for device in content.devices
                if not device.taints
            }
            for pools in node.cluster.published[first:]
        ]
        assert not [names for names in untainted if SECOND in names]
        assert "gpu-1" in untainted[-1]


async def test_two_cards_are_worked_on_each_for_itself(node: MaintainedNode) -> None:
    node.backend.holders = {"GPU-0": ["dcgm (7)"]}
    async with node.running():
        node.put(maintenance(), maintenance("GPU-0", name="other"))
        await node.until("Done")
        await node.until("Waiting", "other", says="the card is held open by dcgm (7)")
        assert (node.is_withheld("gpu-1"), node.is_withheld("gpu-0")) == (False, True)


async def test_of_two_maintenances_of_a_card_the_second_is_done_after_the_first(node: MaintainedNode) -> None:
    """The reclaimer lets one have its turn, and the other when that has returned the card."""
    async with node.running():
        second = maintenance(name="second", then="MigOn", is_free=False)
        node.put(maintenance(), second)
        await node.until("Done")
        assert node.is_withheld(), "for the second one"
        [first] = [one for one in node.cluster.maintenances.documents or () if one["metadata"]["name"] == "fan"]
        node.put(first, maintenance(name="second", then="MigOn"))
        await node.until("Done", "second")
        assert node.backend.acts == [("Reset", "GPU-1"), ("MigOn", "GPU-1")]
        await anyio.sleep(5)
        assert not node.is_withheld()


async def test_a_maintenance_that_is_ended_in_the_middle_frees_the_card_and_leaves_no_record(
    node: MaintainedNode,
) -> None:
    async with node.running():
        for _ in range(2):
            node.backend.fail("prepare", "gpu-1-1g-1gb-at-0", HardwareBusyError("initializing"))
        node.put(maintenance())
        await node.until("Verifying")
        node.put()
        await anyio.sleep(60)
        assert (node.is_withheld(), node.file.records) == (False, {})
        await node.prepare("next", SECOND)


# An API server that is away, and processes that are killed


async def test_nothing_begins_while_the_status_cannot_be_written(node: MaintainedNode) -> None:
    async with node.running():
        node.put(maintenance())
        node.cluster.is_down = True
        await anyio.sleep(60)
        assert node.backend.acts == []
        node.cluster.is_down = False
        await node.until("Done")
        assert node.backend.acts == [("Reset", "GPU-1")]


@pytest.mark.parametrize(
    ("stage", "status", "acts", "end"),
    [
        (None, "Waiting", 1, "Done"),
        ("Planned", None, 1, "Done"),
        ("Planned", "Acting", 1, "Done"),
        ("Begun", "Acting", 0, "Done"),
        ("Ended", "Acting", 0, "Done"),
        ("Ended", "Verifying", 0, "Done"),
        ("Done", "Verifying", 0, "Done"),
        ("Done", "Done", 0, "Done"),
        ("Failed", "Verifying", 0, "Failed"),
        (None, "Acting", 0, "Failed"),
        (None, "Verifying", 0, "Failed"),
        (None, "Done", 0, "Done"),
        (None, "Failed", 0, "Failed"),
    ],
)
async def test_a_plugin_that_was_killed_after_any_write_has_a_successor_that_acts_once(
    node: MaintainedNode, stage: WorkStage | None, status: WorkState | None, acts: int, end: WorkState
) -> None:
    if stage is not None:
        node.put_record(stage)
    node.put(maintenance(work=status))
    async with node.running():
        await node.until(end)
        await anyio.sleep(30)
        assert len(node.backend.acts) == acts
        assert node.is_withheld() is (end == "Failed")


async def test_a_status_that_another_writer_has_set_back_is_written_again(node: MaintainedNode) -> None:
    async with node.running():
        node.put(maintenance())
        await node.until("Done")
        node.put(maintenance(work="Verifying"))
        await node.until("Done")
        assert node.backend.acts == [("Reset", "GPU-1")]


async def test_a_hook_that_was_interrupted_does_not_run_again(node: MaintainedNode) -> None:
    node.put_record("Begun", act="Hook")
    node.put(maintenance(then="Hook", hook="flash", work="Acting"))
    async with node.running():
        assert "does not begin again" in (await node.until("Failed")).message
        assert node.is_withheld()


async def test_the_partition_of_an_interrupted_verification_is_removed(node: MaintainedNode) -> None:
    place = Partition(kind="gpu", card_uuid="GPU-1", profile="1g.1gb", placement=Placement(0, 1))
    node.put_record("Ended", test_notes={"before": []})
    node.backend.cut_by_hand(place)
    node.put(maintenance(work="Verifying"))
    async with node.running():
        await node.until("Done")
        assert node.backend.made == {}


async def test_a_partition_that_was_there_before_the_test_stays(node: MaintainedNode) -> None:
    place = Partition(kind="gpu", card_uuid="GPU-1", profile="1g.1gb", placement=Placement(0, 1))
    node.put_record("Ended", test_notes={"before": ["gpu-1-1g-1gb-at-0"]})
    node.backend.cut_by_hand(place)
    node.put(maintenance(work="Verifying"))
    async with node.running():
        await node.until("Done")
        assert len(node.backend.made) == 1


async def test_nothing_is_prepared_of_a_card_that_an_earlier_process_was_working_on(node: MaintainedNode) -> None:
    node.put_record("Begun")
    node.put(maintenance(work="Acting"))
    node.backend.fail("prepare", "gpu-1-1g-1gb-at-0", HardwareBusyError("initializing"))
    async with node.running():
        with pytest.raises(DevicesFailedError, match="is in maintenance"):
            await node.prepare("early", SECOND)
        await node.until("Done")
        await node.prepare("later", SECOND)


async def test_a_file_that_cannot_be_read_keeps_everything_from_beginning(node: MaintainedNode) -> None:
    node.settings.state.mkdir(parents=True)
    (node.settings.state / FILE_NAME).write_text('{"records": [{}]}')
    node.put(maintenance())
    async with node.running():
        work = await node.until("Waiting")
        assert work.message.startswith(f"{node.settings.state / FILE_NAME} cannot be read")
        assert node.backend.acts == []


# Hooks


async def test_a_node_without_a_folder_of_hooks_says_so(node: MaintainedNode) -> None:
    async with node.running():
        node.put(maintenance(then="Hook", hook="flash"))
        await node.until("Waiting", says="no folder of hooks")


async def test_a_hook_runs_for_a_free_card_and_the_card_is_verified(node: MaintainedNode, tmp_path: Path) -> None:
    add_hook(node, tmp_path, 'echo "flashed $KERF_CARD_UUID $KERF_CARD_PCI_ADDRESS on $KERF_NODE"')
    async with node.running():
        node.put(maintenance(then="Hook", hook="flash"))
        work = await node.until("Done")
        assert work.message == "hook flash: ended with exit code 0: flashed GPU-1 0000:01:00.0 on node-1"
        assert not node.is_withheld()


async def test_a_hook_that_fails_leaves_the_card_withheld_with_its_last_lines(
    node: MaintainedNode, tmp_path: Path
) -> None:
    add_hook(node, tmp_path, "echo wrong firmware; exit 2")
    async with node.running():
        node.put(maintenance(then="Hook", hook="flash"))
        work = await node.until("Failed")
        assert work.message == f"hook flash: ended with exit code 2: wrong firmware; {WHAT_TO_DO}"
        assert (node.is_withheld(), node.record(KEY) is not None) == (True, True)


async def test_what_a_status_says_to_do_is_not_lost_behind_a_long_error(node: MaintainedNode) -> None:
    node.backend.act_errors = [HardwareRefusedError("x" * 2000)]
    async with node.running():
        node.put(maintenance())
        message = (await node.until("Failed")).message
        assert message.endswith(f"; {WHAT_TO_DO}")
        assert len(message) == 1024


async def test_a_hook_waits_for_who_has_the_card_open_as_every_act(node: MaintainedNode, tmp_path: Path) -> None:
    add_hook(node, tmp_path, f"echo run >> {tmp_path}/runs")
    node.backend.holders = {"GPU-1": ["dcgm (7)"], "GPU-0": ["other (9)"]}
    async with node.running():
        node.put(maintenance(then="Hook", hook="flash"))
        await node.until("Waiting", says="the card is held open by dcgm (7): end them")
        await anyio.sleep(60)
        assert not (tmp_path / "runs").exists()
        node.backend.holders["GPU-1"] = []
        await node.until("Done")
        assert (tmp_path / "runs").read_text() == "run\n"


async def test_a_hook_that_cannot_be_run_is_waited_for(node: MaintainedNode, tmp_path: Path) -> None:
    add_hook(node, tmp_path, "true")
    hook = tmp_path / "hooks/flash"
    hook.chmod(0o757)
    async with node.running():
        node.put(maintenance(then="Hook", hook="flash"))
        await node.until("Waiting", says="others than root may write hook")
        assert (node.is_withheld(), node.record()) == (True, None)
        hook.chmod(0o755)
        await node.until("Done")


def add_hook(node: MaintainedNode, tmp_path: Path, script: str) -> None:
    node.hooks = tmp_path / "hooks"
    node.hooks.mkdir(mode=0o755)
    path = node.hooks / "flash"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def lost(card: str) -> HealthChange:
    return HealthChange(card_uuid=card, partition=None, state=HealthState.UNHEALTHY, reason="row remapping is due")
