"""The kubelet's DRA and health services, every version of them from one implementation.

Each claim of a call is answered for itself: an error with one is that one's answer, not the call's (KEP-3063).
"""

import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

import anyio

from api.dra.health import DeviceHealth
from api.dra.registry import HEALTH_SERVICES
from api.dra.service import DraService
from api.errors import KerfError
from api.model.names import ClaimRef
from api.model.prepared import PrepareOutcome, to_reported_devices
from driver.kubeletplugin.grpc.server import Handlers, stream, unary
from driver.kubeletplugin.proxy import Relay
from driver.runtime import logs
from driver.runtime.abreast import abreast
from driver.runtime.notifier import Pulse

AnswerT = TypeVar("AnswerT")

REST_S: Final = 0.2
"""Between two reports: a claim changes its record four times in its life, and pods come in groups."""

_log = logging.getLogger(__name__)


class DraNode:
    """Answers the kubelet for one node's claims."""

    def __init__(self, relay: Relay, services: Sequence[DraService]) -> None:
        """``services``: those that the node's kubelet can call."""
        self._relay = relay
        self._services = services

    @property
    def handlers(self) -> Handlers:
        methods = [unary(row.prepare, self.prepare) for row in self._services]
        methods += [unary(row.unprepare, self.unprepare) for row in self._services]
        return dict(methods)

    async def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareOutcome]:
        async def one(claim: ClaimRef) -> PrepareOutcome:
            return PrepareOutcome(devices=to_reported_devices(await self._relay.prepare(claim)))

        return await _each(claims, one, lambda error: PrepareOutcome(error=error))

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]:
        async def one(claim: ClaimRef) -> str:
            await self._relay.unprepare(claim)
            return ""

        return await _each(claims, one, lambda error: error)


class HealthFeed:
    """Sends the health of devices in use: at once when it changes, and again before the kubelet lets it expire.

    Every report holds every device, so changes that follow at once are told together.
    """

    def __init__(self, reports: Callable[[], Sequence[DeviceHealth] | None], *, interval_s: float) -> None:
        """``reports``: of every device; None: it is not for this instance to say."""
        self._reports = reports
        self._interval_s = interval_s
        self._change = Pulse()
        self._closed = anyio.Event()

    @property
    def handlers(self) -> Handlers:
        return dict(stream(row.watch, self.watch) for row in HEALTH_SERVICES)

    def changed(self) -> None:
        self._change.beat()

    def close(self) -> None:
        """End all streams: a server cannot stop while one of its calls goes on."""
        self._closed.set()
        self._change.beat()

    async def watch(self, _request: None) -> AsyncIterator[Sequence[DeviceHealth]]:
        while not self._closed.is_set():
            change = self._change.next
            reports = self._reports()
            if reports is not None:
                yield reports
                with anyio.move_on_after(min(REST_S, self._interval_s)):
                    await self._closed.wait()
            with anyio.move_on_after(self._interval_s):
                await change.wait()


async def _each(
    claims: Sequence[ClaimRef], work: Callable[[ClaimRef], Awaitable[AnswerT]], failed: Callable[[str], AnswerT]
) -> dict[str, AnswerT]:
    """The answer for each claim's UID. One operation id stands on every log line of the call."""
    answers: dict[str, AnswerT] = {}

    async def one(claim: ClaimRef) -> None:
        try:
            answers[claim.uid] = await work(claim)
        except KerfError as error:
            answers[claim.uid] = failed(str(error) or type(error).__name__)
        except Exception as error:  # noqa: BLE001  (a fault of ours fails this claim, not the others; it is logged)
            answers[claim.uid] = failed(f"internal error of the kubelet plugin, see its log: {error!r}")

    with logs.context(request_id=secrets.token_hex(4)):
        try:
            await abreast(one, claims)
        except anyio.get_cancelled_exc_class():
            _log.warning("the kubelet no longer waits; the work goes on, and the next call joins it")
            raise
    return answers
