"""Instance numbers, which distinguish clusters of one release that run at the same time."""

import fcntl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tools.realcluster.paths import ClusterPaths

BY_HAND: Final = 0
"""The cluster that a person has started with ``up``: it outlives the process that did, and no test touches it."""
COUNT: Final = 32
"""More than run at the same time on one machine: 8 releases have a byte's worth of pod networks."""


class NoInstanceError(RuntimeError):
    """All instance numbers are in use."""

    def __init__(self, minor: str) -> None:
        super().__init__(f"{COUNT - 1} clusters of Kubernetes {minor} run already")


@contextmanager
def free_instance(folder: Path, minor: str) -> Iterator[int]:
    """The first number that no other process has. Raises NoInstanceError.

    ``folder`` has the locks. The kernel frees them when this process ends, however that happens: a cluster that it has
    left is for the next run with the number.
    """
    for instance in range(BY_HAND + 1, COUNT):
        with (folder / f"{minor}-{instance}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield instance
            return
    raise NoInstanceError(minor)


def name_root(minor: str, instance: int) -> str:
    """Return the name of a cluster's folder."""
    return f"{minor}-{instance}" if instance else minor


def started_by_hand(folder: Path, minors: Iterable[str]) -> list[Path]:
    """Return the folders of the clusters of these releases that a person has started, whatever tests run beside."""
    roots = [folder / name_root(minor, BY_HAND) for minor in minors]
    return [root for root in roots if ClusterPaths(root).state.exists()]
