"""A notifier wakes all tasks that wait for a change: a condition variable for one event loop."""

import anyio


class Notifier:
    """An event that happens again and again. ``notify`` may be called without a running event loop.

    A waiter takes ``next_event``, reads the state, then waits for that event: no change in between is missed.
    """

    def __init__(self) -> None:
        self._event = anyio.Event()

    def notify(self) -> None:
        """Wake all tasks that wait now; a task that begins to wait later waits for the next call."""
        self._event.set()
        self._event = anyio.Event()

    @property
    def next_event(self) -> anyio.Event:
        """The event that the next call of ``notify`` sets."""
        return self._event

    async def wait(self) -> None:
        await self._event.wait()


async def forward(change: Notifier, to: Notifier) -> None:
    """Notify ``to`` whenever ``change`` is notified, and once at the start, until cancelled."""
    while True:
        event = change.next_event
        to.notify()
        await event.wait()
