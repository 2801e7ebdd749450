"""What random schedules have found, told one by one."""

import os
from collections.abc import Awaitable, Callable, Iterator

import anyio
import pynvml
import pytest

from kerf_dra.api.model.names import ClaimRef
from kerf_dra.driver.kubeletplugin.cluster.claim_end import ANSWERS_ALONE
from kerf_dra.driver.kubeletplugin.inventory.state.refusals import HOLD_S, REFUSALS
from kerf_dra.driver.partitions.geometry import Partition
from tests.fakes.claims import claim
from tests.fakes.nvml import NEEDS_COMPILER
from tests.ownership.history import Actor, Answered, End, Ended, Outcome, Used
from tests.runtime.virtual_time import pass_time
from tests.schedules.player import player_in_memory
from tests.schedules.pods import Pod
from tests.schedules.schedule import GRACE_S, Schedule

pytestmark = NEEDS_COMPILER

DEVICE = "gpu-0-1g-10gb-at-2"
OTHER = "gpu-0-1g-10gb-at-4"
ENOUGH_S = 60.0
"""For calls to hardware, a survey and a publication."""


@pytest.fixture(autouse=True)
def environment_of_one_test() -> Iterator[None]:
    """Take back the choice of a machine after the test."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


def tell(story: Callable[[Schedule], Awaitable[None]]) -> None:
    """Tell a story of a node with one H100, whose plugin runs, and has a pod."""

    async def tell_it(schedule: Schedule) -> None:
        async with anyio.create_task_group() as schedule.tasks:
            await schedule.start()
            schedule.is_resting = True  # the kubelet waits for answers
            made = claim("a", DEVICE, uid="a-1")
            schedule.cluster.add(made)
            schedule.pods["a"] = Pod(claim=made)
            schedule._allocated(made)
            await pass_time(ENOUGH_S)
            await story(schedule)
            schedule.kill()
            schedule.tasks.cancel_scope.cancel()
        schedule.check()

    with player_in_memory() as player:
        player.play(0, tell_it)


async def call(schedule: Schedule, pod: str = "a") -> Outcome:
    """Have the kubelet call for the pod; returns what it was answered."""
    schedule.call(pod)
    await pass_time(ENOUGH_S)
    return next(event.outcome for event in reversed(schedule.judge.latest) if isinstance(event, Answered))


def test_a_prepare_is_not_answered_from_the_record_while_nobody_knows_what_is_on_the_card() -> None:
    """A driver of another version was loaded: the partition was gone, and the plugin could not see it."""

    async def story(schedule: Schedule) -> None:
        assert await call(schedule) is Outcome.DONE
        with schedule.by(Actor.MACHINE):
            schedule.cards.machine.reload_driver("999.1")
        assert await call(schedule) is Outcome.FAILED
        with schedule.by(Actor.MACHINE):
            schedule.cards.machine.reload_driver()
        await pass_time(ENOUGH_S)
        assert await call(schedule) is Outcome.DONE
        assert [one.place for one in schedule.cards.list_instances().values()] == [schedule.cards.places[DEVICE]]

    tell(story)


def test_what_a_claim_has_left_is_kept_when_what_it_has_lost_cannot_be_made_again() -> None:
    """The failed prepare took back all that the claim had, with which its pod may have run."""

    async def story(schedule: Schedule) -> None:
        create = "nvmlGpuInstanceCreateComputeInstance"
        made = claim("b", OTHER, "gpu-0-1g-10gb-at-6", uid="b-1")
        schedule.cluster.add(made)
        schedule.pods["b"] = Pod(claim=made)
        schedule._allocated(made)
        assert await call(schedule, "b") is Outcome.DONE
        both = {schedule.cards.places[name] for name in (OTHER, "gpu-0-1g-10gb-at-6")}
        lost, kept = schedule.cards.list_instances().values()
        with schedule.by(Actor.HAND):
            schedule.cards.remove_by_hand(lost)
        schedule.cards.machine.add_fault(create, error=pynvml.NVML_ERROR_UNKNOWN, times=3)
        for _ in range(2):
            assert await call(schedule, "b") is Outcome.FAILED
            assert list_places(schedule) == {kept.place}
        await schedule.kill_process()
        await schedule.start()
        await pass_time(ENOUGH_S)
        assert await call(schedule, "b") is Outcome.FAILED
        assert await call(schedule, "b") is Outcome.DONE
        assert list_places(schedule) == both

    tell(story)


def test_a_claim_that_has_a_whole_card_is_not_given_it_again_after_somebody_has_cut_it() -> None:
    """The kubelet's next call was answered from the record, and the container saw what somebody else had made."""
    card = "gpu-0"

    async def story(schedule: Schedule) -> None:
        made = claim("b", card, uid="b-1")
        schedule.cluster.add(made)
        schedule.pods["b"] = Pod(claim=made)
        schedule._allocated(made)
        assert await call(schedule, "b") is Outcome.DONE
        with schedule.by(Actor.HAND):
            schedule.cards.switch_mode_by_hand(0, pynvml.NVML_DEVICE_MIG_ENABLE)
            schedule.cards.cut_by_hand(schedule.cards.places[OTHER], is_complete=True)
        assert await call(schedule, "b") is Outcome.FAILED
        (cut,) = schedule.cards.list_instances().values()
        with schedule.by(Actor.HAND):
            schedule.cards.remove_by_hand(cut)
        await pass_time(ENOUGH_S)
        assert await call(schedule, "b") is Outcome.DONE
        assert not schedule.cards.is_mig_on(0)

    tell(story)


