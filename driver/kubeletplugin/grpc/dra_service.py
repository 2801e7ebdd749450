"""The DRA service (NodePrepareResources, NodeUnprepareResources), every version of it by one implementation.

Each claim of a call has an answer of its own: an error with one claim does not fail the call (KEP-3063).
"""

import logging
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

import anyio

from kerf_dra.api.dra.service import DraService
from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.names import ClaimRef
from kerf_dra.api.model.prepared import PreparedClaim, PrepareOutcome, to_reported_devices
from kerf_dra.driver.kubeletplugin.grpc.server import Handlers, unary
from kerf_dra.driver.runtime import logs
from kerf_dra.driver.runtime.concurrency import for_each

_log = logging.getLogger(__name__)

_MAX_MESSAGE: Final = 4096
"""The most characters of one claim's error: the kubelet puts it into an event of 1 KiB, and an answer has 4 MiB."""


class ClaimHandler(Protocol):
    """The object that prepares and unprepares claims. Both methods raise a KerfError with the reason of a failure."""

    async def prepare_when_active(self, claim: ClaimRef) -> PreparedClaim: ...

    async def unprepare_when_active(self, claim: ClaimRef) -> None: ...


class NodeClaimService:
    """The DRA service of one node, which has claims prepared by ``handler``."""

    def __init__(self, handler: ClaimHandler, services: Sequence[DraService]) -> None:
        """``services`` are the versions that the node's kubelet can call."""
        self._handler = handler
        self._services = services

    @property
    def handlers(self) -> Handlers:
        methods = [unary(row.prepare, self.serve_prepare) for row in self._services]
        methods += [unary(row.unprepare, self.serve_unprepare) for row in self._services]
        return dict(methods)

    async def serve_prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareOutcome]:
        """Prepare the claims; returns the outcomes by claim UID."""
        with _call():
            outcomes = await for_each(self._answer_prepare, claims)
        return {claim.uid: outcome for claim, outcome in zip(claims, outcomes, strict=True)}

    async def serve_unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]:
        """Unprepare the claims; returns the errors by claim UID, empty where there was none."""
        with _call():
            errors = await for_each(self._answer_unprepare, claims)
        return {claim.uid: error for claim, error in zip(claims, errors, strict=True)}

    async def _answer_prepare(self, claim: ClaimRef) -> PrepareOutcome:
        try:
            return PrepareOutcome(devices=to_reported_devices(await self._handler.prepare_when_active(claim)))
        except Exception as error:  # noqa: BLE001  (a defect fails this claim, not the others; it is logged)
            return PrepareOutcome(error=_message(error))

    async def _answer_unprepare(self, claim: ClaimRef) -> str:
        try:
            await self._handler.unprepare_when_active(claim)
        except Exception as error:  # noqa: BLE001  (as above)
            return _message(error)
        return ""


@contextmanager
def _call() -> Iterator[None]:
    """Put one operation id on every log line of a call."""
    with logs.context(request_id=secrets.token_hex(4)):
        try:
            yield
        except anyio.get_cancelled_exc_class():
            _log.warning("the kubelet no longer waits; the work goes on, and the next call joins it")
            raise


def _message(error: Exception) -> str:
    if isinstance(error, KerfError):
        text = str(error) or type(error).__name__
    else:
        text = f"internal error of the kubelet plugin, see its log: {error!r}"
    return text if len(text) <= _MAX_MESSAGE else f"{text[:_MAX_MESSAGE]}…"
