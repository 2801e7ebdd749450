"""How decisions are carried out: the order of writes, and what a failed write leaves (C-4 to C-19, S-15 to S-17)."""

from typing import Any

import pytest

from api.model.names import ObjectRef
from api.resource.resource_handle import HandleTooLargeError
from api.resource.v1alpha2 import KINDS
from driver.controller.classic.outcomes import Outcome
from driver.controller.classic.reconciler import FENCE, NotLeadingError, Syncing
from driver.kube.http.errors import ConflictError, UnreachableError
from tests.controller.classic.hardware import gpu
from tests.controller.classic.scene import FINALIZER, Scene, claim, consumer, context, pod
from tests.controller.classic.server import Server, SteppedApi, run
from tests.controller.classic.test_claims import HELD

CLAIM = ObjectRef("ns", "claim")
POD = ObjectRef("ns", "pod")


class Play:
    """One controller that leads, with one node and the class ``gpu``."""

    def __init__(self) -> None:
        self.server = Server(leader="x")
        self.scene = Scene()
        self.scene.node("n1")
        self.scene.resource_class("gpu", {"maxPods": 2})
        self.syncing = Syncing(SteppedApi(self.server, "x"), KINDS, self.scene.world)

    def claim(self, name: str = "claim", **fields: Any) -> None:
        self.server.put(claim(name, **fields))
        self.see()

    def see(self) -> None:
        """The caches are up to date."""
        for value in self.server.claims():
            self.scene.put_claim(value)

    def select(self, **fields: Any) -> None:
        """The scheduler selects n1 for the pod."""
        self.server.pods[POD] = pod(**fields)
        self.server.put_context(context(selected="n1", potential=("n1", "n9")))
        self.scene.caches.contexts.put(self.server.contexts[POD])

    def of_claim(self, cut: Any = None, calls: list[str] | None = None) -> tuple[Any, list[str]]:
        return run(self.syncing.sync_claim(CLAIM), cut, calls)

    def of_context(self, cut: Any = None) -> tuple[Any, list[str]]:
        return run(self.syncing.sync_context(POD), cut)


@pytest.fixture
def play() -> Play:
    return Play()


MARK, ALLOCATE = "patch claim ns/claim", "patch status ns/claim"


def test_the_finalizer_is_written_before_the_allocation(play: Play) -> None:
    # C-18: and between the two the leader makes sure that it leads
    play.claim(immediate=True)
    ended, calls = play.of_claim()
    assert (ended.rule, calls) == ("C-18", [MARK, "get lease", ALLOCATE])
    held = play.server.claim("claim")
    assert held is not None
    assert FINALIZER in held.metadata.finalizers
    assert held.status.driver_name == "kerf.dev"


def test_a_finalizer_that_is_there_is_not_written_again(play: Play) -> None:
    play.claim(immediate=True, finalizers=(FINALIZER,))
    assert play.of_claim()[1] == ["get lease", ALLOCATE]


def test_without_a_finalizer_nothing_is_allocated(play: Play) -> None:
    # C-16
    play.claim(immediate=True)
    with pytest.raises(UnreachableError):
        play.of_claim((MARK, "before"))
    held = play.server.claim("claim")
    assert held is not None
    assert held.status.allocation is None
    assert play.of_claim()[0].rule == "C-18", "and the next pass begins anew"


def test_what_cannot_be_written_at_all_leaves_no_finalizer(play: Play) -> None:
    # a handle holds 16 KiB, and a look at 300 cards takes more
    play.scene.node("n1", *(gpu("n1", index) for index in range(300)))
    play.scene.resource_class("gpu", {"monitor": True})
    play.claim(immediate=True)
    calls: list[str] = []
    with pytest.raises(HandleTooLargeError):
        play.of_claim(None, calls)
    assert calls == []
    assert not play.scene.world.holdings.is_reserved("claim-claim")


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_allocation_whose_answer_is_lost_is_neither_lost_nor_doubled(play: Play, when: str) -> None:
    # C-19, T-E idempotence: until it is known what became of the write the device is taken
    play.claim(immediate=True)
    with pytest.raises(UnreachableError):
        play.of_claim((ALLOCATE, when))
    assert play.scene.world.holdings.is_reserved("claim-claim")
    play.of_claim()
    held = play.server.claim("claim")
    assert held is not None
    assert held.status.allocation is not None
    play.see()
    assert play.of_claim()[0].rule == "C-10"
    assert not play.scene.world.holdings.is_reserved("claim-claim")


def test_the_allocation_is_cleared_before_the_finalizer_goes(play: Play) -> None:
    # C-4: other finalizers stay, in their order
    play.claim(finalizers=("a/b", FINALIZER, "c/d"), allocation=HELD, deallocate=True)
    ended, calls = play.of_claim()
    assert (ended.rule, calls) == ("C-4", [ALLOCATE, MARK])
    held = play.server.claim("claim")
    assert held is not None
    assert held.metadata.finalizers == ("a/b", "c/d")
    assert (held.status.allocation, held.status.driver_name, held.status.deallocation_requested) == (None, "", False)


