"""Keeps the ResourceSlices of a driver on a node as they should be, whatever happens to them.

The kubelet deletes all slices of its node when it starts, and a driver's 30 s after its socket went away
(kubernetes/kubernetes#132058); administrators and old versions of the driver leave others. So publishing follows what
is there, and repairs it:

- A new content of a pool, and a slice of ours that somebody deleted, are written at once, but no pool more often than
  every ``min_interval_s``: the latest content wins.
- Anything else that somebody changed is put right after ``repair_delay_s``: time for whoever it was to finish, and
  for two who disagree not to fight.
- Slices stay when the process ends: claims that are allocated from them go on, and the next process takes them over.

Own writes are waited for until the watch shows them, so that no plan is made from what was before them.
"""

import logging
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import anyio

from api.errors import InvalidDocumentError, PermanentError, TransientError
from api.model.devices import Pool, ResourceSlice
from api.model.metadata import OwnerReference
from api.model.names import ObjectRef
from api.resource.kinds import ResourceKinds
from api.wire import to_builtins
from driver.kube.dropped_fields import lost_fields
from driver.kube.http.client import Client
from driver.kube.http.errors import AlreadyExistsError, NotFoundError
from driver.kube.informer import Informer
from driver.kube.slice_plan import Accepted, CreateSlice, DeleteSlice, SliceContext, Write, plan_pool, problems
from driver.kube.store import Change
from driver.runtime import metrics
from driver.runtime.notifier import Pulse
from driver.runtime.work_queue import KeyedQueue

_WORKERS: Final = 2
"""A node has a pool for each kind of device."""

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
"""Which gate the API server needs for a field of a slice (kubernetes/kubernetes ``pkg/features``)."""

_log = logging.getLogger(__name__)

_writes: Final = metrics.counter("kerf_slice_writes_total", "ResourceSlices written.", ("operation",))


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishSettings:
    """How eagerly slices are written; seconds."""

    min_interval_s: float = 5.0
    """Between two writes of one pool. Every write goes to the scheduler and makes it look at its waiting pods again."""
    repair_delay_s: float = 30.0
    """Before others' changes are put right; upstream's publisher waits as long."""
    sight_timeout_s: float = 10.0
    """For the watch to show an own write: far longer than a healthy one takes."""
    refused_retry_s: float = 60.0
    """After the server refused a write: somebody has to change something first, a permission for example."""


class OutOfStepError(TransientError):
    """The server has something else than the watch has shown so far."""


