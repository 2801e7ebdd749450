"""An event loop whose clock jumps to the next timer instead of waiting for it.

Code that asks the loop for the time (``anyio.sleep``, deadlines) runs through hours in milliseconds, in the order in
which it would have. For tests without sockets and threads: their time cannot be jumped over. Use it in a module by::

    @pytest.fixture
    def anyio_backend() -> tuple[str, dict[str, object]]:
        return VIRTUAL_TIME
"""

import asyncio
import selectors
from typing import Final

_STUCK_S: Final = 60.0
"""Real seconds without anything to do: the test waits for what will never happen."""
_TURNS: Final = 50_000
"""Turns of the loop without any passing time: a loop of the program waits for nothing. No test needs a tenth of it."""


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000_000.0
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        self._turns = self._turns + 1 if timeout == 0 and not ready else 0
        if self._turns > _TURNS:
            self._turns = 0  # the loop goes on, to cancel what spins
            raise RuntimeError(f"no time has passed in {_TURNS} turns of the loop: something spins")
        if ready or timeout == 0:
            return ready
        if timeout is not None:
            self.now += timeout
            return []
        ready = super().select(_STUCK_S)
        if not ready:
            raise RuntimeError("everything waits, and no timer is set: this test would hang")
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """See the module."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


async def pass_time(seconds: float) -> None:
    """Let virtual time pass. For modules that run on the virtual clock alone, and have no fixture that says so."""
    assert isinstance(asyncio.get_running_loop(), VirtualTimeLoop), "real time would pass"
    await asyncio.sleep(seconds)


VIRTUAL_TIME: Final[tuple[str, dict[str, object]]] = ("asyncio", {"loop_factory": VirtualTimeLoop})
"""What the fixture ``anyio_backend`` returns."""
