"""A reconciler of the ResourceSlices of a driver on a node.

The kubelet deletes all slices of its node when it starts, and a driver's 30 s after its socket is gone
(kubernetes/kubernetes#132058); administrators and old versions of the driver leave others. So publishing watches the
slices and repairs them:

- New content of a pool, and a slice of ours that was deleted, are written at once, but no pool more often than every
  ``min_interval_s``: the latest content wins.
- Every other change by others is reverted after ``repair_delay_s``, so that its writer can finish, and two
  programs that disagree do not write in a loop.
- Slices stay when the process ends: claims that are allocated from them continue, and the next process adopts them.

Before a plan is made, the watch has to show all own writes, so that no plan is made from an older state. A watch that
does not is no longer trusted: the slices are listed again.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import anyio

from kerf_dra.api.errors import InvalidDocumentError, PermanentError, TransientError
from kerf_dra.api.model.devices import Pool, ResourceSlice
from kerf_dra.api.model.metadata import OwnerReference
from kerf_dra.api.model.names import ObjectRef, list_names
from kerf_dra.api.resource.kinds import ResourceKinds
from kerf_dra.api.wire import to_builtins
from kerf_dra.driver.kube.dropped_fields import find_dropped_fields
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.errors import AlreadyExistsError, ConflictError, NotFoundError
from kerf_dra.driver.kube.informer import Informer
from kerf_dra.driver.kube.slice_plan import (
    AcceptedSlice,
    CreateSlice,
    DeleteSlice,
    SliceContext,
    Write,
    find_pool_problems,
    plan_pool,
    slice_name,
)
from kerf_dra.driver.kube.store import ObjectChange
from kerf_dra.driver.runtime import metrics
from kerf_dra.driver.runtime.notifier import Notifier
from kerf_dra.driver.runtime.problem_log import ProblemLog
from kerf_dra.driver.runtime.work_queue import WorkQueue

_WORKERS: Final = 2
"""Concurrent pools: a node has one for each kind of device."""

FEATURE_GATES: Final = {
    "sharedCounters": "DRAPartitionableDevices",
    "consumesCounters": "DRAPartitionableDevices",
    "compatibilityGroups": "DRADeviceCompatibilityGroups",
    "partitionTypeAttribute": "DRAPartitionableDevicesType",
    "taints": "DRADeviceTaints",
    "allowMultipleAllocations": "DRAConsumableCapacity",
    "requestPolicy": "DRAConsumableCapacity",
    "bindsToNode": "DRADeviceBindingConditions",
    "bindingConditions": "DRADeviceBindingConditions",
    "bindingFailureConditions": "DRADeviceBindingConditions",
    "ints": "DRAListTypeAttributes",
    "bools": "DRAListTypeAttributes",
    "strings": "DRAListTypeAttributes",
    "versions": "DRAListTypeAttributes",
    "skipNodeOperations": "DRAOptionalNodeOperations",
}
"""The feature gate that the API server needs for a field of a slice (kubernetes/kubernetes ``pkg/features``)."""

_log = logging.getLogger(__name__)

_writes: Final = metrics.counter("kerf_slice_writes_total", "ResourceSlices written.", ("driver", "operation"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishSettings:
    """Delays and limits of the publisher, in seconds."""

    min_interval_s: float = 5.0
    """Time between two writes of one pool. Every write makes the scheduler reconsider its pending pods."""
    repair_delay_s: float = 30.0
    """Time before others' changes are reverted; upstream's publisher waits as long."""
    sight_timeout_s: float = 10.0
    """How long to wait for the watch to show an own write: far longer than a healthy one takes."""
    refused_retry_s: float = 60.0
    """Time before a refused write is retried: its cause, for example a missing permission, has to be fixed first."""


class StaleCacheError(TransientError):
    """The server's state is newer than what the watch has shown."""


