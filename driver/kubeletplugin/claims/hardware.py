"""Executes the hardware work of claims: cards in parallel, and for each card, which has a lock, one call at a time."""

import logging
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import anyio
import msgspec

from api.errors import KerfError
from api.model.names import ClaimRef
from api.model.prepared import PreparedClaim, PreparedDevice
from cdi import ContainerEdits
from driver.kubeletplugin.backends.base import AllocatedDevice, Backend, HardwareBusyError, HardwareRefusedError
from driver.kubeletplugin.claims.allocation import decode_config, is_shared
from driver.partitions.records import from_card_part
from driver.runtime import logs, metrics
from driver.runtime.concurrency import for_each

_log = logging.getLogger(__name__)

_SECONDS: Final = metrics.histogram(
    "kerf_hardware_seconds",
    "Time that a backend took for one device, without waiting for its card.",
    ["backend", "operation", "outcome"],
    # From a simulated card's milliseconds over GPU instances (tenths of a second) to FPGA loads (tens of seconds).
    buckets=(0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300),
)


class DevicesFailedError(KerfError):
    """The hardware work for some devices of a claim failed; the message says for each what went wrong.

    ``devices`` are all devices of the claim, with the new state of those that succeeded; ``failed`` are the others, and
    ``failures`` their errors.
    """

    def __init__(self, devices: Sequence[PreparedDevice], failures: Mapping[int, Exception]) -> None:
        self.devices = tuple(devices)
        self.failures = tuple(failures[index] for index in sorted(failures))
        self.failed = tuple(devices[index] for index in sorted(failures))
        super().__init__(
            "; ".join(f"{devices[index].share.id.device}: {failures[index]}" for index in sorted(failures))
        )


class HardwareExecutor:
    """The executor of one node. ``timeout_s`` bounds a backend call, as a last resort against one that hangs."""

    def __init__(self, backends: Mapping[str, Backend], *, timeout_s: float) -> None:
        self._backends = backends
        self._timeout_s = timeout_s
        self._cards: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)

    async def prepare(self, claim: ClaimRef, devices: Sequence[PreparedDevice]) -> tuple[PreparedDevice, ...]:
        """Prepare the devices; returns them with their handles.

        Raises DevicesFailedError, whose ``devices`` are to be released: some may be done.
        """
        return _check_results(devices, await for_each(partial(self._prepare, claim), devices))

    async def release(
        self, claim: ClaimRef, devices: Sequence[PreparedDevice], records: Mapping[str, PreparedClaim]
    ) -> None:
        """Release what was or may have been prepared; nothing there is success. Raises DevicesFailedError.

        A device of which another claim in ``records`` (by UID) has a share is left to that claim. The records are read
        while the card is locked.
        """
        _check_results(devices, await for_each(partial(self._release, claim, records), devices))

    def container_edits(self, devices: Iterable[PreparedDevice]) -> list[ContainerEdits]:
        """Return what containers get of prepared ``devices``, in their order."""
        return [self._backend(device).edits(device.handle or {}) for device in devices]

    async def _prepare(self, claim: ClaimRef, device: PreparedDevice) -> PreparedDevice | Exception:
        try:
            async with self._lock_card("prepare", device):
                handle = await self._backend(device).prepare(_to_allocated_device(claim, device), decode_config(device))
        except Exception as error:  # noqa: BLE001  (backends are third parties': the other devices go on)
            return _log_failure("prepare", device, error)
        return msgspec.structs.replace(device, handle=handle)

    async def _release(
        self, claim: ClaimRef, records: Mapping[str, PreparedClaim], device: PreparedDevice
    ) -> PreparedDevice | Exception:
        try:
            async with self._lock_card("release", device):
                if is_shared(claim, device, records):
                    pass
                elif device.handle is None:
                    await self._backend(device).abandon(_to_allocated_device(claim, device))
                else:
                    await self._backend(device).unprepare(device.handle)
        except Exception as error:  # noqa: BLE001  (as above)
            return _log_failure("release", device, error)
        return device

    def _backend(self, device: PreparedDevice) -> Backend:
        backend = self._backends.get(device.backend)
        if backend is None:
            known = ", ".join(sorted(self._backends)) or "none"
            raise HardwareRefusedError(f"its backend {device.backend!r} is not configured (any more); there is {known}")
        return backend

    @asynccontextmanager
    async def _lock_card(self, operation: str, device: PreparedDevice) -> AsyncIterator[None]:
        """Hold the lock of the device's card for at most ``timeout_s``. Raises HardwareBusyError after that time."""
        lock = self._cards[device.part.card_uuid]
        await lock.acquire()
        begun = time.perf_counter()
        outcome = "failed"
        try:
            with logs.context(pool=device.share.id.pool, device=device.share.id.device):
                with anyio.move_on_after(self._timeout_s) as limit:
                    yield
                if limit.cancelled_caught:
                    raise HardwareBusyError(f"backend {device.backend} gave no answer within {self._timeout_s:g} s")
            outcome = "done"
        finally:
            lock.release()
            _SECONDS.labels(device.backend, operation, outcome).observe(time.perf_counter() - begun)


def _to_allocated_device(claim: ClaimRef, device: PreparedDevice) -> AllocatedDevice:
    return AllocatedDevice(
        claim=claim,
        share=device.share,
        partition=from_card_part(device.part),
        admin_access=device.admin_access,
        consumed_capacity=device.consumed_capacity,
    )


def _log_failure(operation: str, device: PreparedDevice, error: Exception) -> Exception:
    if not isinstance(error, KerfError):
        _log.error("backend %s failed unexpectedly to %s %s", device.backend, operation, device.share, exc_info=error)
    return error


def _check_results(
    devices: Sequence[PreparedDevice], results: Sequence[PreparedDevice | Exception]
) -> tuple[PreparedDevice, ...]:
    failures = {index: result for index, result in enumerate(results) if isinstance(result, Exception)}
    state = [
        device if isinstance(result, Exception) else result for device, result in zip(devices, results, strict=True)
    ]
    if failures:
        raise DevicesFailedError(state, failures)
    return tuple(state)
