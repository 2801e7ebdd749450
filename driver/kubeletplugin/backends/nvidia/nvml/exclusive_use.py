"""Who may use NVML: calls about cards together, or one act that needs the library closed in this process."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from kerf_dra.driver.kubeletplugin.backends.base import HardwareBusyError

_SHARED_S: Final = 75.0
"""The longest wait of a call for the end of an act: below the limit of a call for a GPU, and longer than a reset."""
_EXCLUSIVE_S: Final = 20.0
"""The longest wait of an act for calls that run: a prepare of a partition takes a second."""


class ExclusiveUse:
    """A lock that many calls share or one act has alone. A call may be made inside another one of its thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._users = 0
        self._act = ""
        """The act that has or wants NVML alone; empty: none does."""
        self._own = threading.local()

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Use NVML beside others. Raises HardwareBusyError when an act does not end in time."""
        depth: int = getattr(self._own, "depth", 0)
        if not depth:
            with self._changed:
                self._wait_for(lambda: not self._act, _SHARED_S, f"NVML is closed meanwhile: {self._act}")
                self._users += 1
        self._own.depth = depth + 1
        try:
            yield
        finally:
            self._own.depth = depth
            if not depth:
                with self._changed:
                    self._users -= 1
                    self._changed.notify_all()

    @contextmanager
    def exclusive(self, act: str) -> Iterator[None]:
        """Use NVML alone for ``act``, not inside of ``shared``. Raises HardwareBusyError when others do not end in
        time.
        """
        with self._changed:
            self._wait_for(lambda: not self._act, _EXCLUSIVE_S, f"another card is in maintenance: {self._act}")
            self._act = act
        try:
            with self._changed:
                self._wait_for(lambda: not self._users, _EXCLUSIVE_S, "calls to other cards have not ended")
            yield
        finally:
            with self._changed:
                self._act = ""
                self._changed.notify_all()

    def _wait_for(self, condition: Callable[[], bool], limit_s: float, problem: str) -> None:
        if not self._changed.wait_for(condition, limit_s):
            raise HardwareBusyError(problem)
