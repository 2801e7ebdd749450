import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from random import Random
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.kube.http.transport import HttpRequest
from kerf_dra.driver.kube.leader_election import LeaseSettings, run_as_leader
from tests.kube.memory_server import Json, MemoryServer, answering, failing, hanging, unreachable
from tests.runtime.virtual_time import VIRTUAL_TIME

LEASE = ObjectRef("kerf", "kerf-controller")
SETTINGS = LeaseSettings(duration_s=15, renew_deadline_s=10, retry_s=2)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


@pytest.fixture
def server() -> MemoryServer:
    return MemoryServer()


class Candidates:
    """Several candidates, each with its own view of one server, and a record of who leads when."""

    def __init__(self, server: MemoryServer) -> None:
        self.server = server
        self.leading: set[str] = set()
        self.terms: list[tuple[str, float]] = []
        self.began = anyio.current_time()
        self.clean_up_s = 0.0

    async def body(self, name: str) -> None:
        assert not self.leading, f"{name} leads while {self.leading} does"
        self.leading.add(name)
        self.terms.append((name, round(anyio.current_time() - self.began, 1)))
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(self.clean_up_s)
            self.leading.remove(name)

    async def run(self, name: str) -> None:
        view = View(self.server, name)
        async with view.client() as client:
            await run_as_leader(client, LEASE, name, SETTINGS, lambda: self.body(name), now=now, random=Random(name))

    @asynccontextmanager
    async def running(self, *names: str) -> AsyncIterator[dict[str, anyio.CancelScope]]:
        scopes = {name: anyio.CancelScope() for name in names}

        async def run(name: str) -> None:
            with scopes[name]:
                await self.run(name)

        async with anyio.create_task_group() as group:
            for name in names:
                group.start_soon(run, name)
            yield scopes
            group.cancel_scope.cancel()


class View(MemoryServer):
    """The same server, seen by one process: faults that name it hit it alone."""

    def __init__(self, server: MemoryServer, name: str) -> None:
        super().__init__()
        self._server = server
        self._name = name

    async def call(self, request: HttpRequest) -> bytes:
        return await self._server.call(
            HttpRequest(
                method=request.method,
                path=request.path,
                resource=self._name,
                query=request.query,
                body=request.body,
            )
        )


def only(name: str, fault: Callable[[HttpRequest], Exception | None]) -> Callable[[HttpRequest], Exception | None]:
    return lambda request: fault(request) if request.resource == name else None


def now() -> datetime:
    return datetime(2026, 11, 20, 8, 30, 0, 123456, tzinfo=UTC)


def lease(server: MemoryServer) -> Json:
    spec: Json = server.objects["leases", "kerf", "kerf-controller"]["spec"]
    return spec


async def test_the_first_candidate_makes_the_lease_and_leads(server: MemoryServer) -> None:
    candidates = Candidates(server)
    async with candidates.running("a"):
        await anyio.sleep(60)
        assert candidates.terms == [("a", 0)]
        assert lease(server) == {
            "holderIdentity": "a",
            "leaseDurationSeconds": 15,
            "acquireTime": "2026-11-20T08:30:00.123456Z",
            "renewTime": "2026-11-20T08:30:00.123456Z",
            "leaseTransitions": 0,
        }
    assert 28 <= len(server.sent("PUT")) <= 31, "one renewal every 2 s and the release"


async def test_only_one_of_several_leads_and_the_next_takes_over_as_soon_as_it_leaves(server: MemoryServer) -> None:
    candidates = Candidates(server)
    async with candidates.running("a", "b", "c") as scopes:
        await anyio.sleep(300)
        assert len(candidates.terms) == 1
        first = candidates.terms[0][0]
        scopes[first].cancel()
        await anyio.sleep(3)
        assert len(candidates.terms) == 2
        assert candidates.leading == {candidates.terms[1][0]}
        assert lease(server)["leaseTransitions"] >= 1


async def test_a_leader_that_vanishes_is_followed_after_the_duration(server: MemoryServer) -> None:
    server.put(
        "leases",
        {
            "metadata": {"name": "kerf-controller"},
            "spec": {"holderIdentity": "dead", "leaseDurationSeconds": 15, "renewTime": "2030-01-01T00:00:00.000000Z"},
        },
        "kerf",
    )
    candidates = Candidates(server)
    async with candidates.running("a"):
        await anyio.sleep(60)
    (term,) = candidates.terms
    assert 15 <= term[1] <= 18, "by the candidate's own clock: the times in the lease may come from any other"


