"""Has Node Feature Discovery make labels of the node of what its cards are: in a file that its worker reads.

The plugin so needs no right to change nodes. The file stays when the plugin ends, as the slices do.

All cards count, healthy or not and in use or not: labels say what a node has, for node selectors and for autoscalers;
what is free is in slices. Amounts are sums over all cards, and each label has one number, so that sixteen cards need no
more or longer labels than one.
"""

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from kerf_dra.driver.partitions.fragmentation import fragmentation
from kerf_dra.driver.partitions.geometry import Card
from kerf_dra.driver.runtime.notifier import Notifier
from kerf_dra.driver.runtime.problem_log import ProblemLog

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
"""The name of a label, after the slash, and a value that is not empty (Kubernetes, "Labels and Selectors")."""
_MIB: Final = 2**20
_BYTES: Final = frozenset({"memory"})
"""The capacities that are bytes: labels have them in MiB."""

_log = logging.getLogger(__name__)


def build_node_features(driver: str, cards: Iterable[Card]) -> Mapping[str, str]:
    """Return the labels of a node with these cards of one family, by full name; a name that is no label is left out.

    >>> build_node_features("gpu.kerf.dev", ())
    {}
    """
    found: Counter[str] = Counter()
    roots: set[str] = set()
    versions: set[str] = set()
    for card in cards:
        found["cards"] += 1
        found[f"model.{card.geometry.model}"] += 1
        found[f"numa-{card.numa_node}.cards"] += 1
        roots.add(card.pcie_root)
        versions.add(card.driver_version)
        for name, amount in card.geometry.whole.capacity:
            unit = _MIB if name in _BYTES else 1
            found[f"{name}-mib" if name in _BYTES else name] += int(amount) // unit
        for name, count in fragmentation(card, ()).free_instances.items():
            found[f"partitions.{name}"] += count
    labels = {name: str(number) for name, number in found.items()}
    if roots - {""}:
        labels["pcie-roots"] = str(len(roots - {""}))
    if len(versions) == 1:
        labels["driver-version"] = versions.pop()
    return {
        f"{driver}/{name}": value
        for name, value in sorted(labels.items())
        if _NAME.fullmatch(name) and _NAME.fullmatch(value)
    }


class FeatureFile:
    """The file of one family."""

    def __init__(self, folder: Path, driver: str) -> None:
        """``folder`` is the one of Node Feature Discovery's local features."""
        self._path = folder / f"kerf-{driver}"
        self._written: Mapping[str, str] | None = None
        self._problems = ProblemLog(_log)

    def write(self, features: Mapping[str, str]) -> None:
        """Write the labels by their names, if they are not those that were written last. A failure is logged once, and
        tried again with the next call.
        """
        if features == self._written:
            return
        lines = "".join(f"{name}={value}\n" for name, value in features.items())
        temporary = self._path.with_name(f".{self._path.name}")  # which the worker does not read
        try:
            temporary.write_text(f"# what the cards of this node are, by Kerf\n{lines}", encoding="utf-8")
            temporary.replace(self._path)
        except OSError as error:
            self._problems.note(
                "file", f"{self._path} cannot be written, so that the node gets no labels of its cards: {error}"
            )
        else:
            self._written = dict(features)
            self._problems.clear("file")


async def follow_cards(refreshed: Notifier, file: FeatureFile, build: Callable[[], Mapping[str, str] | None]) -> None:
    """Write what ``build`` returns, now and whenever ``refreshed`` is notified, until cancelled.

    None stands for cards that are not all known: what was written stays.
    """
    while True:
        refresh = refreshed.next_event
        if (features := build()) is not None:
            file.write(features)
        await refresh.wait()
