"""The judge finds what must never happen, and nothing in histories that are right."""

from dataclasses import replace

import pytest

from kerf_dra.driver.partitions.geometry import Partition, Placement
from tests.ownership.history import (
    Actor,
    Allocated,
    Answered,
    Appeared,
    Booted,
    Called,
    Died,
    Disappeared,
    End,
    Ended,
    Event,
    Given,
    Named,
    Operation,
    Outcome,
    Rested,
    Started,
    Unnamed,
    Used,
)
from tests.ownership.judge import Rule, judge

CARD = "GPU-0"
WHOLE = Partition(kind="gpu", card_uuid=CARD)
LEFT = Partition(kind="gpu", card_uuid=CARD, profile="2g", placement=Placement(0, 2))
FIRST = Partition(kind="gpu", card_uuid=CARD, profile="1g", placement=Placement(0, 1))
RIGHT = Partition(kind="gpu", card_uuid=CARD, profile="2g", placement=Placement(2, 2))
GRACE_S = 60.0

PLUGIN, HAND, MACHINE = Actor.PLUGIN, Actor.HAND, Actor.MACHINE


class Story:
    """A history that is told event by event, one second after the other."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.at = 0.0
        self.calls = 0

    def add(self, event: Event) -> "Story":
        self.at += 1
        self.events.append(replace(event, at=self.at))
        return self

    def wait(self, seconds: float) -> "Story":
        self.at += seconds
        return self

    def allocate(self, claim: str, *places: Partition) -> "Story":
        return self.add(Allocated(at=0, claim=claim, places=frozenset(places)))

    def end(self, claim: str, how: End = End.DELETED) -> "Story":
        return self.add(Ended(at=0, claim=claim, how=how))

    def use(self, claim: str, *, is_used: bool = True) -> "Story":
        return self.add(Used(at=0, claim=claim, is_used=is_used))

    def call(self, claim: str, operation: Operation = Operation.PREPARE) -> "Story":
        self.calls += 1
        return self.add(Called(at=0, call=self.calls, operation=operation, claim=claim))

    def answer(self, *given: tuple[Partition, str], call: int = 0, outcome: Outcome = Outcome.DONE) -> "Story":
        gifts = tuple(Given(place=place, uuid=uuid) for place, uuid in given)
        return self.add(Answered(at=0, call=call or self.calls, outcome=outcome, given=gifts))

    def make(self, identity: str, place: Partition, by: Actor = PLUGIN, uuid: str = "") -> "Story":
        self.add(Appeared(at=0, partition=identity, place=place, by=by))
        return self.add(Named(at=0, partition=identity, uuid=uuid or f"MIG-{identity}"))

    def appear(self, identity: str, place: Partition) -> "Story":
        return self.add(Appeared(at=0, partition=identity, place=place, by=PLUGIN))

    def remove(self, identity: str, by: Actor = PLUGIN) -> "Story":
        return self.add(Disappeared(at=0, partition=identity, by=by))

    def unname(self, identity: str, by: Actor) -> "Story":
        return self.add(Unnamed(at=0, partition=identity, by=by))

    def rest(self, *wanted: str) -> "Story":
        return self.add(Rested(at=0, wanted=frozenset(wanted)))

    def prepare(self, claim: str, identity: str, place: Partition) -> "Story":
        """A claim is allocated, prepared and given what was made for it."""
        self.allocate(claim, place).call(claim).make(identity, place)
        return self.answer((place, f"MIG-{identity}"))

    def unprepare(self, claim: str, identity: str) -> "Story":
        return self.call(claim, Operation.UNPREPARE).remove(identity).answer()


def held() -> Story:
    """Claim ``a`` holds the left half."""
    return Story().add(Started(at=0)).prepare("a", "one", LEFT)


def moved() -> Story:
    """Claim ``a``, which a pod uses, holds the left half, and is allocated the right one."""
    return held().use("a").end("a", End.DEALLOCATED).allocate("a", RIGHT)


def moved_late() -> Story:
    """The same, but it is allocated the right half while the prepare of the left one runs."""
    story = Story().add(Started(at=0)).allocate("a", LEFT).call("a").end("a", End.DEALLOCATED).allocate("a", RIGHT)
    return story.make("one", LEFT).answer((LEFT, "MIG-one")).use("a")


def robbed() -> Story:
    """Claim ``a`` was deleted while a pod uses it, one of its two partitions removed by hand, and it is called for."""
    story = Story().allocate("a", LEFT, RIGHT).call("a").make("one", LEFT).make("two", RIGHT)
    story.answer((LEFT, "MIG-one"), (RIGHT, "MIG-two")).use("a").end("a").remove("one", HAND)
    return story.call("a").answer(outcome=Outcome.FAILED)


def made_late(*, is_before_the_answer: bool) -> Story:
    """Claim ``a``, which a pod uses, has lost its partition; it was made anew by a call that the kubelet gave up, and
    then the claim was deleted.
    """
    story = held().use("a").remove("one", MACHINE).call("a")
    if is_before_the_answer:
        story.make("two", LEFT).answer(outcome=Outcome.UNKNOWN)
    else:
        story.answer(outcome=Outcome.UNKNOWN).make("two", LEFT)
    return story.end("a").call("a").answer(outcome=Outcome.FAILED)


def made_by_killed_plugin() -> Story:
    """Claim ``a``, which a pod uses, lost its partition, and the plugin died while it made it anew."""
    story = held().use("a").remove("one", HAND).call("a").make("two", LEFT).add(Died(at=0)).end("a").add(Started(at=0))
    return story.call("a").answer(outcome=Outcome.FAILED)


RIGHT_ONES = {
    "a claim comes and goes, and the next one has its place": held()
    .rest("a")
    .unprepare("a", "one")
    .end("a")
    .rest()
    .prepare("b", "two", LEFT)
    .rest("b"),
    "two claims side by side": held().prepare("b", "two", RIGHT).rest("a", "b"),
    "what was made for a prepare that fails is removed": Story()
    .allocate("a", LEFT)
    .call("a")
    .make("one", LEFT)
    .remove("one")
    .answer(outcome=Outcome.FAILED)
    .rest(),
    "a call that was given up goes on, and the next one joins it": Story()
    .allocate("a", LEFT)
    .call("a")
    .answer(outcome=Outcome.UNKNOWN)
    .make("one", LEFT)
    .end("a", End.DEALLOCATED)
    .allocate("a", RIGHT)
    .call("a")
    .answer((LEFT, "MIG-one")),
    "the claim is allocated otherwise in the time of the call": Story()
    .allocate("a", LEFT)
    .call("a")
    .make("one", LEFT)
    .end("a", End.DEALLOCATED)
    .answer((LEFT, "MIG-one")),
    "a process dies, and the next one finishes": Story()
    .allocate("a", LEFT)
    .call("a")
    .make("one", LEFT)
    .add(Died(at=0))
    .add(Started(at=0))
    .call("a")
    .answer((LEFT, "MIG-one"))
    .rest("a"),
    "what a hand has taken from a claim is made again without a call, and is the claim's": held()
    .remove("one", HAND)
    .make("two", LEFT)
    .rest("a"),
    "what is made again and cannot be finished is taken back": held()
    .remove("one", HAND)
    .appear("two", LEFT)
    .remove("two")
    .make("three", LEFT)
    .rest("a"),
    "a boot ends all holds": held()
    .add(Died(at=0))
    .remove("one", MACHINE)
    .add(Booted(at=0))
    .prepare("b", "two", LEFT)
    .rest("b"),
    "what a reset has taken is made anew": held()
    .remove("one", MACHINE)
    .call("a")
    .make("two", LEFT)
    .answer((LEFT, "MIG-two"))
    .rest("a"),
    "what is taken away in the time of a call need not be there at its end": Story()
    .allocate("a", LEFT)
    .call("a")
    .make("one", LEFT)
    .remove("one", MACHINE)
    .answer((LEFT, "MIG-one")),
    "the plugin takes back what nobody uses and whose claim ended a minute ago": held()
    .end("a")
    .wait(GRACE_S)
    .remove("one")
    .prepare("b", "two", LEFT)
    .rest("b"),
    "a whole card whose claim ended a minute ago gets another claim": Story()
    .allocate("a", WHOLE)
    .call("a")
    .answer((WHOLE, CARD))
    .end("a")
    .wait(GRACE_S)
    .allocate("b", WHOLE)
    .call("b")
    .answer((WHOLE, CARD)),
    "what a claim held before it was allocated otherwise is taken a minute later": moved()
    .call("a")
    .make("two", RIGHT)
    .answer((RIGHT, "MIG-two"))
    .wait(GRACE_S)
    .remove("one")
    .rest("a"),
    "the same where the answer came after the other allocation": moved_late()
    .call("a")
    .make("two", RIGHT)
    .answer((RIGHT, "MIG-two"))
    .wait(GRACE_S)
    .remove("one")
    .rest("a"),
    "what a claim held is taken a minute later though its other devices wait for it": moved()
    .call("a")
    .answer(outcome=Outcome.FAILED)
    .wait(GRACE_S)
    .remove("one")
    .call("a")
    .make("two", RIGHT)
    .answer((RIGHT, "MIG-two"))
    .rest("a"),
    "the kubelet unprepares a claim that was allocated otherwise": moved()
    .call("a")
    .make("two", RIGHT)
    .answer((RIGHT, "MIG-two"))
    .unprepare("a", "two")
    .remove("one")
    .end("a")
    .rest(),
    "what is left to a pod whose claim was deleted stays while the kubelet lists the pod": robbed().rest(),
    "what is left to a claim stays while the claim has it": robbed().use("a", is_used=False).allocate("a", LEFT).rest(),
    "a partition whose compute instance somebody has removed is removed": (
        held().unname("one", HAND).call("a").remove("one").answer(outcome=Outcome.FAILED)
    ),
    "what was made anew for it before its call was given up, too": made_late(is_before_the_answer=True).rest(),
    "what was made anew for it after that, too": made_late(is_before_the_answer=False).rest(),
    "what a killed plugin had made anew for a claim that was deleted stays while the kubelet lists the pod": (
        made_by_killed_plugin().rest()
    ),
    "what is left of what a call made that the kubelet gave up stays while the claim has it": (
        Story()
        .allocate("a", LEFT, RIGHT)
        .call("a")
        .answer(outcome=Outcome.UNKNOWN)
        .make("one", LEFT)
        .make("two", RIGHT)
        .remove("one", HAND)
        .call("a")
        .answer(outcome=Outcome.FAILED)
        .rest()
    ),
    "what somebody has made by hand stays beside claims until he removes it": Story()
    .make("his", RIGHT, HAND)
    .prepare("a", "one", LEFT)
    .rest("a")
    .remove("his", HAND),
    "claims share a partition": Story()
    .allocate("a", replace(LEFT, shared=True))
    .allocate("b", replace(LEFT, shared=True))
    .call("a")
    .make("one", replace(LEFT, shared=True))
    .answer((replace(LEFT, shared=True), "MIG-one"))
    .call("b")
    .answer((replace(LEFT, shared=True), "MIG-one"))
    .rest("a", "b"),
    "nobody can say who came last of a prepare and an unprepare at once": Story()
    .allocate("a", LEFT)
    .call("a")
    .make("one", LEFT)
    .call("a", Operation.UNPREPARE)
    .remove("one")
    .answer(call=2)
    .answer((LEFT, "MIG-one"), call=1)
    .rest(),
}
WRONG_ONES: dict[str, tuple[Rule, Story]] = {
    "two claims are given one partition": (
        Rule.ONE_OWNER,
        held().allocate("b", LEFT).call("b").answer((LEFT, "MIG-one")),
    ),
    "a claim is given what overlaps with another's": (Rule.ONE_OWNER, held().prepare("b", "two", FIRST)),
    "a claim is given the card of which another one has a part": (
        Rule.ONE_OWNER,
        held().allocate("b", WHOLE).call("b").answer((WHOLE, CARD)),
    ),
    "a share and the partition itself are given out": (
        Rule.ONE_OWNER,
        held().allocate("b", replace(LEFT, shared=True)).call("b").answer((replace(LEFT, shared=True), "MIG-one")),
    ),
    "a card is given out again while the kubelet lists its user": (
        Rule.ONE_OWNER,
        Story()
        .allocate("a", WHOLE)
        .call("a")
        .answer((WHOLE, CARD))
        .use("a")
        .end("a")
        .wait(GRACE_S)
        .allocate("b", WHOLE)
        .call("b")
        .answer((WHOLE, CARD)),
    ),
    "a claim is given what it was never allocated": (
        Rule.CLAIMED,
        Story()
        .allocate("a", RIGHT)
        .allocate("b", LEFT)
        .call("b")
        .make("one", LEFT)
        .call("a")
        .answer((LEFT, "MIG-one")),
    ),
    "a claim that was deleted before the call is given its devices": (
        Rule.CLAIMED,
        Story().allocate("a", WHOLE).end("a").call("a").answer((WHOLE, CARD)),
    ),
    "a claim is given one of its two devices": (
        Rule.CLAIMED,
        Story().allocate("a", LEFT, RIGHT).call("a").make("one", LEFT).answer((LEFT, "MIG-one")),
    ),
    "a claim is given what was never made": (
        Rule.EXISTING,
        Story().allocate("a", LEFT).call("a").answer((LEFT, "MIG-one")),
    ),
    "a claim is given what was gone before the call": (
        Rule.EXISTING,
        held().remove("one", MACHINE).call("a").answer((LEFT, "MIG-one")),
    ),
    "a claim is given the UUID of another place": (
        Rule.EXISTING,
        held().allocate("b", RIGHT).call("b").make("two", RIGHT).answer((RIGHT, "MIG-one")),
    ),
    "the plugin removes what a claim holds": (Rule.KEPT, held().remove("one")),
    "the plugin removes too early what a deleted claim holds": (
        Rule.KEPT,
        held().end("a").wait(GRACE_S - 2).remove("one"),
    ),
    "the plugin removes what a claim holds that was reserved again": (
        Rule.KEPT,
        held().end("a", End.UNRESERVED).allocate("a", LEFT).wait(GRACE_S).remove("one"),
    ),
    "the plugin removes what a pod of the kubelet uses": (
        Rule.KEPT,
        held().use("a").end("a").wait(GRACE_S).remove("one"),
    ),
    "the plugin removes at once what a claim held before it was allocated otherwise": (
        Rule.KEPT,
        moved().call("a").remove("one"),
    ),
    "the plugin removes it at once where the answer came after the other allocation": (
        Rule.KEPT,
        moved_late().call("a").remove("one"),
    ),
    "the plugin removes it too early, though the claim has its other devices": (
        Rule.KEPT,
        moved().call("a").make("two", RIGHT).answer((RIGHT, "MIG-two")).wait(GRACE_S - 10).remove("one"),
    ),
    "the plugin removes it too early where the call came before the other allocation": (
        Rule.KEPT,
        held()
        .call("a")
        .end("a", End.DEALLOCATED)
        .allocate("a", RIGHT)
        .make("two", RIGHT)
        .answer((RIGHT, "MIG-two"))
        .remove("one"),
    ),
    "the plugin removes what a claim held that was allocated otherwise, and nobody has called for that": (
        Rule.KEPT,
        moved().wait(GRACE_S).remove("one"),
    ),
    "another claim is given what a claim held before it was allocated otherwise": (
        Rule.ONE_OWNER,
        moved().call("a").allocate("b", LEFT).call("b").answer((LEFT, "MIG-one")),
    ),
    "a new process removes what a claim holds": (
        Rule.KEPT,
        held().add(Died(at=0)).add(Started(at=0)).remove("one"),
    ),
    "the plugin removes what somebody made by hand": (Rule.FOREIGN_KEPT, Story().make("his", LEFT, HAND).remove("his")),
    "a claim is given what somebody made by hand": (
        Rule.FOREIGN_WITHHELD,
        Story().make("his", LEFT, HAND).allocate("a", LEFT).call("a").answer((LEFT, "MIG-his")),
    ),
    "a claim is given a card on which somebody has a part": (
        Rule.FOREIGN_WITHHELD,
        Story().make("his", LEFT, HAND).allocate("a", WHOLE).call("a").answer((WHOLE, CARD)),
    ),
    "a partition is made for nobody": (Rule.ASKED_FOR, Story().appear("one", LEFT)),
    "what a hand has taken from a claim is made again, and taken from it": (
        Rule.KEPT,
        held().remove("one", HAND).make("two", LEFT).remove("two"),
    ),
    "what a hand has taken from a claim is made at another place": (
        Rule.ASKED_FOR,
        held().remove("one", HAND).appear("two", RIGHT),
    ),
    "what a claim has is made once more beside it": (Rule.ASKED_FOR, held().appear("two", LEFT)),
    "a partition is made at another place": (
        Rule.ASKED_FOR,
        Story().allocate("a", LEFT).call("a").appear("one", RIGHT),
    ),
    "a partition is made for a call that died with its process": (
        Rule.ASKED_FOR,
        Story().allocate("a", LEFT).call("a").add(Died(at=0)).appear("one", LEFT),
    ),
    "a partition stays after the end of its claim": (
        Rule.NOTHING_LEAKED,
        held().call("a", Operation.UNPREPARE).answer().end("a").rest(),
    ),
    "what is left to a pod whose claim was deleted stays after the pod": (
        Rule.NOTHING_LEAKED,
        robbed().use("a", is_used=False).rest(),
    ),
    "what was made anew for a pod stays after the pod": (
        Rule.NOTHING_LEAKED,
        made_late(is_before_the_answer=True).use("a", is_used=False).rest(),
    ),
    "what a killed plugin had made anew for a pod stays after the pod": (
        Rule.NOTHING_LEAKED,
        made_by_killed_plugin().use("a", is_used=False).rest(),
    ),
    "what was made anew for a pod stays after the unprepare of its claim": (
        Rule.NOTHING_LEAKED,
        made_late(is_before_the_answer=False).call("a", Operation.UNPREPARE).answer().rest(),
    ),
    "what is left to a pod stays after the unprepare of its claim": (
        Rule.NOTHING_LEAKED,
        robbed().call("a", Operation.UNPREPARE).answer().rest(),
    ),
    "a partition of a prepare that has failed stays": (
        Rule.NOTHING_LEAKED,
        Story().allocate("a", LEFT).call("a").make("one", LEFT).answer(outcome=Outcome.FAILED).rest(),
    ),
    "a claim never gets its devices": (
        Rule.NOTHING_LOST,
        Story().allocate("a", LEFT).call("a").answer(outcome=Outcome.FAILED).rest("a"),
    ),
    "what a reset has taken does not come back": (Rule.NOTHING_LOST, held().remove("one", MACHINE).rest("a")),
}


@pytest.mark.parametrize("story", RIGHT_ONES.values(), ids=RIGHT_ONES)
def test_a_history_that_is_right_has_no_violation(story: Story) -> None:
    assert str(judge(story.events, grace_s=GRACE_S) or "") == ""


@pytest.mark.parametrize(("rule", "story"), WRONG_ONES.values(), ids=WRONG_ONES)
def test_the_first_violation_is_found_at_its_event(rule: Rule, story: Story) -> None:
    violation = judge(story.events, grace_s=GRACE_S)
    assert violation is not None
    assert violation.rule is rule
    assert violation.event == story.events[-1]
    assert judge(story.events[:-1], grace_s=GRACE_S) is None


def test_every_rule_has_a_history_that_breaks_it() -> None:
    assert {rule for rule, _ in WRONG_ONES.values()} == {*Rule}


def test_a_violation_shows_what_has_led_to_it_and_nothing_else() -> None:
    other = Partition(kind="gpu", card_uuid="GPU-1", profile="2g", placement=Placement(0, 2))
    story = held().prepare("elsewhere", "three", other).remove("one")
    violation = judge(story.events)
    assert violation is not None
    text = str(violation)
    assert "the plugin has removed one, which claim a holds" in text
    assert "claim='a'" in text
    assert "elsewhere" not in text