async def test_a_restarted_process_with_the_same_identity_goes_on_at_once(server: MemoryServer) -> None:
    candidates = Candidates(server)
    server.faults.append(failing(unreachable, method="PUT"))  # its release does not arrive
    async with candidates.running("a"):
        await anyio.sleep(1)
    server.faults.clear()
    async with candidates.running("a"):
        await anyio.sleep(1)
    assert candidates.terms == [("a", 0), ("a", 1)]


@pytest.mark.parametrize("fault", [failing(hanging), failing(unreachable), failing(answering(500))])
async def test_a_leader_cut_off_from_the_server_stops_before_another_begins(server: MemoryServer, fault: Any) -> None:
    candidates = Candidates(server)
    candidates.clean_up_s = 4
    async with candidates.running("a"):
        await anyio.sleep(1)
        async with candidates.running("b"):
            await anyio.sleep(30)
            cut_off_at = anyio.current_time()
            server.faults.append(only("a", fault))
            while candidates.leading == {"a"}:  # noqa: ASYNC110  (the time is what is asked for)
                await anyio.sleep(0.1)
            assert anyio.current_time() - cut_off_at <= SETTINGS.renew_deadline_s + candidates.clean_up_s + 0.2
            await anyio.sleep(60)
            assert candidates.leading == {"b"}
            server.faults.clear()
            await anyio.sleep(60)
    assert [name for name, _ in candidates.terms] == ["a", "b"]


async def test_a_short_outage_of_the_server_costs_no_leadership(server: MemoryServer) -> None:
    candidates = Candidates(server)
    async with candidates.running("a", "b"):
        for _ in range(20):
            await anyio.sleep(20)
            server.faults = [failing(unreachable)]
            await anyio.sleep(5)
            server.faults = []
        assert len(candidates.terms) == 1


async def test_a_renewal_whose_answer_is_lost_costs_no_leadership(server: MemoryServer) -> None:
    real_call, lost = server.call, 0

    async def lose_answers(request: HttpRequest) -> bytes:
        nonlocal lost
        answer = await real_call(request)
        if request.method == "PUT" and lost < 2:
            lost += 1
            raise unreachable(request)
        return answer

    server.call = lose_answers  # type: ignore[method-assign]
    candidates = Candidates(server)
    async with candidates.running("a"):
        await anyio.sleep(60)
    assert (lost, candidates.terms) == (2, [("a", 0)])


async def test_a_leader_counts_from_before_its_renewal_was_sent(server: MemoryServer) -> None:
    """Others count from when the server has it: an answer that took long must not add to the leader's time."""
    real_call, sent_at = server.call, 0.0

    async def answer_late(request: HttpRequest) -> bytes:
        nonlocal sent_at
        answer = await real_call(request)
        if request.method == "PUT" and not sent_at:
            sent_at = anyio.current_time()
            server.faults.append(failing(unreachable))  # this was the last one that arrived
            await anyio.sleep(7)
        return answer

    candidates = Candidates(server)
    async with candidates.running("a"):
        await anyio.sleep(1)
        server.call = answer_late  # type: ignore[method-assign]
        while candidates.leading:  # noqa: ASYNC110  (the time is what is asked for)
            await anyio.sleep(0.1)
        assert anyio.current_time() - sent_at <= SETTINGS.renew_deadline_s + 0.2


async def test_a_leader_whose_lease_another_took_stops_at_its_next_renewal(server: MemoryServer) -> None:
    candidates = Candidates(server)
    async with candidates.running("a"):
        await anyio.sleep(5)
        found = server.objects["leases", "kerf", "kerf-controller"]
        server.put("leases", {**found, "spec": {**found["spec"], "holderIdentity": "thief"}}, "kerf")
        await anyio.sleep(SETTINGS.retry_s + 0.1)
        assert not candidates.leading
    assert lease(server)["holderIdentity"] == "thief", "and does not release what is not its own"


async def test_a_deleted_lease_is_made_again_by_its_leader(server: MemoryServer) -> None:
    candidates = Candidates(server)
    async with candidates.running("a"):
        await anyio.sleep(5)
        server.remove("leases", "kerf-controller", "kerf")
        await anyio.sleep(20)
        assert lease(server)["holderIdentity"] == "a"
    assert candidates.terms == [("a", 0)]


