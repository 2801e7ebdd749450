"""Logs what is wrong with objects that are looked at again and again: once, and not each time.

A reconciler that tries every few seconds what the API server refuses would else write the same line every few seconds.
"""

import logging
from collections.abc import Collection, Iterable


class ProblemLog:
    """The present problems of objects, by the text that names the object; where there is one object, any text does.

    A problem is logged when its object has had none, or one with another message.
    """

    def __init__(self, log: logging.Logger, level: int = logging.WARNING) -> None:
        self._log = log
        self._level = level
        self._problems: dict[str, str] = {}

    @property
    def messages(self) -> Collection[str]:
        """The problems, in the order in which their objects got one."""
        return self._problems.values()

    def note(self, about: str, message: str) -> bool:
        """Note the problem of an object in place of the one that it had; returns whether it is logged."""
        is_new = self._problems.get(about) != message
        if is_new:
            self._log.log(self._level, "%s", message)
            self._problems[about] = message
        return is_new

    def clear(self, about: str) -> bool:
        """Forget the problem of an object, because it has none any more; returns whether it had one."""
        return self._problems.pop(about, None) is not None

    def keep(self, abouts: Collection[str]) -> None:
        """Forget the problems of all other objects, because those are gone."""
        self._problems = {about: message for about, message in self._problems.items() if about in abouts}

    def replace(self, messages: Iterable[str]) -> None:
        """Note problems each of which is about itself, and forget all others."""
        present = dict.fromkeys(messages)
        for message in present:
            self.note(message, message)
        self.keep(present)
