"""The kubelet's calls on their way to whoever works: they wait while it is another instance's turn."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from api.dra.health import DeviceHealth
from api.model.names import ClaimRef
from api.model.prepared import PreparedClaim
from driver.runtime.notifier import Pulse
from driver.runtime.single_flight import StoppingError

AnswerT = TypeVar("AnswerT")


class Working(Protocol):
    """What this needs of a node at work."""

    async def prepare(self, claim: ClaimRef) -> PreparedClaim: ...

    async def unprepare(self, claim: ClaimRef) -> None: ...

    def health(self) -> Sequence[DeviceHealth]:
        """How the devices of claims are."""
        ...


class Relay:
    """Passes calls on. The kubelet bounds how long they wait."""

    def __init__(self) -> None:
        self._node: Working | None = None
        self._is_closed = False
        self._change = Pulse()

    @property
    def node(self) -> Working | None:
        """Who works in this instance; None: it is not its turn."""
        return self._node

    def enter(self, node: Working) -> None:
        """From now on ``node`` answers."""
        self._node = node
        self._change.beat()

    def leave(self) -> None:
        """Calls that come now wait for the next turn. What was passed on goes on."""
        self._node = None

    def close(self) -> None:
        """The instance ends: calls that wait fail, so that the kubelet tries another one."""
        self._is_closed = True
        self._change.beat()

    async def prepare(self, claim: ClaimRef) -> PreparedClaim:
        return await self._pass_on(lambda node: node.prepare(claim))

    async def unprepare(self, claim: ClaimRef) -> None:
        await self._pass_on(lambda node: node.unprepare(claim))

    def health(self) -> Sequence[DeviceHealth] | None:
        """None: another instance knows."""
        return self._node.health() if self._node is not None else None

    async def _pass_on(self, call: Callable[[Working], Awaitable[AnswerT]]) -> AnswerT:
        while True:
            node = await self._at_work()
            try:
                return await call(node)
            except StoppingError:
                if self._is_closed or self._node is node:
                    raise  # else its turn is over, and the call waits for the next

    async def _at_work(self) -> Working:
        while True:
            change = self._change.next
            if self._node is not None:
                return self._node
            if self._is_closed:
                raise StoppingError
            await change.wait()