async def test_a_leader_that_stood_still_stops_before_it_does_anything_else(server: MemoryServer) -> None:
    """A frozen process comes back with all its timers due: the one that ends its leadership must come first."""
    did: list[float] = []
    began = anyio.current_time()

    async def body() -> None:
        while True:
            await anyio.sleep(1.5)
            did.append(anyio.current_time() - began)

    async with anyio.create_task_group() as group:
        client = server.client()
        group.start_soon(lambda: run_as_leader(client, LEASE, "a", SETTINGS, body, now=now, random=Random(0)))
        await anyio.sleep(5)
        freeze(60)
        server.faults.append(failing(hanging))
        await anyio.sleep(20)
        group.cancel_scope.cancel()
    assert [at for at in did if at > 60] in ([], [did[-1]]), "at most the step whose timer was first"


def freeze(seconds: float) -> None:
    """Suspend the process, while its clock goes on."""
    loop: Any = asyncio.get_running_loop()
    loop._jumping.now += seconds


async def test_what_the_body_raises_is_raised_as_it_is_and_the_lease_is_released(server: MemoryServer) -> None:
    async def body() -> None:
        await anyio.sleep(5)
        raise ValueError("a defect")

    with pytest.raises(ValueError, match="a defect"):
        await run_as_leader(server.client(), LEASE, "a", SETTINGS, body)
    assert lease(server)["holderIdentity"] == ""


async def test_a_body_that_returns_ends_the_leadership(server: MemoryServer) -> None:
    await run_as_leader(server.client(), LEASE, "a", SETTINGS, lambda: anyio.sleep(5))
    assert lease(server)["holderIdentity"] == ""


async def test_a_lease_is_released_though_its_leader_ended_during_a_renewal(server: MemoryServer) -> None:
    real_call, renewed = server.call, anyio.Event()

    async def keep_first_answer(request: HttpRequest) -> bytes:
        answer = await real_call(request)
        if request.method == "PUT" and not renewed.is_set():
            renewed.set()
            await anyio.sleep_forever()
        return answer

    server.call = keep_first_answer  # type: ignore[method-assign]
    await run_as_leader(server.client(), LEASE, "a", SETTINGS, renewed.wait)
    assert lease(server)["holderIdentity"] == ""


async def test_a_candidate_waits_out_a_server_that_is_away(server: MemoryServer) -> None:
    server.faults.append(failing(unreachable, times=20))
    candidates = Candidates(server)
    async with candidates.running("a"):
        await anyio.sleep(120)
        assert candidates.leading == {"a"}


@pytest.mark.parametrize(("duration_s", "renew_deadline_s", "retry_s"), [(10, 10, 2), (15, 10, 9), (15, 10, 0)])
def test_settings_that_would_not_keep_leaders_apart_are_refused(
    duration_s: float, renew_deadline_s: float, retry_s: float
) -> None:
    with pytest.raises(ValueError, match="must be well below"):
        LeaseSettings(duration_s=duration_s, renew_deadline_s=renew_deadline_s, retry_s=retry_s)


FAULTS = st.sampled_from(["a", "b", "c", "everybody", "leave", "steal"])
STEPS = st.lists(st.tuples(FAULTS, st.floats(0, 25), st.sampled_from([unreachable, hanging])), max_size=12)


@given(STEPS)
async def test_there_are_never_two_leaders_and_at_last_one(steps: list[tuple[str, float, Any]]) -> None:
    """``Candidates.body`` fails when two lead."""
    server = MemoryServer()
    candidates = Candidates(server)
    candidates.clean_up_s = 1
    async with candidates.running("a", "b", "c") as scopes:
        for what, seconds, how in steps:
            if (
                what == "leave"
                and len(candidates.leading) == 1
                and sum(not s.cancel_called for s in scopes.values()) > 1
            ):
                scopes[next(iter(candidates.leading))].cancel()
            elif what == "everybody":
                server.faults = [failing(how)]
            elif what in scopes:
                server.faults = [only(what, failing(how))]
            await anyio.sleep(seconds)
            server.faults = []
            await anyio.sleep(seconds / 2)
        await anyio.sleep(60)
        assert len(candidates.leading) == 1
