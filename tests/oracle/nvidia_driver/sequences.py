"""Sequences of what happens to drivers on a node: claims come and go, processes start again, others use the cards.

Generated sequences have what a kubelet and a scheduler do by themselves. Each situation that others bring about is a
sequence of its own, because what NVIDIA's driver then leaves behind would show in all that follows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final, TypeAlias

from tests.oracle.nvidia_driver.published_devices import WHOLE, Place, PublishedDevices

_STEPS: Final = 8
"""Steps before all claims end: enough for a card to be cut, emptied and cut again."""
_MOST_DEVICES: Final = 3
"""Devices of one claim, each for a container of its own."""


@dataclass(frozen=True)
class Prepare:
    """The kubelet prepares a claim that was allocated these devices."""

    claim: str
    places: tuple[Place, ...]

    def __str__(self) -> str:
        return f"prepare {self.claim} with {', '.join(map(str, self.places))}"


@dataclass(frozen=True)
class PrepareAgain:
    """The kubelet prepares the claim once more: another pod has it, too, or the first call failed."""

    claim: str

    def __str__(self) -> str:
        return f"prepare {self.claim} again"


@dataclass(frozen=True)
class Unprepare:
    """The kubelet unprepares a claim, once or again."""

    claim: str

    def __str__(self) -> str:
        return f"unprepare {self.claim}"


@dataclass(frozen=True)
class Restart:
    """The driver's process ends, by SIGTERM or by SIGKILL, and starts again."""

    is_killed: bool = True

    def __str__(self) -> str:
        return "kill and start" if self.is_killed else "restart"


@dataclass(frozen=True)
class StartProcess:
    """A process opens the claim's first device."""

    claim: str


@dataclass(frozen=True)
class EndProcess:
    """The process ends."""


@dataclass(frozen=True)
class MakeInstance:
    """An administrator makes a GPU instance."""

    place: Place


@dataclass(frozen=True)
class FailOnce:
    """The next call of a function of NVML fails."""

    function: str


Step: TypeAlias = Prepare | PrepareAgain | Unprepare | Restart | StartProcess | EndProcess | MakeInstance | FailOnce


@dataclass
class SequenceGenerator:
    """Chooses steps that the kubelet and the scheduler could take."""

    random: Random
    published: Sequence[PublishedDevices]
    """What each driver publishes: a claim is allocated what the counters of all let it have."""
    places: Sequence[Place]
    single_partition_cards: frozenset[str]
    """Cards that get one partition at a time."""
    held: dict[str, tuple[Place, ...]] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)

    def generate(self) -> Iterator[Step]:
        """Yield steps, at whose end no claim is left."""
        for _ in range(_STEPS):
            yield self._choose()
        while self.held:
            yield self._unprepare()

    def _choose(self) -> Step:
        choices = [self._prepare, self._prepare, self._prepare]
        choices += [] if self._is_a_card_out_of_mig_mode() else [self._restart]
        choices += [self._prepare_again, self._unprepare, self._unprepare] if self.held else []
        choices += [self._unprepare_again] if self.ended else []
        return self.random.choice(choices)()

    def _is_a_card_out_of_mig_mode(self) -> bool:
        """Whether a claim has a card whole that gets several partitions at other times: NVIDIA's driver reads the MIG
        mode at its start alone, and would not unprepare these partitions."""
        return any(
            place.profile == WHOLE and place.card not in self.single_partition_cards
            for places in self.held.values()
            for place in places
        )

    def _prepare(self) -> Step:
        taken = [place for places in self.held.values() for place in places]
        wanted = self.random.randint(1, _MOST_DEVICES)
        places: list[Place] = []
        for place in self.random.sample(self.places, len(self.places)):
            if len(places) < wanted and self._is_free(place, [*taken, *places]):
                places.append(place)
        if not places:
            return self._unprepare()
        claim = f"claim-{len(self.held) + len(self.ended)}"
        self.held[claim] = tuple(places)
        return Prepare(claim, tuple(places))

    def _is_free(self, place: Place, taken: Sequence[Place]) -> bool:
        if place.card in self.single_partition_cards and any(other.card == place.card for other in taken):
            return False
        return all(one.fits(place, taken) for one in self.published)

    def _prepare_again(self) -> Step:
        return PrepareAgain(self.random.choice(sorted(self.held)))

    def _unprepare(self) -> Step:
        claim = self.random.choice(sorted(self.held))
        del self.held[claim]
        self.ended.append(claim)
        return Unprepare(claim)

    def _unprepare_again(self) -> Step:
        return Unprepare(self.random.choice(self.ended))

    def _restart(self) -> Step:
        return Restart(is_killed=self.random.random() < 0.8)


def list_situations(
    places: Sequence[Place], failing: Mapping[str, Sequence[Place]], cards: tuple[str, str]
) -> Iterator[tuple[str, Sequence[Step]]]:
    """Yield each situation that others bring about, and its sequence.

    ``failing``: partitions that a driver cannot prepare, by what they are; ``places``: all others. The first of
    ``cards`` is in MIG mode, the second is not.
    """
    for what, of_profile in failing.items():
        if of_profile:
            yield what, [Prepare("claim", (of_profile[0],)), Unprepare("claim")]
    first, second = ([one for one in places if one.card == card and one.profile != WHOLE] for card in cards)
    if first:
        yield from _list_partition_situations(*_find_pair(first))
    by_hand = Place(cards[0], WHOLE, 0)
    if by_hand in places:
        yield "a whole card whose MIG mode was switched on by hand", [Prepare("claim", (by_hand,)), Unprepare("claim")]
    if second:
        two = (Prepare("claim", _find_pair(second)), Unprepare("claim"), Unprepare("claim"))
        yield "two partitions of a card whose MIG mode was off", two
    whole = Place(cards[1], WHOLE, 0)
    yield (
        "a process that uses a whole card",
        [
            *(Prepare("claim", (whole,)), StartProcess("claim"), Unprepare("claim"), Prepare("next", (whole,))),
            *(EndProcess(), PrepareAgain("next"), Unprepare("next")),
        ],
    )


def _list_partition_situations(one: Place, beside: Place) -> Iterator[tuple[str, Sequence[Step]]]:
    yield (
        "a process that uses a partition",
        [
            *(Prepare("claim", (one,)), StartProcess("claim"), Unprepare("claim")),
            *(EndProcess(), Unprepare("claim"), Prepare("next", (one,)), Unprepare("next")),
        ],
    )
    yield (
        "an instance made by hand",
        [MakeInstance(one), Prepare("claim", (beside,)), Restart(), Unprepare("claim")],
    )
    yield (
        "a compute instance that cannot be made at first",
        [
            *(FailOnce("nvmlGpuInstanceCreateComputeInstance"), Prepare("claim", (one,)), PrepareAgain("claim")),
            *(Restart(), PrepareAgain("claim"), Unprepare("claim")),
        ],
    )


def _find_pair(partitions: Sequence[Place]) -> tuple[Place, Place]:
    """Return two partitions of one profile, which fit beside each other."""
    one = partitions[0]
    beside = next(other for other in partitions if other.profile == one.profile and other.start > one.start)
    return one, beside
