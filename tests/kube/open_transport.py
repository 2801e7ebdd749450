"""What is opened and closed of a Transport that has nothing to open."""

from types import TracebackType
from typing import Self


class OpenTransport:
    """The base of Transports that answer from memory."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pass
