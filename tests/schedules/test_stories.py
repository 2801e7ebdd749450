"""What random schedules have found, told one by one."""

import os
from collections.abc import Awaitable, Callable, Iterator

import anyio
import pynvml
import pytest

from driver.kubeletplugin.inventory.refusals import HOLD_S, REFUSALS
from tests.fakes.claims import claim
from tests.fakes.nvml import NEEDS_COMPILER
from tests.ownership.history import Actor, Answered, Outcome
from tests.runtime.virtual_time import pass_time
from tests.schedules.player import player_in_memory
from tests.schedules.schedule import Pod, Schedule

pytestmark = NEEDS_COMPILER

DEVICE = "gpu-0-1g-10gb-at-2"
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


async def call(schedule: Schedule) -> Outcome:
    """Have the kubelet call for the pod; returns what it was answered."""
    schedule.call("a")
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

        async def read_or_end(held: object) -> object:
            if schedule.cluster.reads - reads > most:
                schedule.kill()  # else time would stand still for ever
            return await read_claim(held)

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
        refusals = schedule.process.plugin._restrictions.refusals
        assert {device.device for device in refusals.placements} == {DEVICE}
        schedule.cards.machine.clear_faults()
        schedule.wall_offset_s -= 86400.0
        await pass_time(HOLD_S + ENOUGH_S)
        assert not refusals.placements
        assert await call(schedule) is Outcome.DONE

    tell(story)
