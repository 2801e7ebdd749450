"""Who had which device for how long, and what it used, follows from records and samples alone."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kerf_dra.api.model.prepared import ClaimState, PreparedClaim, PreparedDevice
from kerf_dra.driver.kubeletplugin.backends.base import CardSample, DeviceSample
from kerf_dra.driver.kubeletplugin.inventory.state.usage import DeviceUsage, NodeUsage, UsedDevice
from kerf_dra.driver.kubeletplugin.usage.idleness import IdleRules
from kerf_dra.driver.kubeletplugin.usage.usage_document import UsageDocument
from kerf_dra.driver.kubeletplugin.usage.usage_tracker import UsageTracker
from tests.fakes.cards import gpu
from tests.fakes.claims import claim, ref
from tests.kubeletplugin.records import BOOT, device

CARDS = (gpu(0), gpu(1))
"""Cards of four slices."""
RULES = IdleRules(idle_after_s=60.0, interval_s=15.0)
PROFILES = {1: "1g.1gb", 2: "2g.2gb", 4: "4g.4gb"}


def part(
    card: int = 0, start: int | None = 0, size: int | None = 1, *, share: str | None = None, admin: bool = False
) -> PreparedDevice:
    """A prepared device."""
    name = f"gpu-{card}" if size is None else f"gpu-{card}-{size}g-{size}gb-at-{start}"
    profile = None if size is None else PROFILES[size]
    made = device(name, card=f"GPU-{card}", profile=profile, start=start, size=size, share=share, admin=admin)
    return replace(made, handle={"uuid": name})


def whole(card: int = 0, share: str | None = None) -> PreparedDevice:
    return part(card, None, None, share=share)


def record(name: str, *devices: PreparedDevice, state: ClaimState = ClaimState.PREPARED) -> PreparedClaim:
    return PreparedClaim(claim=ref(claim(name)), state=state, boot_id=BOOT, devices=devices)


@dataclass
class History:
    """A node as the tracker sees it, of which the test says what happens."""

    boot_id: str = BOOT
    now: float = 1000.0
    records: dict[str, PreparedClaim] = field(default_factory=dict)
    has_others: bool = False

    def __post_init__(self) -> None:
        self.tracker = UsageTracker(RULES, self.boot_id)

    def prepare(self, name: str, *devices: PreparedDevice) -> None:
        self.records[name] = record(name, *devices)
        self.tracker.note_records(self.records.values(), self.now)

    def end(self, name: str) -> None:
        self.records.pop(name, None)
        self.tracker.note_records(self.records.values(), self.now)

    def sample(
        self, energy_mj: int | None, use: Mapping[str, DeviceSample] | None = None, card: int = 0, after_s: float = 10.0
    ) -> None:
        """Let time pass and sample a card, with the use of its devices by name."""
        self.now += after_s
        devices = self.tracker.list_devices(self.records.values(), CARDS[card].uuid)
        samples = tuple((use or {}).get(one.used.share.id.device, DeviceSample()) for one in devices)
        sample = CardSample(energy_mj=energy_mj, devices=samples)
        self.tracker.note_sample(CARDS[card], devices, sample, self.now, has_others=self.has_others)
        self.keep_cards()

    def keep_cards(self, cards: Iterable[str] = ("GPU-0", "GPU-1")) -> None:
        self.tracker.keep_cards(cards, self.now)

    def restart(self, boot_id: str | None = None) -> None:
        """Let another process go on with what this one has written."""
        document = msgspec.json.decode(msgspec.json.encode(self.tracker.build_document()), type=UsageDocument)
        self.boot_id = self.boot_id if boot_id is None else boot_id
        self.tracker = UsageTracker(RULES, self.boot_id)
        self.tracker.restore(document)
        self.tracker.note_records(self.records.values(), self.now)
        self.keep_cards()

    @property
    def usage(self) -> NodeUsage:
        return self.tracker.build_usage(self.now)

    def of(self, name: str) -> DeviceUsage:
        """What the only device of a claim is used for."""
        [found] = [usage for used, usage in self.usage.devices.items() if used.claim_uid == uid(name)]
        return found

    def joules(self) -> dict[str, int | None]:
        """The millijoules of claims by name, and of what is unattributed on the first card."""
        named = {uid(name): name for name in self.records}
        found = {named[used.claim_uid]: usage.energy_mj for used, usage in self.usage.devices.items()}
        return found | {"": self.usage.cards["GPU-0"].unattributed_mj}


def uid(name: str) -> str:
    return ref(claim(name)).uid


def test_energy_is_shared_out_by_slices_and_seconds() -> None:
    history = History()
    history.sample(100)
    history.prepare("a", part())
    history.prepare("b", part(start=2, size=2))
    history.sample(500)
    assert history.joules() == {"a": 100, "b": 200, "": 100}
    history.now += 5
    history.end("b")
    history.sample(900, after_s=5)
    assert history.joules() == {"a": 200, "": 300}
    assert history.usage.cards["GPU-0"].total_mj == 800


def test_energy_is_shared_out_by_activity_where_it_is_measured() -> None:
    history = History()
    history.sample(0)
    history.prepare("a", part())
    history.prepare("b", part(start=2, size=2))
    use = {"gpu-0-1g-1gb-at-0": DeviceSample(busy=1.0), "gpu-0-2g-2gb-at-2": DeviceSample(busy=0.25)}
    history.sample(600, use)
    assert history.joules() == {"a": 400, "b": 200, "": 0}
    assert (history.of("a").power_w, history.of("b").power_w) == (0.04, 0.02)
    history.has_others = True
    history.sample(1000, use)
    assert history.joules() == {"a": 500, "b": 400, "": 100}


def test_a_claim_that_came_and_went_between_two_samples_has_its_part() -> None:
    history = History()
    history.sample(0)
    history.prepare("kept", part(start=1))
    history.prepare("short", whole(1))
    history.end("short")
    history.prepare("short", part())
    history.now += 5
    history.end("short")
    history.sample(400, after_s=5)
    assert history.joules() == {"kept": 100, "": 250}
    assert history.usage.cards["GPU-0"].total_mj == 400


def test_a_claim_that_is_prepared_again_between_two_samples_goes_on() -> None:
    history = History()
    history.sample(0)
    history.prepare("a", whole())
    history.sample(100)
    history.end("a")
    history.now += 5
    history.prepare("a", whole())
    history.sample(200, after_s=5)
    assert history.joules() == {"a": 150, "": 50}


def test_shares_of_a_device_have_equal_parts_of_its_energy() -> None:
    history = History()
    history.sample(0)
    history.prepare("a", whole(share="one"))
    history.prepare("b", whole(share="two"))
    history.sample(100)
    assert history.joules() == {"a": 50, "b": 50, "": 0}


@pytest.mark.parametrize(
    ("devices", "state"),
    [
        ([part(admin=True)], ClaimState.PREPARED),
        ([part()], ClaimState.STARTED),
        ([part()], ClaimState.RELEASING),
        ([replace(part(), handle=None)], ClaimState.PREPARED),
    ],
    ids=["admin access", "half made", "being released", "without a handle"],
)
def test_a_claim_has_a_device_while_it_is_prepared_for_it_alone(
    devices: list[PreparedDevice], state: ClaimState
) -> None:
    history = History()
    history.sample(0)
    history.records["a"] = record("a", *devices, state=state)
    history.prepare("b", part(start=2, size=2))
    history.sample(100)
    assert {used.claim_uid for used in history.usage.devices} == {uid("b")}
    assert history.usage.cards["GPU-0"].unattributed_mj == 50


def test_each_card_has_its_own_account() -> None:
    history = History()
    for card in (0, 1):
        history.sample(0, card=card, after_s=0)
    history.prepare("a", whole(0))
    history.prepare("b", whole(1))
    history.sample(100, card=0)
    history.sample(30, card=1, after_s=0)
    assert history.joules() == {"a": 100, "b": 30, "": 0}


def test_a_card_that_counts_no_energy_has_no_account() -> None:
    history = History()
    history.prepare("a", part())
    history.sample(None, {"gpu-0-1g-1gb-at-0": DeviceSample(memory_bytes=7)})
    assert history.usage.cards == {}
    assert history.of("a") == DeviceUsage(sample=DeviceSample(memory_bytes=7))


def test_totals_and_idleness_go_on_over_a_restart() -> None:
    history = History()
    history.prepare("a", whole())
    unused = {"gpu-0": DeviceSample(processes=0)}
    history.sample(0, unused)
    history.sample(100, unused, after_s=60)
    assert history.of("a").idle_since == 1010
    history.restart()
    assert history.joules() == {"a": 100, "": 0}
    assert history.of("a").idle_since == 1010
    history.sample(150, unused)
    assert history.joules() == {"a": 150, "": 0}, "also what was used while no process ran"
    assert history.of("a").idle_since == 1010


def test_another_boot_knows_totals_and_no_idleness() -> None:
    history = History()
    history.prepare("a", whole())
    unused = {"gpu-0": DeviceSample(processes=0)}
    history.sample(0, unused)
    history.sample(100, unused, after_s=60)
    history.restart("boot-2")
    assert history.of("a").idle_since is None
    history.sample(7, unused)
    assert history.joules() == {"a": 107, "": 0}


def test_a_card_that_cannot_be_sampled_says_nothing_of_its_devices_and_loses_no_energy() -> None:
    history = History()
    history.prepare("a", whole(0))
    history.prepare("b", whole(1))
    use = {"gpu-0": DeviceSample(memory_bytes=5, processes=1), "gpu-1": DeviceSample(processes=1)}
    history.sample(0, use)
    history.sample(0, use, card=1, after_s=0)
    history.sample(50, use)
    assert history.of("a").power_w == 0.005
    history.tracker.note_failure("GPU-0", history.now)
    assert history.of("a").sample == DeviceSample()
    assert history.of("a").power_w is None
    assert history.of("b").sample == DeviceSample(processes=1)
    history.sample(100, use, after_s=100)
    assert history.joules()["a"] == 100


def test_a_card_that_is_away_keeps_its_account_and_shows_none() -> None:
    history = History()
    history.sample(0)
    history.prepare("a", whole())
    history.sample(100, {"gpu-0": DeviceSample(processes=1)})
    history.prepare("ended", whole(1))
    history.end("ended")
    history.keep_cards(["GPU-1"])
    assert history.usage.cards == {}
    assert history.of("a").sample == DeviceSample()
    history.sample(150)
    assert history.joules() == {"a": 150, "": 0}


def test_accounts_of_cards_that_are_away_are_bounded_and_the_latest_stay() -> None:
    history = History()
    history.sample(0)
    account = history.tracker.build_document().cards["GPU-0"]
    cards = {f"AWAY-{number}": replace(account, at=float(number)) for number in range(100)}
    history.tracker.restore(UsageDocument(boot_id=BOOT, cards=cards))
    history.keep_cards([])
    assert {*history.tracker.build_document().cards} == {f"AWAY-{number}" for number in range(36, 100)}


def test_nothing_is_kept_of_claims_that_ended() -> None:
    history = History()
    history.sample(0)
    for number in range(50):
        history.prepare(f"c{number}", whole(number % 2))
        history.sample(number, {"gpu-0": DeviceSample(processes=0)})
        history.end(f"c{number}")
    history.sample(100)
    history.keep_cards(["GPU-0"])
    document = history.tracker.build_document()
    assert document.cards["GPU-0"].claims == {}
    assert document.idleness == {}
    assert history.usage.devices == {}


PLACES = [part(start=start) for start in range(4)] + [part(start=0, size=2), whole(share="x"), whole(1)]
Event: TypeAlias = tuple[str, str | int, PreparedDevice | float | None]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("prepare"), st.sampled_from("abcd"), st.sampled_from(PLACES)),
        st.tuples(st.just("end"), st.sampled_from("abcd"), st.none()),
        st.tuples(st.just("sample"), st.integers(0, 10**6), st.sampled_from([None, 0.0, 0.01, 1.0])),
        st.tuples(st.sampled_from(["reset", "boot", "restart", "fail"]), st.integers(0, 10**5), st.none()),
    ),
    max_size=40,
)


@settings(max_examples=300)
@given(STEPS, st.booleans())
def test_claims_and_what_is_unattributed_are_the_counter_in_every_history(steps: list[Event], has_others: bool) -> None:
    """Claims come and go at any time; the card is reset, the machine booted, the process started again."""
    play(steps, has_others=has_others)


@pytest.mark.long
@settings(max_examples=10_000)
@given(STEPS, st.booleans())
def test_claims_and_what_is_unattributed_are_the_counter_in_ten_thousand_histories(
    steps: list[Event], has_others: bool
) -> None:
    play(steps, has_others=has_others)


def play(steps: list[Event], *, has_others: bool) -> None:
    """Play a history, and check after each step that nothing of the counter is lost or made."""
    history = History(has_others=has_others)
    counter, counted, boots = 1000, 0, 0
    history.sample(counter)
    shown: dict[UsedDevice, int] = {}
    for what, value, more in steps:
        history.now += 1.5
        match what:
            case "prepare":
                assert isinstance(more, PreparedDevice)
                history.prepare(str(value), more)
            case "end":
                history.end(str(value))
            case "restart":
                history.restart()
            case "fail":
                history.tracker.note_failure("GPU-0", history.now)
            case _:
                latest, counter = counter, int(value) + (counter if what == "sample" else 0)
                if what == "boot":
                    boots += 1
                    history.restart(f"boot-{boots + 1}")
                # A reset after which the counter has come beyond where it was cannot be seen.
                counted += counter if what == "boot" or counter < latest else counter - latest
                use = DeviceSample(busy=more) if isinstance(more, float) else DeviceSample()
                history.sample(counter, {place.share.id.device: use for place in PLACES})
        account = history.tracker.build_document().cards["GPU-0"]
        assert account.total_mj == account.unattributed_mj + account.ended_mj + sum(account.claims.values())
        assert account.total_mj == counted
        now = {used: usage.energy_mj or 0 for used, usage in history.usage.devices.items()}
        if what not in {"prepare", "end"}:  # a claim that is allocated anew begins at 0
            assert all(energy >= shown[used] for used, energy in now.items() if used in shown)
        shown = now