def test_when_clearing_fails_nothing_is_changed(play: Play) -> None:
    # C-6
    play.claim(finalizers=(FINALIZER,), allocation=HELD, deleted=True)
    with pytest.raises(UnreachableError):
        play.of_claim((ALLOCATE, "before"))
    assert play.of_claim()[0].rule == "C-4"
    assert play.server.claim("claim") is None


def test_when_only_the_finalizer_is_left_it_goes_in_the_next_pass(play: Play) -> None:
    # C-7, C-8
    play.claim(finalizers=(FINALIZER,), allocation=HELD, deleted=True)
    with pytest.raises(UnreachableError):
        play.of_claim((MARK, "before"))
    assert play.of_claim()[0].rule == "C-8"
    assert play.server.claim("claim") is None


def test_a_claim_that_changed_meanwhile_is_not_written_over(play: Play) -> None:
    # C-19, Q-11
    play.claim(immediate=True)
    play.server.change("claim", metadata={"labels": {"a": "b"}})
    with pytest.raises(ConflictError):
        play.of_claim()
    assert not play.scene.world.holdings.is_reserved("claim-claim"), "it is certain that nothing was written"


def test_allocation_and_reservation_for_the_pod_are_one_write(play: Play) -> None:
    # S-15, then S-17
    play.claim()
    play.select()
    ended, calls = play.of_context()
    assert (ended.rule, ended.outcome) == ("S-15", Outcome.PERIODIC)
    assert calls == ["get pod ns/pod", MARK, "get lease", ALLOCATE, "patch context ns/pod"]
    held = play.server.claim("claim")
    assert held is not None
    assert held.status.reserved_for == (consumer(),)
    assert play.server.contexts[POD].status.resource_claims[0].unsuitable_nodes == ("n9",)


def test_claims_of_a_pod_are_all_marked_before_any_is_allocated(play: Play) -> None:
    # S-15, S-16, Q-14: what is written stays, the rest follows, and only then the report
    play.claim()
    play.claim("other")
    play.select(claims={"a": "claim", "b": "other"})
    with pytest.raises(UnreachableError):
        play.of_context(("patch status ns/other", "before"))
    first, second = play.server.claim("claim"), play.server.claim("other")
    assert first is not None
    assert second is not None
    assert (first.status.allocation is not None, second.status.allocation) == (True, None)
    assert play.server.contexts[POD].status.resource_claims == ()
    play.of_context()
    second = play.server.claim("other")
    assert second is not None
    assert second.status.allocation is not None


def test_a_pod_that_is_gone_is_told_of_and_asked_for_again(play: Play) -> None:
    # S-4
    play.claim()
    play.select()
    play.server.pods.clear()
    ended, calls = play.of_context()
    assert (ended.rule, ended.outcome, calls) == ("S-4", Outcome.REQUEUE, ["get pod ns/pod"])


def test_who_does_not_lead_any_more_writes_no_allocation(play: Play) -> None:
    play.claim(immediate=True)
    play.server.leader = "y"
    with pytest.raises(NotLeadingError):
        play.of_claim()
    held = play.server.claim("claim")
    assert held is not None
    assert held.status.allocation is None


def test_a_new_leader_makes_the_writes_of_its_predecessor_fail(play: Play) -> None:
    play.claim(immediate=True)
    writing = play.syncing.sync_claim(CLAIM)
    while (stop := writing.send(None)).call != ALLOCATE:
        pass
    successor = Syncing(SteppedApi(play.server, "y"), KINDS, Scene().world)
    play.server.leader = "y"
    _, calls = run(successor.take_over("second"))
    assert calls == ["list claims", MARK]
    held = play.server.claim("claim")
    assert held is not None
    assert held.metadata.annotations == {FENCE: "second"}
    assert stop.when == "before"
    with pytest.raises(ConflictError):
        writing.send(None)


def test_claims_that_nobody_has_begun_are_left_alone_by_a_new_leader(play: Play) -> None:
    play.claim()
    play.claim("done", finalizers=(FINALIZER,), allocation=HELD)
    assert run(play.syncing.take_over("second"))[1] == ["list claims"]


@pytest.mark.parametrize("immediate", [True, False])
@pytest.mark.parametrize("killed_at", range(12))
def test_killed_at_any_moment_a_successor_finishes_what_was_begun(killed_at: int, immediate: bool) -> None:
    # NE-01: every stop is before or after one call to the API server
    play = Play()
    play.claim(immediate=immediate)
    play.select()
    begun = play.syncing.sync_claim(CLAIM) if immediate else play.syncing.sync_context(POD)
    try:
        for _ in range(killed_at + 1):
            begun.send(None)
    except StopIteration:
        pass
    begun.close()

    successor = Play()
    successor.server = play.server
    successor.syncing = Syncing(SteppedApi(play.server, "x"), KINDS, successor.scene.world)
    successor.see()
    successor.scene.caches.contexts.put(play.server.contexts[POD])
    run(successor.syncing.take_over("second"))
    successor.see()
    successor.of_claim()
    successor.of_context()
    held = play.server.claim("claim")
    assert held is not None
    assert held.status.allocation is not None
    assert FINALIZER in held.metadata.finalizers
    assert [entry.uid for entry in held.status.reserved_for] == ([] if immediate else ["pod-pod"])
