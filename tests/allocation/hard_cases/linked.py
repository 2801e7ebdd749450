"""Families of problems whose devices or requests depend on each other in several ways, or on unreachable parts."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kerf_dra.api.model.claims import DeviceRequest
from kerf_dra.api.model.devices import Attribute, DeviceTaint, DeviceToleration, ResourceSlice
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
from tests.allocation.hard_cases.families import (
    ATTRIBUTES,
    CARD,
    MODEL,
    NUMA,
    TAGS,
    Hard,
    cards,
    families,
    plain,
    pod,
    profile,
    requests,
)

ROW: Final = f"{DRIVER}/row"
ROOT: Final = f"{DRIVER}/root"
COLUMN: Final = f"{DRIVER}/column"


def _sides_with_too_few_cards(n: int) -> Hard:
    """One side, different cards: each side has enough devices, and all sides together have enough cards."""
    wanted = max(2, n // 4)
    devices = (
        device(f"d{side}-{number:02}", attributes={"numa": side, "card": f"{side}-{number % max(1, wanted - 1)}"})
        for side in range(4)
        for number in range(n)
    )
    return Hard([slice_(*devices)], [claim(*requests(wanted), constraints=[same(NUMA), distinct(CARD)])], fits=False)


def _rows_that_are_used_up(n: int) -> Hard:
    """Each claim leaves one device in a row; the last wants two of one row."""
    size = max(3, int((2 * n) ** 0.5) + 1)
    devices = [
        device(f"d{row:02}-{column:02}", attributes={"row": row}) for row in range(size) for column in range(size)
    ]
    asked = [
        claim(request("r", count=size - 1), constraints=[same(ROW)], name=f"row-{number}") for number in range(size)
    ]
    last = claim(request("r", count=2), constraints=[same(ROW)], name="last")
    return Hard([slice_(*devices)], [*asked, last], fits=False)


def _pools_one_too_few(n: int) -> Hard:
    slices = [
        slice_(
            *(device(f"d{number}", attributes={"row": pool}) for number in range(3)),
            name=f"s{pool:02}",
            pool=f"p{pool:02}",
        )
        for pool in range(n)
    ]
    asked = [claim(request("r", count=3), constraints=[same(ROW)], name=f"c{number}") for number in range(n + 1)]
    return Hard(slices, asked, fits=False)


def _models_that_must_differ_on_one_side(n: int) -> Hard:
    """Four devices of one side with four models; each side has three models."""
    slices = plain(2 * n, lambda number: {"numa": number % 4, "model": (number // 4) % 3})
    asked = claim(request("r", count=4), constraints=[same(NUMA), distinct(MODEL)])
    return Hard(slices, [asked], fits=False)


def _all_that_is_never_reached(n: int) -> Hard:
    """Trying the last claim would end the attempt, but the first one cannot be served."""
    last = claim(request("all", f"{ATTRIBUTES}.kind == 1", count=None), constraints=[same(NUMA)], name="last")
    return Hard(
        plain(n, lambda number: {"kind": number % 2, "numa": number}), [*pod(requests(n + 1)), last], fits=False
    )


def _a_selector_that_is_never_evaluated(n: int) -> Hard:
    """It fails on every device."""
    last = claim(request("r", f"{ATTRIBUTES}.nope == 1"), name="last")
    return Hard(plain(n), [*pod(requests(n + 1)), last], fits=False)


def _tolerations_that_do_not_pair(n: int) -> Hard:
    """Each device has a taint of its own; each request tolerates two of them, together one too few."""

    def tolerated(*keys: int) -> tuple[DeviceToleration, ...]:
        return tuple(DeviceToleration(key=f"k{key}", operator="Exists") for key in keys)

    devices = (device(f"d{key:02}", taints=(DeviceTaint(key=f"k{key}", effect="NoSchedule"),)) for key in range(n))
    asked = (
        request(f"r{number}", tolerations=tolerated(number % (n - 1), (number + 1) % (n - 1))) for number in range(n)
    )
    return Hard([slice_(*devices)], pod(asked), fits=False)


def _watchers_that_draw_counters(n: int) -> Hard:
    devices = (device(f"c{card:02}-{part}", uses={f"c{card:02}": {"u": 1}}) for card in range(n) for part in range(3))
    asked = [*requests(n), *(request(f"w{number}", admin_access=True) for number in range(n + 1))]
    return Hard(partitioned(*devices, sets={f"c{card:02}": {"u": 2} for card in range(n)}), pod(asked), fits=False)


def _three_sizes_on_one_card(n: int) -> Hard:
    """Two of the four fill a card, so there is one claim too many."""
    asked = [
        claim(
            request("a", profile("3g")),
            request("b", profile("2g")),
            request("c", profile("1g"), count=2),
            constraints=[same(CARD)],
            name=f"c{number}",
        )
        for number in range(n + 1)
    ]
    return Hard(cards(n), asked, fits=False)


def _alternatives_on_one_card(n: int) -> Hard:
    asked = [
        claim(
            first_of("a", alternative("big", profile("4g")), alternative("small", profile("2g"), count=2)),
            first_of("b", alternative("big", profile("4g")), alternative("middle", profile("3g"))),
            constraints=[same(CARD)],
            name=f"c{number}",
        )
        for number in range(n + 1)
    ]
    return Hard(cards(n), asked, fits=False)


def _more_than_fits_on_any_card(n: int) -> Hard:
    """Three 2g and two 1g want eight compute slices of seven."""
    asked = [
        claim(
            request("a", profile("2g"), count=3),
            request("b", profile("1g"), count=2),
            constraints=[same(CARD)],
            name=f"c{number}",
        )
        for number in range(n)
    ]
    return Hard(cards(n), asked, fits=False)


def _windows(n: int) -> Hard:
    """Wide requests come first and take what the narrow ones at the end need."""
    half = n // 2
    wide = [
        request(f"w{number}", f"{ATTRIBUTES}.numa >= {number} && {ATTRIBUTES}.numa < {number + half}")
        for number in range(half)
    ]
    narrow = [request(f"n{number}", f"{ATTRIBUTES}.numa >= {half}") for number in range(half + 1)]
    return Hard(plain(n, lambda number: {"numa": number}), pod([*wide, *narrow]), fits=False)


def _of_kinds(gpus: Sequence[int], nics: Sequence[int]) -> Sequence[ResourceSlice]:
    """Devices of two kinds, each with the PCIe root that it is at."""
    devices = [
        device(f"{kind}-{number:02}", attributes={"kind": kind, "root": root})
        for kind, roots in (("gpu", gpus), ("nic", nics))
        for number, root in enumerate(roots)
    ]
    return [slice_(*devices)]


def _both(number: int) -> tuple[DeviceRequest, DeviceRequest]:
    gpu, nic = (request(f"{kind}{number}", f'{ATTRIBUTES}.kind == "{kind}"') for kind in ("gpu", "nic"))
    return gpu, nic


def _pairs_at_one_root(n: int) -> Hard:
    """As many of each kind as there are claims, but two nics are at one root."""
    slices = _of_kinds(range(n), [number % (n - 1) for number in range(n)])
    return Hard(slices, [claim(*_both(0), constraints=[same(ROOT)], name=f"c{each}") for each in range(n)], fits=False)


def _pairs_of_one_claim(n: int) -> Hard:
    """The same in one claim, all of one kind before all of the other."""
    pairs = min(n, 16)
    slices = _of_kinds(range(pairs), [number % (pairs - 1) for number in range(pairs)])
    gpus, nics = zip(*map(_both, range(pairs)), strict=True)
    constraints = [same(ROOT, f"gpu{number}", f"nic{number}") for number in range(pairs)]
    return Hard(slices, [claim(*gpus, *nics, constraints=constraints)], fits=False)


def _pairs_at_the_last_roots(n: int) -> Hard:
    """The first gpus in the list have no nic at their root."""
    pairs = min(n // 2, 16)
    slices = _of_kinds(range(n), range(n - pairs, n))
    gpus, nics = zip(*map(_both, range(pairs)), strict=True)
    constraints = [same(ROOT, f"gpu{number}", f"nic{number}") for number in range(pairs)]
    return Hard(slices, [claim(*gpus, *nics, constraints=constraints)], fits=True)


def _any_two_share_a_tag(n: int) -> Hard:
    """And no three do."""
    ends = range(min(n, 32))
    tags = [tuple(f"t{min(one, other)}-{max(one, other)}" for other in ends if other != one) for one in ends]
    slices = plain(len(tags), lambda number: {"tags": Attribute(strings=tags[number])})
    asked = [claim(*requests(count), constraints=[same(TAGS)], name=f"c{count}") for count in (2, 3)]
    return Hard(slices, asked, fits=False)


LINKED: Final[Mapping[str, Callable[[int], Hard]]] = families(globals())
"""By name."""
