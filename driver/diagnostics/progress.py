"""The interface through which a long computation reports its progress."""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class ProgressTracker(Protocol):
    """Iterates over ``steps`` and reports each one; ``what`` describes them in a message."""

    def __call__(self, steps: Sequence[T], what: str) -> Iterable[T]: ...


def without_progress(steps: Sequence[T], what: str) -> Iterable[T]:  # noqa: ARG001  (reports nothing)
    return steps
