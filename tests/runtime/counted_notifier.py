"""A notifier that counts how often somebody begins to wait: the rounds of a loop that waits once in each."""

import anyio

from kerf_dra.driver.runtime.notifier import Notifier


class CountedNotifier(Notifier):
    """A notifier with the number of its ``rounds``."""

    rounds = 0

    @property
    def next_event(self) -> anyio.Event:
        self.rounds += 1
        return super().next_event