class SlicePublisher:
    """Reconciles the ResourceSlices of ``driver`` on ``node_name`` with the pools that it is given.

    ``on_problem`` is called with a message when a pool cannot be published as it is, once per problem. It must not
    raise.
    """

    def __init__(
        self,
        client: Client,
        kinds: ResourceKinds,
        *,
        driver: str,
        node_name: str,
        owner: OwnerReference,
        settings: PublishSettings,
        on_problem: Callable[[str], None],
    ) -> None:
        self._client = client
        self._kind = kinds.resource_slices
        self._driver = driver
        self._node_name = node_name
        self._owner = owner
        self._has_owner = True
        self.removed = Notifier()
        """Notified when a slice is removed by another program."""
        self._settings = settings
        self._on_problem = on_problem
        self._informer = Informer(
            client,
            kinds.resource_slices,
            field_selector=f"spec.driver={driver},spec.nodeName={node_name}",
            indexers={"pool": lambda value: (value.spec.pool.name,)},
            on_change=self._changed,
        )
        self._queue = WorkQueue[str]()
        self._desired: dict[str, Pool] | None = None  # None: publish was not called yet
        self._unsettled: set[str] = set()
        """The pools of which not all of the last ``publish`` is known to be on the server."""
        self._changes = Notifier()  # an own write was seen
        self._awaited: set[ObjectRef] = set()  # own writes that the watch has not shown yet
        self._generations: dict[str, int] = {}
        self._accepted: dict[str, AcceptedSlice] = {}
        self._written_at: dict[str, float] = {}
        self._problems = ProblemLog(_log, logging.ERROR)

    @property
    def dropped_fields(self) -> frozenset[str]:
        """The paths in ``spec`` that the server drops from the slices published now.

        Without ``devices[].consumesCounters`` overlapping partitions look independent: publish none of them then.
        """
        return frozenset(path for accepted in self._accepted.values() for path in accepted.dropped)

    @property
    def is_settled(self) -> bool:
        """Whether everything that ``publish`` was given last has been seen on the server, and nothing is being written.

        Others may have changed slices since: that is repaired, always to the same content.
        """
        return self._desired is not None and not self._unsettled

    def publish(self, pools: Sequence[Pool]) -> None:
        """Keep these pools, and no others, on the server from now on. It returns at once.

        Raises InvalidDocumentError, and changes nothing, when consumers would reject a pool.
        """
        for pool in pools:
            if found := find_pool_problems(pool):
                raise InvalidDocumentError(f"pool {pool.name}", found)
        before = self._desired or {}
        self._desired = {pool.name: pool for pool in pools}
        self._forget_writes(before)
        # A pool that is to go leaves nothing behind that could be allocated again, once it is gone: it counts, too.
        self._unsettled |= {*before, *self._desired}
        self._queue_all()
        for name in self._unsettled:
            self._queue.add(name)

    def _forget_writes(self, before: Mapping[str, Pool]) -> None:
        """Note that all slices of a changed pool may be written again: an equal one has nothing but its generation."""
        for name, pool in (self._desired or {}).items():
            if before.get(name) != pool:
                for index in range(max(1, len(pool.slices))):
                    ref = ObjectRef("", slice_name(index, self._driver, self._node_name, name))
                    self._client.forget_write(self._kind, ref)

    def set_owner(self, owner: OwnerReference | None) -> None:
        """Have ``owner`` own the slices from now on; None: it is gone, and nothing is written until there is one.

        A slice whose owner is gone is garbage-collected, however often it is created.
        """
        has_changed = (owner is not None) != self._has_owner or owner not in (None, self._owner)
        self._owner, self._has_owner = owner or self._owner, owner is not None
        if has_changed:
            self._queue_all()

    async def run(self) -> None:
        """Publish until cancelled."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._informer.run)
            await self._informer.wait_synced()
            self._queue_all()
            await self._queue.run(self._reconcile, workers=_WORKERS)

    def _queue_all(self) -> None:
        """Queue every pool that is desired or exists."""
        for name in {*(self._desired or ()), *(value.spec.pool.name for value in self._informer.store.values())}:
            self._queue.add(name)

    async def _reconcile(self, name: str) -> None:
        """Reconcile one pool, which counts as published when a later pass finds nothing to write."""
        if self._desired is None or not self._has_owner:
            return
        await self._wait_for_own_writes()
        writes = plan_pool(self._desired.get(name), self._informer.store.indexed("pool", name), self._context())
        if not writes:
            self._problems.clear(name)
            self._unsettled.discard(name)
            return
        wait_s = self._written_at.get(name, -math.inf) + self._settings.min_interval_s - anyio.current_time()
        if wait_s > 0:
            self._queue.add(name, after_s=wait_s)
            return
        try:
            has_conflict = await self._execute_all(writes)
        except (AlreadyExistsError, NotFoundError) as error:
            raise StaleCacheError(str(error)) from error
        except PermanentError as error:
            self._report(name, f"pool {name} cannot be published: {error}")
            self._queue.add(name, after_s=self._settings.refused_retry_s)
            return
        self._written_at[name] = anyio.current_time()
        self._report_dropped_fields()
        self._queue.add(name, after_s=self._settings.repair_delay_s if has_conflict else 0)

    async def _execute_all(self, writes: Sequence[Write]) -> bool:
        """Execute ``writes``; returns whether a slice has changed since it was to be deleted, and is left for now."""
        has_conflict = False
        for write in writes:
            try:
                await self._execute(write)
            except ConflictError:
                if not isinstance(write, DeleteSlice):
                    raise
                has_conflict = True
        return has_conflict

    async def _wait_for_own_writes(self) -> None:
        """Wait until the watch shows the own writes, also those before one that failed: a plan would repeat them.

        Raises StaleCacheError when it does not in time, and has the slices listed.
        """
        awaited = frozenset(self._awaited)
        timeout_s = self._settings.sight_timeout_s
        with anyio.move_on_after(timeout_s):
            while not self._awaited.isdisjoint(awaited):
                await self._changes.wait()
        unseen = sorted(ref.name for ref in self._awaited & awaited)
        self._awaited -= awaited
        if unseen:
            self._informer.relist()
            raise StaleCacheError(f"the watch has not shown own writes within {timeout_s:g} s: {list_names(unseen)}")

    def _context(self) -> SliceContext:
        return SliceContext(
            driver=self._driver,
            node_name=self._node_name,
            owner=self._owner,
            generations=self._generations,
            accepted=self._accepted,
        )

    async def _execute(self, write: Write) -> None:
        if isinstance(write, DeleteSlice):
            await self._delete(write)
            return
        if isinstance(write, CreateSlice):
            kept = await self._client.create(self._kind, write.value)
            _writes.labels(self._driver, "create").inc()
        else:
            kept = await self._client.update(self._kind, write.value)
            _writes.labels(self._driver, "update").inc()
        self._remember(write.value, kept)
        self._expect(kept.ref, kept)

    async def _delete(self, write: DeleteSlice) -> None:
        with suppress(NotFoundError):
            await self._client.delete(self._kind, write.name, uid=write.uid, resource_version=write.resource_version)
        _writes.labels(self._driver, "delete").inc()
        self._accepted.pop(write.name, None)
        self._expect(ObjectRef("", write.name), None)

    def _remember(self, sent: ResourceSlice, kept: ResourceSlice) -> None:
        self._generations[sent.spec.pool.name] = sent.spec.pool.generation
        self._accepted.pop(kept.metadata.name, None)
        if kept.spec == sent.spec:
            return
        dropped = find_dropped_fields(to_builtins(sent.spec), to_builtins(kept.spec))
        if dropped:
            self._accepted[kept.metadata.name] = AcceptedSlice(sent=sent.spec, kept=kept.spec, dropped=dropped)

    def _report_dropped_fields(self) -> None:
        dropped = sorted(self.dropped_fields)
        gates = sorted({FEATURE_GATES[word] for path in dropped for word in path.split(".") if word in FEATURE_GATES})
        if dropped:
            switch_on = f": switch on the feature gate {' and '.join(gates)}" if gates else ""
            self._report("", f"the API server dropped {', '.join(dropped)} from ResourceSlices{switch_on}")

    def _expect(self, ref: ObjectRef, written: ResourceSlice | None) -> None:
        """Add a write to those that the watch has to show, unless it has."""
        seen = self._informer.store.get(ref)
        if (seen and seen.metadata.resource_version) != (written and written.metadata.resource_version):
            self._awaited.add(ref)

    def _changed(self, change: ObjectChange[ResourceSlice]) -> None:
        if change.new is None and change.ref not in self._awaited:
            self.removed.notify()
        self._awaited.discard(change.ref)
        self._changes.notify()
        value = change.new or change.old
        if value is not None:
            was_deleted = change.new is None
            self._queue.add(value.spec.pool.name, after_s=0 if was_deleted else self._settings.repair_delay_s)

    def _report(self, pool: str, problem: str) -> None:
        """Report a problem once; ``pool`` is empty for problems of all pools."""
        if self._problems.note(pool, problem):
            self._on_problem(problem)
