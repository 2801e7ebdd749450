"""Plays schedules by their seeds, one after the other or in several processes."""

import logging
import os
import shutil
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Final, NamedTuple, Self, TypeAlias

import anyio

from tests.runtime.memory_folder import memory_folder
from tests.runtime.virtual_time import VIRTUAL_TIME
from tests.schedules.nvidia_cards import SETS, NvidiaCards
from tests.schedules.schedule import Schedule

_CHUNK: Final = 50
"""Schedules that a process plays before it asks for more."""


Story: TypeAlias = Callable[[Schedule], Awaitable[None]]


class Failure(NamedTuple):
    """A schedule that went wrong."""

    seed: int
    reason: str

    def __str__(self) -> str:
        return f"{self.reason}\nplay it again: python -m tests.schedules {self.seed}"


class Player:
    """Plays schedules, one after the other, each on cards that are as new."""

    def __init__(self, folder: Path) -> None:
        """``folder`` is empty; it should be in memory."""
        self._folder = folder
        self._cards: dict[int, NvidiaCards] = {}

    def play(self, seed: int, story: Story = Schedule.play) -> Schedule:
        """Play one, or a story instead of what chance chooses. Raises what is wrong."""
        number = seed % len(SETS)
        if number not in self._cards:
            self._cards[number] = NvidiaCards(self._folder / f"cards-{number}", number)
        cards = self._cards[number]
        cards.renew()
        root = self._folder / "node"
        root.mkdir()
        schedule = Schedule(seed, cards, root)
        try:
            with silent():
                anyio.run(story, schedule, backend=VIRTUAL_TIME[0], backend_options=VIRTUAL_TIME[1])
        finally:
            shutil.rmtree(root)
        return schedule

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for cards in self._cards.values():
            cards.close()


@contextmanager
def silent() -> Iterator[None]:
    """The plugin logs nothing inside: with so many faults that would be most of the work."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


@contextmanager
def player_in_memory() -> Iterator[Player]:
    with memory_folder() as folder, Player(Path(folder)) as player:
        yield player


def play_all(seeds: Iterable[int]) -> list[Failure]:
    """Play schedules in this process; returns those that went wrong."""
    failures = []
    with player_in_memory() as player:
        for seed in seeds:
            try:
                player.play(seed)
            except Exception as error:
                failures.append(Failure(seed, _find_reason(error)))
    return failures


def play_in_processes(seeds: range, processes: int | None = None) -> list[Failure]:
    """Play schedules in so many processes, None: as there are processors; returns those that went wrong.

    The processes have the same hashes of texts each time, on which the order of sets depends.
    """
    chunks = [seeds[start : start + _CHUNK] for start in range(0, len(seeds), _CHUNK)]
    failures: list[Failure] = []
    with (
        equal_hashes(),
        ProcessPoolExecutor(processes or len(os.sched_getaffinity(0)), mp_context=get_context("spawn")) as pool,
    ):
        for done in as_completed([pool.submit(play_all, chunk) for chunk in chunks]):
            failures += done.result()
    return sorted(failures)


@contextmanager
def equal_hashes() -> Iterator[None]:
    """Processes that are started inside have no random hashes (PYTHONHASHSEED)."""
    name = "PYTHONHASHSEED"
    before = os.environ.get(name)
    os.environ[name] = "0"
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


def _find_reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
