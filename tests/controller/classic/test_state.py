"""The controller's state of claims: the newest of caches and the server's answers."""

from msgspec.structs import replace

from kerf_dra.driver.controller.classic.usage import usage_of_results
from tests.controller.classic.cluster_builder import ClusterBuilder, claim
from tests.controller.classic.test_claims import HELD
from tests.controller.classic.test_interchangeable_nodes import allocation
from tests.controller.classic.test_reconciler import ALLOCATE, CLAIM, SteppedController


def test_the_newer_of_cache_and_answer_counts() -> None:
    builder = ClusterBuilder()
    builder.claim(version="5")
    builder.view.assume(claim(version="9", allocation=HELD))
    assert builder.view.usage.on("n1")
    builder.claim(version="7")
    assert builder.view.claim(CLAIM) == claim(version="9", allocation=HELD)
    builder.claim(version="10")
    assert builder.view.claim(CLAIM) == claim(version="10")
    assert not builder.view.usage.on("n1")
    builder.view.assume(claim(version="9", allocation=HELD))
    assert not builder.view.usage.on("n1")


def test_a_late_change_counts_for_its_claim_although_the_name_is_a_later_claims_by_now() -> None:
    # found by test_schedules.py; until the watch showed the first claim's end, its devices stayed in use
    builder = ClusterBuilder()
    builder.claim(version="5", allocation=HELD)
    later = claim(version="9")
    builder.view.assume(replace(later, metadata=replace(later.metadata, uid="another")))
    assert builder.view.usage.on("n1")
    builder.claim(version="7")
    assert not builder.view.usage.on("n1")


def test_a_late_answer_counts_for_its_claim_although_the_name_is_a_later_claims_by_now() -> None:
    # found by 10,000 schedules; what the first claim held counts until its end is seen
    builder = ClusterBuilder()
    builder.claim(version="5")
    later = claim(version="9")
    builder.view.assume(replace(later, metadata=replace(later.metadata, uid="another")))
    builder.view.assume(claim(version="6", allocation=HELD))
    assert builder.view.usage.on("n1")
    builder.remove_claim(CLAIM)
    assert not builder.view.usage.on("n1")
    builder.view.assume(claim(version="6", allocation=HELD))
    assert not builder.view.usage.on("n1")


def test_an_answer_about_a_claim_that_no_cache_has_yet_counts() -> None:
    builder = ClusterBuilder()
    builder.view.assume(claim(allocation=HELD))
    assert builder.view.usage.on("n1")
    builder.claim(version="2", allocation=HELD)
    builder.remove_claim(CLAIM)
    assert not builder.view.usage.on("n1")


def test_a_claim_of_the_same_name_takes_over_nothing_where_a_list_shows_it_in_place_of_the_first() -> None:
    # the informer tells both, the end and the beginning; schedules that told one change saw devices in use for ever
    builder = ClusterBuilder()
    builder.claim(version="5", allocation=HELD)
    later = claim(version="9")
    builder.put_claim(replace(later, metadata=replace(later.metadata, uid="another")))
    assert not builder.view.usage.on("n1")


def missed(builder: ClusterBuilder) -> None:
    """A new leader lists a claim that came while its watch was away, and that goes before it is back."""
    builder.node("n1")
    builder.claims_version = 8
    builder.view.assume(claim(version="9", allocation=HELD, immediate=True))
    builder.claims_version = 11


def test_a_claim_that_came_and_went_while_the_watch_was_away_holds_nothing() -> None:
    # found by schedules whose watches break often: its devices stayed in use for as long as the controller ran
    builder = ClusterBuilder()
    missed(builder)
    assert builder.view.usage.on("n1")
    builder.view.forget_missed()
    assert not builder.view.usage.on("n1")
    assert builder.view.claim(CLAIM) is None
    builder.view.assume(claim(version="10", allocation=HELD))
    assert not builder.view.usage.on("n1"), "an answer may be late"


def test_a_claim_whose_watch_is_still_away_keeps_its_devices_however_long_that_lasts() -> None:
    builder = ClusterBuilder()
    missed(builder)
    builder.claims_version = 8
    builder.clock.now += 3600
    builder.view.forget_missed()
    assert builder.view.usage.on("n1")


def test_a_claim_that_the_watch_has_shown_since_keeps_its_devices() -> None:
    builder = ClusterBuilder()
    missed(builder)
    builder.claim(version="9", allocation=HELD)
    builder.view.forget_missed()
    assert builder.view.usage.on("n1")


def test_a_claim_that_can_no_longer_be_read_keeps_its_devices() -> None:
    builder = ClusterBuilder(unknown_claims=lambda: [CLAIM])
    missed(builder)
    builder.view.forget_missed()
    assert builder.view.usage.on("n1")


def test_without_numbers_as_versions_a_claim_keeps_its_devices() -> None:
    builder = ClusterBuilder()
    builder.view.assume(claim(version="x", allocation=HELD))
    builder.view.forget_missed()
    assert builder.view.usage.on("n1")


def test_a_later_claim_of_a_missed_ones_name_waits_on() -> None:
    builder = ClusterBuilder()
    missed(builder)
    later = claim(version="10", immediate=True)
    builder.put_claim(replace(later, metadata=replace(later.metadata, uid="another")))
    builder.view.forget_missed()
    assert not builder.view.usage.on("n1")
    assert CLAIM in builder.view.waiting
    assert builder.view.claim(CLAIM) is builder.stores.claims.get(CLAIM)


def test_an_answer_that_comes_after_the_claims_end_holds_nothing() -> None:
    """The claim is allocated, stripped of its finalizer and deleted, and the watch is faster than the answer."""
    stepped = SteppedController()
    stepped.claim(immediate=True)
    work = stepped.reconciler.reconcile_claim(CLAIM)
    stop = work.send(None)
    while (stop.call, stop.when) != (ALLOCATE, "after"):
        stop = work.send(None)
    stepped.server.change("claim", metadata={"finalizers": None})
    stepped.server.delete("claim")
    stepped.builder.remove_claim(CLAIM)
    try:
        work.send(None)
    except StopIteration:
        pass
    assert not stepped.builder.view.usage.on("n1")


def test_what_is_written_while_it_is_still_reserved_counts_once() -> None:
    """Nor is the node looked at again for it."""
    builder = ClusterBuilder()
    builder.node("n1")
    held = allocation("n1", "gpu-0-1g-10gb-me-at-0")
    builder.view.usage.reserve(builder.claim().metadata.uid, usage_of_results(held.devices.results))
    reserved = builder.view.state("n1")
    builder.view.assume(claim(version="9", allocation=held))
    assert builder.view.state("n1") is reserved
    builder.view.usage.unreserve(claim().metadata.uid)
    assert builder.view.state("n1") is reserved
    builder.claim(version="10")
    assert builder.view.state("n1").signature.free != reserved.signature.free
