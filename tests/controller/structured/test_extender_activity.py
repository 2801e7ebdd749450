"""Replicas report to one another when a scheduler asked one of them, by the Lease of the leader."""

from datetime import timedelta

import pytest

from kerf_dra.api.core.v1 import LeaseSpec
from kerf_dra.driver.controller.structured.extender_activity import ASKED_AT, ExtenderActivity
from kerf_dra.driver.controller.structured.placement_verdict import LATELY, ExtenderState
from kerf_dra.driver.kube.http.errors import UnreachableError
from tests.controller.structured.lease_server import LeaseServer


def state_of(activity: ExtenderActivity) -> ExtenderState:
    return activity.state


async def test_what_one_replica_is_asked_every_replica_knows() -> None:
    server = LeaseServer()
    leader, asked = server.replica(), server.replica()
    assert not await leader.exchange()
    assert state_of(leader) is ExtenderState.NOT_ASKED
    asked.note_asked()
    assert state_of(asked) is ExtenderState.ASKED, "at once, before anything is written"
    assert await asked.exchange()
    assert await leader.exchange(), "from here on the status of classes is another one"
    assert state_of(leader) is ExtenderState.ASKED
    assert not await leader.exchange()
    assert state_of(server.replica()) is ExtenderState.NOT_ASKED
    restarted = server.replica()
    assert await restarted.exchange(), "it is known after a restart, too"


async def test_the_lease_stays_that_of_its_leader_and_keeps_what_it_has() -> None:
    server = LeaseServer()
    asked = server.replica()
    asked.note_asked()
    await asked.exchange()
    assert server.lease is not None
    assert server.lease.spec == LeaseSpec(holder_identity="leader")
    assert server.lease.metadata.labels == {"a": "b"}


async def test_a_scheduler_that_asks_all_day_is_reported_every_ten_minutes() -> None:
    server = LeaseServer()
    asked = server.replica()
    for _ in range(60 * 2):  # one hour, in rounds of thirty seconds
        asked.note_asked()
        await asked.exchange()
        server.now += timedelta(seconds=30)
    assert server.writes == 6


async def test_a_request_that_is_too_long_ago_counts_no_more_in_any_replica() -> None:
    server = LeaseServer()
    leader, asked = server.replica(), server.replica()
    asked.note_asked()
    await asked.exchange()
    await leader.exchange()
    server.now += LATELY + timedelta(seconds=1)
    assert await leader.exchange()
    assert (leader.state, asked.state) == (ExtenderState.NOT_ASKED_LATELY,) * 2


async def test_a_lease_that_the_leader_renews_at_that_moment_is_written_in_a_later_round() -> None:
    server = LeaseServer(is_contended=True)
    asked = server.replica()
    asked.note_asked()
    await asked.exchange()
    assert server.writes == 0
    server.is_contended = False
    await asked.exchange()
    assert server.writes == 1


async def test_without_a_lease_each_replica_knows_what_itself_is_asked() -> None:
    """No replica has led yet."""
    server = LeaseServer(lease=None)
    asked = server.replica()
    asked.note_asked()
    assert await asked.exchange()
    assert state_of(asked) is ExtenderState.ASKED


async def test_an_api_server_that_does_not_answer_is_an_error_of_the_round_only() -> None:
    server = LeaseServer(failure=UnreachableError("GET", "it starts"))
    asked = server.replica()
    asked.note_asked()
    with pytest.raises(UnreachableError):
        await asked.exchange()
    server.failure = None
    assert await asked.exchange()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ExtenderState.NOT_ASKED),
        ("yesterday", ExtenderState.NOT_ASKED),
        ("2026-11-20T12:00:00", ExtenderState.NOT_ASKED),  # of no time zone
        ("9999-01-01T00:00:00Z", ExtenderState.NOT_ASKED),
        ("2026-11-20T12:00:07Z", ExtenderState.ASKED),  # of a clock that is seconds ahead
        ("2026-11-20T11:30:00Z", ExtenderState.ASKED),
        ("0001-01-01T00:00:00+14:00", ExtenderState.NOT_ASKED_LATELY),
    ],
)
async def test_what_another_program_writes_there_counts_as_a_time_or_not_at_all(
    text: str, expected: ExtenderState
) -> None:
    server = LeaseServer()
    server.annotate(text)
    replica = server.replica()
    await replica.exchange()
    assert state_of(replica) is expected
    replica.note_asked()
    await replica.exchange()
    assert server.lease is not None
    if expected is not ExtenderState.ASKED:
        assert server.lease.metadata.annotations[ASKED_AT] == "2026-11-20T12:00:00Z", "it is replaced"
