"""Leader election by a Lease (``coordination.k8s.io/v1``), as in client-go: one process works at a time.

::

    candidate ──the lease is free, ours, or unchanged for its whole duration──> leader: body runs
        ^                                                                          │ renewed every retry_s
        └───── body is cancelled: taken by another, or not renewed for renew_deadline_s ┘

Decisions use this process's own clock only: how long a lease is unchanged is measured from when it was first seen so,
and the times in it are for people. A leader measures from the moment before its last successful renewal was sent, and
stops ``duration_s - renew_deadline_s`` before another may begin. A process that is suspended (SIGSTOP, a frozen
machine) in the middle of a write is not covered: writes carry preconditions for that.
"""

import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Final

import anyio
from msgspec.structs import replace

from kerf_dra.api.core.v1 import LEASES, Lease, LeaseSpec
from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.errors import AlreadyExistsError, ConflictError, NotFoundError
from kerf_dra.driver.runtime import metrics

_JITTER: Final = 0.2
"""The part of ``retry_s`` that is added at random, so that candidates do not call at the same times."""

_log = logging.getLogger(__name__)

_leading: Final = metrics.gauge("kerf_leader", "1 while this process leads, by the name of the lease.", ["lease"])


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSettings:
    """Times of leader election in seconds; the defaults are client-go's.

    They weigh how long the loss of a leader goes unnoticed against the number of calls to the API server.
    """

    duration_s: float = 15.0
    """How long others wait after the last renewal that they saw."""
    renew_deadline_s: float = 10.0
    """How long a leader may go without renewal before it stops; the rest of the duration is for its clean-up."""
    retry_s: float = 2.0
    """The time between two renewals, and between two attempts of a candidate."""

    def __post_init__(self) -> None:
        if not 0 < self.retry_s * (1 + _JITTER) < self.renew_deadline_s < self.duration_s:
            raise ValueError(f"{self}: retry_s must be well below renew_deadline_s, and that below duration_s")


async def run_as_leader(
    client: Client,
    lease_ref: ObjectRef,
    identity: str,
    settings: LeaseSettings,
    body: Callable[[], Awaitable[None]],
    *,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    random: Random | None = None,
) -> None:
    """Run ``body`` whenever this process leads, until it returns or raises.

    ``identity`` is unique among the candidates. When leadership is lost ``body`` is cancelled, and started again when
    it is regained. The lease is released at the end, also on cancellation, so that the next candidate need not wait.
    """
    elector = _Elector(client, lease_ref, identity, settings, now, random or Random())  # noqa: S311  (jitter)
    leading = _leading.labels(lease_ref.name)
    while True:
        await elector.acquire()
        _log.info("leading: %s holds lease %s", identity, lease_ref)
        leading.set(1)
        try:
            if await _run_while(elector.keep_renewed, body):
                return
            _log.warning("not leading any more: %s lost lease %s", identity, lease_ref)
        finally:
            leading.set(0)
            with anyio.CancelScope(shield=True), anyio.move_on_after(settings.duration_s - settings.renew_deadline_s):
                await elector.release()


async def _run_while(condition: Callable[[], Awaitable[None]], body: Callable[[], Awaitable[None]]) -> bool:
    """Run ``body`` until it ends (True), or until ``condition`` returns (False). Raises what ``body`` raises."""
    ended, failure = False, None

    async def watch(scope: anyio.CancelScope) -> None:
        await condition()
        scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(watch, group.cancel_scope)
        try:
            await body()
            ended = True
        except Exception as error:  # noqa: BLE001  (raised below, without the group that it would be wrapped in)
            failure = error
        group.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return ended


