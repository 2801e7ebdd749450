"""Families of problems in which two rules interact, or which have few solutions: no single rule decides them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from kerf_dra.api.model.devices import Device, DeviceTaint, DeviceToleration, ResourceSlice
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
from tests.allocation.hard_cases.families import ATTRIBUTES, Hard, families, plain, pod, requests
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
