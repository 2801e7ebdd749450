"""The table of a model's partitions in ``kerf models MODEL``: what each has, and what to ask for to get it."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.cli.output import format_table
from kerf_dra.driver.partitions.fragmentation import fragmentation
from kerf_dra.driver.partitions.geometry import Card, Geometry, PartitionSpec

_CAPACITIES: Final = 3
"""Capacities that are shown, the first of the family: a line has 80 columns. JSON has all of them."""
_GIB: Final = 2**30
_GIGA: Final = 10**9
_MIB: Final = 2**20


def describe_partitions(geometry: Geometry) -> Iterator[str]:
    """Yield the table of the partitions, and a sentence about its last column."""
    specs = _list_kinds(geometry)
    names = list(dict.fromkeys(name for spec in specs for name, _ in spec.capacity))[:_CAPACITIES]
    sizes = next((name for name in names if all(_counts_bytes(spec.amount(name)) for spec in specs)), "")
    counts = fragmentation(Card(uuid="", index=0, geometry=geometry), ()).free_instances
    header = ["PARTITION", *map(_title, names), "PER CARD", *(["UP TO"] if sizes else [])]
    requests = _list_largest_requests([spec.amount(sizes) for spec in specs])
    rows = [
        [
            _name(spec),
            *(spec.amount(name) for name in names),
            counts.get(_name(spec), 1),
            *([request] if sizes else []),
        ]
        for spec, request in zip(specs, requests, strict=True)
    ]
    yield format_table(header, rows)
    if sizes:
        yield f"UP TO: the largest request for {sizes} that takes the partition and no larger"
        yield "one; -: another partition that has as much is taken before."


def _list_kinds(geometry: Geometry) -> list[PartitionSpec]:
    """Return one partition of each name, in the order in which nodes publish them, and the whole card."""
    return list({_name(spec): spec for spec in reversed(geometry.specs)}.values())[::-1]


def _name(spec: PartitionSpec) -> str:
    return spec.profile or spec.function or ("whole card" if spec.placement is None else "a partition")


def _title(capacity: str) -> str:
    """Return the name of a capacity as a column's title: COMPUTE SLICES."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", capacity).upper()


def _counts_bytes(amount: Quantity) -> bool:
    return amount.family == "binary" and int(amount) >= _GIB


def _list_largest_requests(amounts: Sequence[Quantity]) -> list[str]:
    """Return for each amount the largest round request that no smaller amount meets; ``-``: another size has as much.

    >>> _list_largest_requests([Quantity("9984Mi"), Quantity("20096Mi"), Quantity("20096Mi")])
    ['9Gi or 10G', '19Gi or 21G', '-']
    """
    return [
        _largest_request(int(amount), [int(each) for each in amounts[:index]]) for index, amount in enumerate(amounts)
    ]


def _largest_request(amount: int, earlier: Iterable[int]) -> str:
    below = [each for each in earlier if each >= amount]
    if below:
        return "-"
    least = max(earlier, default=0)
    round_ones = [
        f"{amount // unit}{suffix}" for unit, suffix in ((_GIB, "Gi"), (_GIGA, "G")) if amount // unit * unit > least
    ]
    return " or ".join(round_ones) or f"{amount // _MIB}Mi"