class _Elector:
    """One candidate, with the lease as it last saw it."""

    def __init__(
        self,
        client: Client,
        lease_ref: ObjectRef,
        identity: str,
        settings: LeaseSettings,
        now: Callable[[], datetime],
        random: Random,
    ) -> None:
        self._client = client
        self._ref = lease_ref
        self._identity = identity
        self._settings = settings
        self._now = now
        self._random = random
        self._seen = ("", "")  # UID and resource version
        self._seen_at = 0.0
        self._held: Lease | None = None
        self._renewed_at = 0.0

    async def acquire(self) -> None:
        """Wait until this process holds the lease."""
        while not await self._acquire_in_time():  # noqa: ASYNC110  (what is waited for is at the server)
            await anyio.sleep(self._settings.retry_s * (1 + _JITTER * self._random.random()))

    async def keep_renewed(self) -> None:
        """Renew the lease until another holds it, or it was not renewed within ``renew_deadline_s``."""
        renewed = True
        while renewed:
            renewed = False
            with anyio.CancelScope(deadline=self._renewed_at + self._settings.renew_deadline_s):
                await anyio.sleep(self._settings.retry_s)
                renewed = await self._renew()

    async def release(self) -> None:
        """Release the lease, if this process holds it, so that others need not wait."""
        if self._held is None:
            return
        held, self._held = self._held, None
        try:
            try:
                await self._free(held)
            except ConflictError:  # written by another, or by our own renewal, which was cancelled before its answer
                held = await self._client.get(LEASES, self._ref.name, self._ref.namespace)
                if held.spec.holder_identity == self._identity:
                    await self._free(held)
        except KerfError as error:
            _log.info("lease %s is not released, it will expire: %s", self._ref, error)

    async def _free(self, held: Lease) -> None:
        free = replace(held.spec, holder_identity="", lease_duration_seconds=1, renew_time=self._timestamp())
        await self._client.update(LEASES, replace(held, spec=free))

    async def _acquire_in_time(self) -> bool:
        try:
            with anyio.fail_after(self._settings.renew_deadline_s):
                return await self._try_acquire()
        except (KerfError, TimeoutError) as error:
            _log.warning("cannot get lease %s: %s", self._ref, str(error) or "no answer in time")
            return False

    async def _renew(self) -> bool:
        """Try until it is known whether this process still holds the lease; ``keep_renewed`` limits the time."""
        while True:
            try:
                if self._held is None:
                    return await self._try_acquire()
                await self._write(self._held)
                return True
            except (ConflictError, NotFoundError):  # written by another, or by our own attempt without an answer
                self._held = None
            except KerfError as error:
                _log.warning("cannot renew lease %s: %s", self._ref, error)
                await anyio.sleep(self._settings.retry_s)

    async def _try_acquire(self) -> bool:
        """Read the lease and take it if it may be taken."""
        try:
            lease = await self._client.get(LEASES, self._ref.name, self._ref.namespace)
        except NotFoundError:
            lease = None
        try:
            if lease is None:
                await self._write(None)
            elif self._may_take(lease):
                await self._write(lease)
            else:
                return False
        except (AlreadyExistsError, ConflictError):
            return False  # another candidate was faster
        return True

    def _may_take(self, lease: Lease) -> bool:
        spec, version = lease.spec, (lease.metadata.uid, lease.metadata.resource_version)
        if version != self._seen:  # not by its times: they do not change where a clock has stopped
            self._seen, self._seen_at = version, anyio.current_time()
        if not spec.holder_identity or spec.holder_identity == self._identity:
            return True
        return anyio.current_time() >= self._seen_at + (spec.lease_duration_seconds or self._settings.duration_s)

    async def _write(self, lease: Lease | None) -> None:
        """Create the lease, or write this process into it as the holder."""
        sent_at = anyio.current_time()
        old = lease.spec if lease else LeaseSpec()
        is_new = old.holder_identity != self._identity
        spec = LeaseSpec(
            holder_identity=self._identity,
            lease_duration_seconds=math.ceil(self._settings.duration_s),
            acquire_time=self._timestamp() if is_new else old.acquire_time,
            renew_time=self._timestamp(),
            lease_transitions=(old.lease_transitions or 0) + (1 if is_new and lease else 0),
        )
        if lease is None:
            metadata = ObjectMeta(namespace=self._ref.namespace, name=self._ref.name)
            self._held = await self._client.create(LEASES, Lease(metadata=metadata, spec=spec))
        else:
            self._held = await self._client.update(LEASES, replace(lease, spec=spec))
        self._renewed_at = sent_at

    def _timestamp(self) -> str:
        return self._now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
