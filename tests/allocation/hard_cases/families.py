"""Families of problems on which a plain depth-first search takes exponential time, and whether each fits.

``n`` is the size, about the number of devices or cards; the answers follow from the construction.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kerf_dra.api.model.claims import DeviceRequest, ResourceClaim
from kerf_dra.api.model.devices import Attribute, Device, DeviceTaint, ResourceSlice
from tests.allocation.builders import (
    DRIVER,
    alternative,
    claim,
    device,
    distinct,
    first_of,
    partitioned,
    request,
    same,
    slice_,
)

ATTRIBUTES: Final = f'device.attributes["{DRIVER}"]'
NUMA: Final = f"{DRIVER}/numa"
MODEL: Final = f"{DRIVER}/model"
TAGS: Final = f"{DRIVER}/tags"
CARD: Final = f"{DRIVER}/card"


class Hard(NamedTuple):
    slices: Sequence[ResourceSlice]
    claims: Sequence[ResourceClaim]
    fits: bool


def requests(count: int, *selectors: str, **fields: object) -> Iterator[DeviceRequest]:
    return (request(f"r{number}", *selectors, **fields) for number in range(count))  # type: ignore[arg-type]


def pod(asked: Iterable[DeviceRequest]) -> list[ResourceClaim]:
    """As few claims as the limit of 32 devices for each allows."""
    all_ = [*asked]
    return [claim(*all_[at : at + 16], name=f"c{at}") for at in range(0, len(all_), 16)]


def plain(count: int, attributes: Callable[[int], Mapping[str, object]] = lambda _: {}) -> list[ResourceSlice]:
    return [slice_(*(device(f"d{number:02}", attributes=attributes(number)) for number in range(count)))]


def shareable(count: int, capacity: str) -> list[ResourceSlice]:
    devices = (
        device(f"d{number:02}", capacity={"memory": capacity}, allow_multiple_allocations=True)
        for number in range(count)
    )
    return [slice_(*devices)]


# A small MIG: eight memory slices, seven compute slices; size and starts of each profile.
PROFILES: Final = {"1g": (1, 1, range(7)), "2g": (2, 2, (0, 2, 4)), "3g": (4, 3, (0, 4)), "4g": (4, 4, (0,))}


def _card(number: int) -> Iterator[Device]:
    name = f"card-{number:02}"
    for profile, (size, compute, starts) in PROFILES.items():
        for start in starts:
            slices = {f"memory-{at}": 1 for at in range(start, start + size)}
            attributes = {"profile": profile, "card": name, "numa": number % 2}
            yield device(
                f"{name}-{profile}-{start}", attributes=attributes, uses={name: {**slices, "compute": compute}}
            )
    everything = {f"memory-{at}": 1 for at in range(8)} | {"compute": 7}
    yield device(name, attributes={"profile": "7g", "card": name, "numa": number % 2}, uses={name: everything})


def cards(count: int) -> list[ResourceSlice]:
    sets = {f"card-{number:02}": {f"memory-{at}": 1 for at in range(8)} | {"compute": 7} for number in range(count)}
    return partitioned(*(each for number in range(count) for each in _card(number)), sets=sets)


def profile(name: str) -> str:
    return f'{ATTRIBUTES}.profile == "{name}"'


def partitions(counts: Mapping[str, int], *last: str) -> list[ResourceClaim]:
    """One request for each partition."""
    wanted = [(name, profile(name)) for name, count in counts.items() for _ in range(count)]
    wanted += [("last", selector) for selector in last]
    return pod(request(f"r{number}-{name}", selector) for number, (name, selector) in enumerate(wanted))


def _shares_too_large(n: int) -> Hard:
    """Each device has room for one share, not two; one share too many."""
    return Hard(shareable(n, "10"), pod(requests(n + 1, capacity={"memory": "6"})), fits=False)


def _shares_too_many(n: int) -> Hard:
    """Together they want more than there is, though each fits many times."""
    return Hard(shareable(n, "8"), pod(requests(4 * n + 1, capacity={"memory": "2"})), fits=False)


def _shares_that_leave_gaps(n: int) -> Hard:
    """There would be room enough, if it were in one piece."""
    asked = [*requests(n, capacity={"memory": "6"}), request("last", capacity={"memory": "5"})]
    return Hard(shareable(n, "10"), pod(asked), fits=False)


def _shares_of_distinct_devices(n: int) -> Hard:
    devices = (
        device(f"d{number:02}", attributes={"numa": number // 2}, allow_multiple_allocations=True)
        for number in range(2 * min(n, 31))
    )
    asked = claim(*requests(min(n, 31) + 1), constraints=[distinct(NUMA)])
    return Hard([slice_(*devices)], [asked], fits=False)


def _too_few_between_them(n: int) -> Hard:
    """Each request has two devices to choose from, no two requests the same two; together they have one too few."""
    selectors = [f"{ATTRIBUTES}.numa in [{number % (n - 1)}, {(number + 1) % (n - 1)}]" for number in range(n)]
    asked = [request(f"r{number}", selector) for number, selector in enumerate(selectors)]
    return Hard(plain(n, lambda number: {"numa": number}), [claim(*asked)], fits=n < 3)


def _partitions_that_do_not_pair(n: int) -> Hard:
    """A 4g and a 3g fill a card."""
    return Hard(cards(n), partitions({"4g": n, "3g": n + 1}), fits=False)


def _partitions_placed_wrong_first(n: int) -> Hard:
    """The first 3g of each card goes where its 4g must go."""
    return Hard(cards(n), partitions({"3g": n, "4g": n}), fits=True)


def _many_small_and_a_whole(n: int) -> Hard:
    """The first card, on which the small ones pile up, is wanted whole by the last request."""
    return Hard(cards(n), partitions({"1g": 5}, f'{profile("7g")} && {ATTRIBUTES}.card == "card-00"'), fits=n > 1)


def _more_small_than_there_are(n: int) -> Hard:
    return Hard(cards(n), partitions({"2g": 2 * n, "1g": 3 * n + 1}), fits=False)


def _partitions_of_two_claims(n: int) -> Hard:
    """Each claim wants its partitions on one card; there is a card too few."""
    pairs = [
        claim(request("r", profile("3g"), count=2), constraints=[same(CARD)], name=f"c{number}")
        for number in range(n + 1)
    ]
    return Hard(cards(n), pairs, fits=False)


def _two_attributes_never_together(n: int) -> Hard:
    """Each attribute alone can match, both together cannot."""
    slices = plain(n, lambda number: {"numa": number % 4, "model": (number // 4) % 4, "kind": number // (n // 2)})
    both = claim(*requests(n // 4 + 1), constraints=[same(NUMA), same(MODEL)])
    return Hard(slices, [both], fits=False)


def _two_claims_one_side_each(n: int) -> Hard:
    """Three claims want more than half of one of two sides each."""
    asked = [claim(request("r", count=n // 4 + 1), constraints=[same(NUMA)], name=f"c{number}") for number in range(3)]
    return Hard(plain(n, lambda number: {"numa": number % 2}), asked, fits=False)


def _tags_in_pairs(n: int) -> Hard:
    """Devices two by two share a tag, so only one of each two can be taken."""

    def tags(number: int) -> Mapping[str, object]:
        return {"tags": Attribute(strings=(f"own-{number}", f"pair-{number // 2}"))}

    return Hard(plain(n, tags), [claim(*requests(n // 2 + 1), constraints=[distinct(TAGS)])], fits=False)


def _tags_in_a_ring(n: int) -> Hard:
    """Neighbors share a tag; three devices share none."""

    def tags(number: int) -> Mapping[str, object]:
        return {"tags": Attribute(strings=(f"t{number}", f"t{(number + 1) % n}"))}

    return Hard(plain(n, tags), [claim(*requests(3), constraints=[same(TAGS)])], fits=False)


def _alternatives_beyond_the_limit(n: int) -> Hard:
    """Only the last alternatives together stay within the 32 devices of a claim."""
    asked = (
        first_of(f"r{number}", *(alternative(f"a{count}", count=count) for count in (4, 3, 2))) for number in range(16)
    )
    return Hard(plain(max(n, 32) * 2), [claim(*asked)], fits=True)


def _alternatives_that_all_fail(n: int) -> Hard:
    asked = [first_of(f"r{number}", *(alternative(name, profile(name)) for name in ("7g", "4g", "3g")))
             for number in range(2 * n + 1)]  # fmt: skip
    return Hard(cards(n), pod(asked), fits=False)


def _watchers(n: int) -> Hard:
    """Admin access: not twice the same device within a claim."""
    return Hard(plain(min(n, 31)), [claim(*requests(min(n, 31) + 1, admin_access=True))], fits=False)


def _watchers_and_one_that_nothing_serves(n: int) -> Hard:
    asked = [*requests(min(n, 31), admin_access=True), request("nic", f"{ATTRIBUTES}.kind == 2")]
    return Hard(plain(n, lambda number: {"kind": 1}), [claim(*asked)], fits=False)


def _all_after_some(n: int) -> Hard:
    """The last request wants every device of a kind, of which the first ones take the first."""
    asked = [*requests(n // 2), request("all", f"{ATTRIBUTES}.numa == 0", count=None)]
    return Hard(plain(n, lambda number: {"numa": int(number >= n // 2)}), [claim(*asked)], fits=True)


def _tainted(n: int) -> Hard:
    taint = DeviceTaint(key="repair", effect="NoSchedule")
    devices = (device(f"d{number:02}", taints=(taint,) if number % 2 else ()) for number in range(n))
    return Hard([slice_(*devices)], [claim(*requests(n // 2 + 1))], fits=False)


def _second_claim_impossible(n: int) -> Hard:
    """The second claim could not be served by an empty node, which shows only after its first choices."""
    slices = plain(n, lambda number: {"numa": number % 2, "kind": number % 2, "model": number})
    impossible = claim(
        request("a", f"{ATTRIBUTES}.kind == 0"),
        request("b", f"{ATTRIBUTES}.kind == 1"),
        constraints=[same(NUMA)],
        name="second",
    )
    return Hard(slices, [claim(*requests(n // 2 - 1)), impossible], fits=False)


def _groups_apart(n: int) -> Hard:
    """Devices of two groups never share a card; one request more than the cards allow."""
    devices = [
        device(
            f"card-{number:02}-{group}-{half}",
            attributes={"kind": group},
            uses={f"card-{number:02}": {"slices": 1}},
            groups={f"card-{number:02}": [group]},
        )
        for number in range(n)
        for group in ("mig", "vgpu")
        for half in range(2)
    ]
    slices = partitioned(*devices, sets={f"card-{number:02}": {"slices": 2} for number in range(n)})
    asked = [
        request(f"{kind}{number}", f'{ATTRIBUTES}.kind == "{kind}"')
        for kind, count in (("mig", n + 1), ("vgpu", n))
        for number in range(count)
    ]
    return Hard(slices, pod(asked), fits=False)


def _links_in_a_ring(n: int) -> Hard:
    """Each device takes two neighboring links of a ring: half of them, rounded down, can be had."""
    odd = n | 1
    devices = [
        device(f"d{number:02}", uses={"ring": {f"link-{number}": 1, f"link-{(number + 1) % odd}": 1}})
        for number in range(odd)
    ]
    slices = partitioned(*devices, sets={"ring": {f"link-{number}": 1 for number in range(odd)}})
    return Hard(slices, [claim(*requests(odd // 2 + 1))], fits=False)


def _sums_that_are_too_large(n: int) -> Hard:
    """Any half of the devices takes more than the set has, though each is small."""
    devices = [device(f"d{number:02}", uses={"set": {"units": 10 + number}}) for number in range(n)]
    total = sum(10 + number for number in range(n // 2)) - 1
    slices = partitioned(*devices, sets={"set": {"units": total}})
    return Hard(slices, [claim(request("r", count=n // 2))], fits=False)


def _shares_that_add_up_to_more(n: int) -> Hard:
    asked = [request(f"r{number}", capacity={"memory": str(7 if number % 2 else 3)}) for number in range(2 * n)]
    return Hard(shareable(n, "10"), pod([*asked, request("last", capacity={"memory": "1"})]), fits=False)


def _too_few_values_between_them(n: int) -> Hard:
    """Each request has devices of two values, all must differ; some requests have one value too few between them."""
    half = n // 2
    slices = plain(2 * n, lambda number: {"numa": number // 2})
    selectors = [f"{ATTRIBUTES}.numa in [{number % half}, {(number + 1) % half}]" for number in range(half + 1)]
    asked = [request(f"r{number}", selector) for number, selector in enumerate(selectors)]
    others = requests(min(half, 14), f"{ATTRIBUTES}.numa >= {half}")
    return Hard(slices, [claim(*others, *asked, constraints=[distinct(NUMA)])], fits=False)


def families(names: Mapping[str, Any]) -> dict[str, Callable[[int], Hard]]:
    """Return the families of a module, by name."""
    return {
        name.removeprefix("_"): build
        for name, build in names.items()
        if name.startswith("_") and callable(build) and getattr(build, "__annotations__", {}).get("return") is Hard
    }


FAMILIES: Final[Mapping[str, Callable[[int], Hard]]] = families(globals())
"""By name."""