def list_places(schedule: Schedule) -> set[Partition]:
    return {one.place for one in schedule.cards.list_instances().values()}


def test_a_card_that_did_not_answer_at_a_start_is_discovered_soon_after_it_does() -> None:
    """A claim that had lost its partition got none before the next discovery, five minutes later."""

    async def story(schedule: Schedule) -> None:
        assert await call(schedule) is Outcome.DONE
        await schedule.kill_process()
        with schedule.by(Actor.MACHINE):
            schedule.cards.machine.reload_driver()
            schedule.cards.machine.drop_card(0)
        await schedule.start()
        await pass_time(ENOUGH_S)
        assert await call(schedule) is Outcome.FAILED
        with schedule.by(Actor.MACHINE):
            schedule.cards.machine.restore_card(0)
        await call(schedule)
        assert await call(schedule) is Outcome.DONE
        assert list_places(schedule) == {schedule.cards.places[DEVICE]}

    tell(story)


def test_what_a_pod_runs_with_is_not_taken_at_once_when_its_claim_is_allocated_otherwise() -> None:
    """The prepare of the other devices removed the partition of a pod that the kubelet listed."""

    async def story(schedule: Schedule) -> None:
        schedule.kubelet_lists_claims = True
        assert await call(schedule) is Outcome.DONE
        before = schedule.pods["a"].claim
        made = claim("a", OTHER, uid=before.metadata.uid)
        schedule.note(Ended(at=schedule.now, claim=before.metadata.uid, how=End.DEALLOCATED))
        schedule.cluster.add(made)
        schedule.pods["a"].claim = made
        schedule._allocated(made)
        schedule.call("a")
        await pass_time(GRACE_S / 2)
        both = {schedule.cards.places[name] for name in (DEVICE, OTHER)}
        assert list_places(schedule) == both
        await pass_time(GRACE_S)
        assert list_places(schedule) == {schedule.cards.places[OTHER]}

    tell(story)


