"""The kubelet's calls on their way to whoever works: they wait while it is another instance's turn."""

from collections.abc import Sequence

from api.dra.health import DeviceHealth
from api.model.names import ClaimRef
from api.model.prepared import PreparedClaim
from driver.kubeletplugin.claims.preparer import StoppingError
from driver.kubeletplugin.plugin import Node
from driver.runtime.notifier import Pulse


class Relay:
    """Passes calls on. The kubelet bounds how long they wait."""

    def __init__(self) -> None:
        self._node: Node | None = None
        self._is_closed = False
        self._change = Pulse()

    def enter(self, node: Node) -> None:
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
        while True:
            node = await self._at_work()
            try:
                return await node.preparing.prepare(claim)
            except StoppingError:
                if self._is_final(node):
                    raise

    async def unprepare(self, claim: ClaimRef) -> None:
        while True:
            node = await self._at_work()
            try:
                return await node.preparing.unprepare(claim)
            except StoppingError:
                if self._is_final(node):
                    raise

    def health(self) -> Sequence[DeviceHealth] | None:
        """Of every device in use; None: another instance knows."""
        return self._node.health() if self._node is not None else None

    async def _at_work(self) -> Node:
        while True:
            change = self._change.next
            if self._node is not None:
                return self._node
            if self._is_closed:
                raise StoppingError
            await change.wait()

    def _is_final(self, node: Node) -> bool:
        """Whether ``node`` stops with the process; else its turn is over, and its calls wait for the next."""
        return self._is_closed or self._node is node
