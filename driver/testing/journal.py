"""A journal that survives the process which writes it, and that can kill this process at a chosen write."""

import json
from collections.abc import Mapping
from typing import Any


class ProcessKilled(BaseException):
    """The process is killed here, as by ``kill -9``: no ``except Exception`` sees it, and nothing is cleaned up."""


class KillableJournal:
    """The Journal of one device. Its notes are kept as JSON, as the plugin's checkpoint keeps them."""

    def __init__(self) -> None:
        self.writes = 0
        """How many notes were written, also by processes that were killed meanwhile."""
        self._text = "{}"
        self._kill_at: int | None = None
        self._is_kept = False

    @property
    def notes(self) -> Mapping[str, Any]:
        """What was written by this process and those before it."""
        notes: dict[str, Any] = json.loads(self._text)
        return notes

    def kill_at(self, write: int | None, *, is_kept: bool = False) -> None:
        """Kill the process at this write (1 is the next one; None: never), before or after the notes are durable."""
        self._kill_at = None if write is None else self.writes + write
        self._is_kept = is_kept

    def write(self, **notes: Any) -> None:  # noqa: ANN401  (whatever JSON can say)
        """Merge ``notes``. Raises TypeError for what is no JSON, ProcessKilled at the chosen write."""
        merged = json.dumps({**self.notes, **notes})
        self.writes += 1
        is_killed = self.writes == self._kill_at
        if not is_killed or self._is_kept:
            self._text = merged
        if is_killed:
            self._kill_at = None
            raise ProcessKilled
