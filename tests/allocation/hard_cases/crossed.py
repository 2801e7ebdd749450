"""Families in which two rules cross, or in which much fits in few ways only: no rule by itself shows what to choose."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from random import Random
from typing import Final

from api.model.claims import ResourceClaim
from api.model.devices import Attribute, Device, DeviceTaint, DeviceToleration, ResourceSlice
from tests.allocation.builders import (
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
    TAGS,
    Hard,
    cards,
    families,
    plain,
    pod,
    profile,
    requests,
    shareable,
)
from tests.allocation.hard_cases.linked import COLUMN, ROW


def _of(attribute: str, value: str | int) -> str:
    return f"{ATTRIBUTES}.{attribute} == " + (f'"{value}"' if isinstance(value, str) else str(value))


def _grid(rows: int, columns: int, attributes: Mapping[str, object] | None = None) -> Iterator[Device]:
    return (
        device(f"d{row:02}-{column:02}", attributes={"row": row, "column": column, **(attributes or {})})
        for row in range(rows)
        for column in range(columns)
    )


def _groups_of_two_sizes(n: int) -> Hard:
    """Each card is taken by three units of one group, which leaves one for the same group: too few of them."""
    devices = [
        device(
            f"c{card:02}-{group}-{size}-{each}",
            attributes={"kind": group, "numa": size},
            uses={f"c{card:02}": {"units": size}},
            groups={f"c{card:02}": [group]},
        )
        for card in range(n)
        for group in ("mig", "vgpu")
        for size in (1, 3)
        for each in range(4 // size)
    ]
    half = n // 2
    asked = [
        *(request(f"m{number}", _of("kind", "mig"), _of("numa", 3)) for number in range(half)),
        *(request(f"v{number}", _of("kind", "vgpu"), _of("numa", 3)) for number in range(n - half)),
        *(request(f"s{number}", _of("kind", "mig"), _of("numa", 1)) for number in range(half + 1)),
    ]
    return Hard(partitioned(*devices, sets={f"c{card:02}": {"units": 4} for card in range(n)}), pod(asked), fits=False)


def _groups_in_a_ring(n: int) -> Hard:
    """Devices of three sorts have two of three groups each, so that any two go together; a fourth sort stands alone."""
    groups = (("x", "y"), ("y", "z"), ("z", "x"), ("w",))
    devices = [
        device(
            f"c{card:02}-{kind}-{each}",
            attributes={"kind": kind},
            uses={f"c{card:02}": {"units": 1}},
            groups={f"c{card:02}": of_kind},
        )
        for card in range(n)
        for kind, of_kind in enumerate(groups)
        for each in range(2 if kind < 3 else 1)
    ]
    asked = [
        request(f"r{kind}-{number}", _of("kind", kind))
        for kind, count in ((0, n), (3, n // 2), (1, n))
        for number in range(count)
    ]
    return Hard(partitioned(*devices, sets={f"c{card:02}": {"units": 3} for card in range(n)}), pod(asked), fits=False)


def _rows_against_columns(n: int) -> Hard:
    """Requests in a square: those of a row at one row, those of a column at one column; each row has one hole."""
    side = max(2, int(n**0.5))
    devices = [each for number, each in enumerate(_grid(side, side)) if number % (side + 1)]
    asked = [[request(f"r{row}-{column}") for column in range(side)] for row in range(side)]
    constraints = [same(ROW, *(each.name for each in row)) for row in asked]
    constraints += [same(COLUMN, *(each.name for each in column)) for column in zip(*asked, strict=True)]
    together = claim(*(each for row in asked for each in row), constraints=constraints)
    return Hard([slice_(*devices)], [together], fits=False)


def _row_that_turns_into_a_column(n: int) -> Hard:
    """Half of the requests share a row, half a column, two do both: each place has only one device."""
    half = min(n, 32) // 2
    devices = [each for number, each in enumerate(_grid(half, half)) if number % (half + 1)]
    asked = [*requests(2 * half)]
    names = [each.name for each in asked]
    constraints = [same(ROW, *names[: half + 1]), same(COLUMN, *names[half - 1 :])]
    return Hard([slice_(*devices)], [claim(*asked, constraints=constraints)], fits=False)


def _row_or_column(n: int) -> Hard:
    """Claims for two of a row and for two of a column by turns; one more than a square of devices has pairs."""
    side = max(2, int(n**0.5)) | 1
    asked = [
        claim(request("r", count=2), constraints=[same((ROW, COLUMN)[number % 2])], name=f"c{number}")
        for number in range(side * side // 2 + 1)
    ]
    return Hard([slice_(*_grid(side, side))], asked, fits=False)


def _chain_to_one_that_is_apart(n: int) -> Hard:
    """Each request shares a row or a column with the next, by turns; the last device is in a row of its own."""
    side = max(3, int(n**0.5))
    last = device("last", attributes={"row": side, "column": side, "kind": 1})
    asked = [request(f"r{number}", _of("kind", int(number == side))) for number in range(side + 1)]
    constraints = [same((ROW, COLUMN)[number % 2], f"r{number}", f"r{number + 1}") for number in range(side)]
    slices = [slice_(*_grid(side, side, {"kind": 0}), last)]
    return Hard(slices, [claim(*asked, constraints=constraints)], fits=False)


def _pairs_of_five(n: int) -> Hard:
    """Two devices of a claim share a tag; tags join five devices in a ring, so that two pairs can be had of five."""
    rings = max(1, n // 5)

    def tags(number: int) -> Mapping[str, object]:
        ring, at = divmod(number, 5)
        return {"tags": Attribute(strings=(f"t{ring}-{at}", f"t{ring}-{(at + 1) % 5}"))}

    pairs = [claim(*requests(2), constraints=[same(TAGS)], name=f"c{number}") for number in range(2 * rings + 1)]
    return Hard(plain(5 * rings, tags), pairs, fits=False)


def _alternatives_on_cards(n: int) -> Hard:
    """Whatever is chosen, a card has room for two."""
    sizes = (6, 5, 4, 3)
    devices = [
        device(f"c{card:02}-{size}", attributes={"numa": size}, uses={f"c{card:02}": {"units": size}})
        for card in range(n)
        for size in sizes
    ]
    asked = [
        first_of(f"r{number}", *(alternative(f"a{size}", _of("numa", size)) for size in sizes))
        for number in range(2 * n + 1)
    ]
    return Hard(partitioned(*devices, sets={f"c{card:02}": {"units": 8} for card in range(n)}), pod(asked), fits=False)


def _shares_of_one_row(n: int) -> Hard:
    """The three shares of a claim are of one row, which has room for one claim."""
    devices = (
        device(f"d{number:02}", attributes={"row": number // 2}, capacity={"memory": "10"},
               allow_multiple_allocations=True)
        for number in range(n)
    )  # fmt: skip
    shares = [request(name, capacity={"memory": amount}) for name, amount in (("a", "6"), ("b", "3"), ("c", "3"))]
    asked = [claim(*shares, constraints=[same(ROW)], name=f"c{number}") for number in range(n // 2 + 1)]
    return Hard([slice_(*devices)], asked, fits=False)


def _shares_on_different_cards(n: int) -> Hard:
    """Each claim wants a share on every card, of which a card has four."""
    devices = (
        device(f"d{number:02}", attributes={"card": number // 2}, capacity={"memory": "10"},
               allow_multiple_allocations=True)
        for number in range(n)
    )  # fmt: skip
    shares = [*requests(n // 2, capacity={"memory": "4"})]
    asked = [claim(*shares, constraints=[distinct(CARD)], name=f"c{number}") for number in range(5)]
    return Hard([slice_(*devices)], asked, fits=False)


def _cut(bins: int, size: int, parts: int, random: Random) -> list[int]:
    """Amounts that fill so many bins to the brim, in any order."""
    cuts = ([0, *sorted(random.sample(range(size // 10, size), parts - 1)), size] for _ in range(bins))
    amounts = [end - begin for each in cuts for begin, end in pairwise(each)]
    random.shuffle(amounts)
    return amounts


def _shares_to_the_brim(n: int) -> Hard:
    """All that is there is taken, by shares of any size."""
    bins = min(6, max(2, n // 4))
    amounts = _cut(bins, 100, 4, Random(n))
    return Hard(shareable(bins, "100"), pod(request(f"r{number}", capacity={"memory": str(amount)})
                                            for number, amount in enumerate(amounts)), fits=True)  # fmt: skip


def _partitions_to_the_brim(n: int) -> Hard:
    """The same with partitions of cards."""
    random, count = Random(n), max(2, n // 4)
    amounts = [size for _ in range(count) for size in random.choice([(3, 3, 5, 5), (4, 5, 7), (3, 4, 4, 5), (7, 4, 5)])]
    random.shuffle(amounts)
    devices = [
        device(f"c{card:02}-{size}-{each}", attributes={"numa": size}, uses={f"c{card:02}": {"units": size}})
        for card in range(count)
        for size, wanted in sorted(Counter(amounts).items())
        for each in range(min(wanted, 16 // size))
    ]
    sets = {f"c{card:02}": {"units": 16} for card in range(count)}
    asked = (request(f"r{number}", _of("numa", size)) for number, size in enumerate(amounts))
    return Hard(partitioned(*devices, sets=sets), pod(asked), fits=True)


def _small_before_large(n: int) -> Hard:
    """Each card is filled by a 1g, a 2g and a 4g; where the small ones come first, they take the wrong places."""
    return Hard(cards(n // 2), partitions_in_order(n // 2, "1g", "2g", "4g"), fits=True)


def _middle_before_large(n: int) -> Hard:
    """Two 2g and a 3g fill a card."""
    return Hard(cards(n // 2), partitions_in_order(n // 2, "2g", "2g", "3g"), fits=True)


def partitions_in_order(count: int, *profiles: str) -> list[ResourceClaim]:
    """So many of each profile, those of the first before those of the next."""
    return pod(
        request(f"r{position}-{number}", profile(name))
        for position, name in enumerate(profiles)
        for number in range(count)
    )


def _last_comes_first(n: int) -> Hard:
    """Each request may take one device less than the one before."""
    asked = [request(f"r{number}", f"{ATTRIBUTES}.numa < {n - number}") for number in range(n)]
    return Hard(plain(n, lambda number: {"numa": number}), pod(asked), fits=True)


def _pools_with_one_claim_each(n: int) -> Hard:
    """Four different columns of one row; every pool has a row's four, and there is a claim too many."""
    slices: Sequence[ResourceSlice] = [
        slice_(
            *(device(f"d{column}", attributes={"row": pool % 3, "column": column}) for column in range(4)),
            name=f"s{pool:02}",
            pool=f"p{pool:02}",
        )
        for pool in range(n)
    ]
    asked = [
        claim(*requests(4), constraints=[same(ROW), distinct(COLUMN)], name=f"c{number}") for number in range(n + 1)
    ]
    return Hard(slices, asked, fits=False)


def _taints_of_one_row(n: int) -> Hard:
    """Each row has devices of one taint only; the requests tolerate different ones and want one row."""
    devices = (
        device(f"d{number:02}", attributes={"row": number % 3},
               taints=(DeviceTaint(key=f"k{number % 3}", effect="NoSchedule"),))
        for number in range(n)
    )  # fmt: skip
    asked = (
        request(f"r{number}", tolerations=(DeviceToleration(key=f"k{number % 2}", operator="Exists"),))
        for number in range(max(2, n // 4))
    )
    return Hard([slice_(*devices)], [claim(*asked, constraints=[same(ROW)])], fits=False)


CROSSED: Final[Mapping[str, Callable[[int], Hard]]] = families(globals())
"""By name."""