def test_a_claim_that_the_kubelet_forgot_is_taken_back_though_pods_use_another_of_its_name() -> None:
    """It was looked up every ten minutes only, as one that pods use: the kubelet names no UIDs."""

    async def story(schedule: Schedule) -> None:
        schedule.kubelet_lists_claims = True
        assert await call(schedule) is Outcome.DONE
        schedule.note(Used(at=schedule.now, claim="a-1", is_used=False))
        schedule._deleted("a")
        made = claim("a", OTHER, uid="a-2")
        schedule.cluster.add(made)
        schedule.pods["a"] = Pod(claim=made)
        schedule._allocated(made)
        assert await call(schedule) is Outcome.DONE
        await pass_time(3 * GRACE_S)
        assert list_places(schedule) == {schedule.cards.places[OTHER]}

    tell(story)


def test_without_the_api_server_a_claim_whose_place_is_held_is_not_looked_up_without_a_pause() -> None:
    """Each look at the held place had the next one follow at once: the plugin asked as fast as it was refused."""
    most = 200

    async def story(schedule: Schedule) -> None:
        schedule.cards.machine.start_process(0, 4711)
        for _ in range(REFUSALS - 1):
            schedule.call("a")
            await pass_time(0.5)
        reads = schedule.cluster.reads
        schedule.cluster.is_down = True
        read_claim = schedule.cluster.read_claim

        async def read_or_end(held: ClaimRef, **asked: str | None) -> object:
            if schedule.cluster.reads - reads > most:
                schedule.kill()  # else time would stand still for ever
            return await read_claim(held, **asked)

        schedule.cluster.read_claim = read_or_end  # type: ignore[method-assign, assignment]
        await pass_time(ENOUGH_S)
        assert 0 < schedule.cluster.reads - reads < most

    tell(story)


def test_the_taint_of_a_refusal_ends_in_time_whatever_the_clock_of_the_node_is_set_to() -> None:
    """The clock was set back by a day, and the placement got no claims for a day."""

    async def story(schedule: Schedule) -> None:
        create = "nvmlDeviceCreateGpuInstanceWithPlacement"
        schedule.cards.machine.add_fault(create, error=pynvml.NVML_ERROR_UNKNOWN, times=None)
        for _ in range(REFUSALS):
            assert await call(schedule) is Outcome.FAILED
        assert schedule.process is not None
        assert schedule.process.plugin is not None
        refusals = schedule.process.plugin.state.restrictions.refusals
        assert {device.device for device in refusals.placements} == {DEVICE}
        schedule.cards.machine.clear_faults()
        schedule.wall_offset_s -= 86400.0
        await pass_time(HOLD_S + ENOUGH_S)
        assert not refusals.placements
        assert await call(schedule) is Outcome.DONE

    tell(story)


def test_a_node_is_not_at_rest_while_what_a_claim_that_is_gone_has_left_is_released() -> None:
    """Rest was judged between the ends of its two partitions, of which the second was told as a leak (546554840)."""

    async def story(schedule: Schedule) -> None:
        schedule.kubelet_lists_claims = False
        assert await call(schedule) is Outcome.DONE
        assert schedule.is_served()
        schedule._deleted("a")
        assert not schedule.is_served()
        await pass_time(ANSWERS_ALONE * GRACE_S + ENOUGH_S)
        assert schedule.is_served()

    tell(story)


def test_a_node_is_at_rest_though_a_pod_waits_for_what_another_has() -> None:
    async def story(schedule: Schedule) -> None:
        assert not schedule.is_served()
        assert await call(schedule) is Outcome.DONE
        made = claim("b", DEVICE, uid="b-1")
        schedule.cluster.add(made)
        schedule.pods["b"] = Pod(claim=made)
        schedule._allocated(made)
        assert await call(schedule, "b") is Outcome.FAILED
        assert schedule.is_served()
        schedule._end("a")
        assert not schedule.is_served()
        assert await call(schedule) is Outcome.DONE
        assert not schedule.is_served()
        assert await call(schedule, "b") is Outcome.DONE
        assert schedule.is_served()

    tell(story)
