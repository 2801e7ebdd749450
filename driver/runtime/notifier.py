"""Waking whoever waits for something to have changed."""

import anyio


class Pulse:
    """An event that happens again and again. Waiters look for themselves whether what they wait for is there.

    For one event loop; ``beat`` may be called without a loop.
    """

    def __init__(self) -> None:
        self._event = anyio.Event()

    def beat(self) -> None:
        """Wake everyone who waits now; nobody who waits later."""
        self._event.set()
        self._event = anyio.Event()

    @property
    def next(self) -> anyio.Event:
        """The coming beat. Take it, look at the state, then wait for it: no beat is missed while looking takes time."""
        return self._event

    async def wait(self) -> None:
        await self._event.wait()