class SlicePublisher:
    """Reconciles the ResourceSlices of ``driver`` on ``node_name`` with the pools that it is given.

    ``on_problem`` is told, for people, what keeps a pool from being published as it is; the same thing once. It must
    not raise.
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
        self._settings = settings
        self._on_problem = on_problem
        self._informer = Informer(
            client,
            kinds.resource_slices,
            field_selector=f"spec.driver={driver},spec.nodeName={node_name}",
            indexers={"pool": lambda value: (value.spec.pool.name,)},
            on_change=self._changed,
        )
        self._queue = KeyedQueue[str]()
        self._desired: dict[str, Pool] | None = None  # None: publish was not called yet
        self._pulse = Pulse()  # an own write was seen
        self._awaited: set[ObjectRef] = set()  # own writes that the watch has not shown yet
        self._generations: dict[str, int] = {}
        self._accepted: dict[str, Accepted] = {}
        self._written_at: dict[str, float] = {}
        self._problems: dict[str, str] = {}

    @property
    def lost_fields(self) -> frozenset[str]:
        """Fields that the server drops from what is published now, as paths in ``spec``.

        Without ``devices[].consumesCounters`` partitions that overlap look free of one another: publish none then.
        """
        return frozenset(path for accepted in self._accepted.values() for path in accepted.lost)

    def publish(self, pools: Sequence[Pool]) -> None:
        """Have these pools, and no others, on the server from now on. Returns at once.

        Raises InvalidDocumentError, and changes nothing, when consumers would take a pool for invalid.
        """
        for pool in pools:
            if found := problems(pool):
                raise InvalidDocumentError(f"pool {pool.name}", found)
        self._desired = {pool.name: pool for pool in pools}
        self._mark_all()

    async def run(self) -> None:
        """Publish for ever."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._informer.run)
            await self._informer.wait_synced()
            self._mark_all()
            await self._queue.run(self._sync, workers=_WORKERS)

    def _mark_all(self) -> None:
        """Look at every pool that should be there, or is."""
        for name in {*(self._desired or ()), *(value.spec.pool.name for value in self._informer.store.values())}:
            self._queue.add(name)

    async def _sync(self, name: str) -> None:
        """One round for one pool. It is over only when a later round finds nothing to write."""
        if self._desired is None:
            return
        await self._see_own_writes()
        writes = plan_pool(self._desired.get(name), self._informer.store.indexed("pool", name), self._context())
        if not writes:
            self._problems.pop(name, None)
            return
        wait_s = self._written_at.get(name, -math.inf) + self._settings.min_interval_s - anyio.current_time()
        if wait_s > 0:
            self._queue.add(name, after_s=wait_s)
            return
        try:
            for write in writes:
                await self._execute(write)
        except (AlreadyExistsError, NotFoundError) as error:
            raise OutOfStepError(str(error)) from error
        except PermanentError as error:
            self._report(name, f"pool {name} cannot be published: {error}")
            self._queue.add(name, after_s=self._settings.refused_retry_s)
            return
        self._written_at[name] = anyio.current_time()
        self._report_lost_fields()
        self._queue.add(name)

    async def _see_own_writes(self) -> None:
        """Wait until the watch has shown them, also those before one that failed: a plan would make them again."""
        awaited = frozenset(self._awaited)
        with anyio.move_on_after(self._settings.sight_timeout_s):
            while not self._awaited.isdisjoint(awaited):
                await self._pulse.wait()
        self._awaited -= awaited

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
            _writes.labels("create").inc()
        else:
            kept = await self._client.update(self._kind, write.value)
            _writes.labels("update").inc()
        self._remember(write.value, kept)
        self._await(kept.ref, kept)

    async def _delete(self, write: DeleteSlice) -> None:
        with suppress(NotFoundError):
            await self._client.delete(self._kind, write.name, uid=write.uid, resource_version=write.resource_version)
        _writes.labels("delete").inc()
        self._accepted.pop(write.name, None)
        self._await(ObjectRef("", write.name), None)

    def _remember(self, sent: ResourceSlice, kept: ResourceSlice) -> None:
        self._generations[sent.spec.pool.name] = sent.spec.pool.generation
        self._accepted.pop(kept.metadata.name, None)
        if kept.spec == sent.spec:
            return
        lost = lost_fields(to_builtins(sent.spec), to_builtins(kept.spec))
        if lost:
            self._accepted[kept.metadata.name] = Accepted(sent=sent.spec, kept=kept.spec, lost=lost)

    def _report_lost_fields(self) -> None:
        lost = sorted(self.lost_fields)
        gates = sorted({FEATURE_GATES[word] for path in lost for word in path.split(".") if word in FEATURE_GATES})
        if lost:
            switch_on = f": switch on the feature gate {' and '.join(gates)}" if gates else ""
            self._report("", f"the API server dropped {', '.join(lost)} from ResourceSlices{switch_on}")

    def _await(self, ref: ObjectRef, written: ResourceSlice | None) -> None:
        """From now on wait for the watch to show this, unless it has."""
        seen = self._informer.store.get(ref)
        if (seen and seen.metadata.resource_version) != (written and written.metadata.resource_version):
            self._awaited.add(ref)

    def _changed(self, change: Change[ResourceSlice]) -> None:
        self._awaited.discard(change.ref)
        self._pulse.beat()
        value = change.new or change.old
        if value is not None:
            was_deleted = change.new is None
            self._queue.add(value.spec.pool.name, after_s=0 if was_deleted else self._settings.repair_delay_s)

    def _report(self, pool: str, problem: str) -> None:
        """``pool`` is empty for problems of all pools."""
        if self._problems.get(pool) != problem:
            self._problems[pool] = problem
            _log.error("%s", problem)
            self._on_problem(problem)
