"""The metrics of what is on a node's cards, and of what still fits on them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from prometheus_client import Gauge

from driver.partitions.fragmentation import fragmentation
from driver.partitions.geometry import Card, Partition
from driver.runtime import metrics

_PARTITIONS: Final = metrics.gauge(
    "kerf_partitions",
    "Partitions and whole cards in use, by who has them: claims or others.",
    ["driver", "cut", "holder"],
)
_FREE: Final = metrics.gauge(
    "kerf_free_partitions", "Partitions that fit beside what is in use, if all were of this kind.", ["driver", "cut"]
)
_STRANDED: Final = metrics.gauge(
    "kerf_stranded_units", "Free units, such as memory slices, that no partition can use.", ["driver"]
)
WHOLE: Final = "whole"
"""The ``cut`` of a whole card."""
_BARE: Final = "units"
"""The ``cut`` of a run of units whose function the claim's configuration names."""

_Values: TypeAlias = Mapping[tuple[str, ...], int]


class CardMetrics:
    """The metrics of one family's cards."""

    def __init__(self, driver: str) -> None:
        self._driver = driver
        self._set: dict[Gauge, _Values] = {}

    def update(self, cards: Iterable[Card], claimed: Iterable[Partition], foreign: Iterable[Partition]) -> None:
        """Set the metrics: ``claimed`` are the partitions that claims have, each once, ``foreign`` those of others."""
        claimed, foreign = list(claimed), list(foreign)
        held = [(partition, "claims") for partition in claimed] + [(partition, "others") for partition in foreign]
        self._replace(_PARTITIONS, Counter((_cut(partition), holder) for partition, holder in held))
        free: Counter[tuple[str, ...]] = Counter()
        stranded = 0
        for card in cards:
            figures = fragmentation(card, [*claimed, *foreign])
            free.update({(name or _BARE,): count for name, count in figures.free_instances.items()})
            free[WHOLE,] += figures.free_units == figures.units
            stranded += figures.stranded_units
        self._replace(_FREE, free)
        _STRANDED.labels(self._driver).set(stranded)

    def _replace(self, gauge: Gauge, values: _Values) -> None:
        """Set ``values`` by their labels, and remove those that there are no more."""
        for labels in self._set.get(gauge, {}).keys() - values.keys():
            gauge.remove(self._driver, *labels)
        for labels, value in values.items():
            gauge.labels(self._driver, *labels).set(value)
        self._set[gauge] = values


def _cut(partition: Partition) -> str:
    if partition.is_whole:
        return WHOLE
    return partition.profile or partition.function or _BARE
