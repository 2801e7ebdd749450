"""How a long answer tells how far it is: whoever asks may watch the steps go by."""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class Track(Protocol):
    """Passes ``steps`` on, one by one; ``what`` says what is done with them."""

    def __call__(self, steps: Sequence[T], what: str) -> Iterable[T]: ...


def unwatched(steps: Sequence[T], what: str) -> Iterable[T]:  # noqa: ARG001  (nobody is told)
    return steps
