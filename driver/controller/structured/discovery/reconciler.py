"""Writes what ``plan`` says: the slices of ``shared.kerf.dev``, DeviceClasses, and the status of the objects.

One pass looks at everything, after every change that matters to it: there are as many devices as administrators have
cameras and controllers, not as many as pods. The definitions of the kinds may be missing, as in a cluster without such
devices: then nothing is read or written until they are there.
"""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final

import anyio

from kerf_dra.api.core.v1 import NODES, Node
from kerf_dra.api.errors import KerfError, PermanentError, TransientError
from kerf_dra.api.kerf.discovery_objects import (
    DISCOVERED_DEVICES,
    DISCOVERY_CONFIGURATIONS,
    DiscoveredDeviceObject,
    DiscoveredDeviceStatus,
    DiscoveryConfigurationObject,
    DiscoveryConfigurationStatus,
)
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.claims import DeviceClass
from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.resource.kinds import ResourceKinds
from kerf_dra.api.wire import Kind, to_builtins
from kerf_dra.driver.controller.discovered_devices import list_nodes, report_refused
from kerf_dra.driver.controller.projections import COMPACT_DEVICES
from kerf_dra.driver.controller.settings import NAME
from kerf_dra.driver.controller.structured.discovery.plan import (
    HOSTNAME,
    DevicePlan,
    DiscoveryPlan,
    DiscoverySnapshot,
    is_owned,
    plan_discovery,
)
from kerf_dra.driver.families.shared import SHARED
from kerf_dra.driver.kube.assume_cache import AssumeCache
from kerf_dra.driver.kube.definitions import wait_until_readable
from kerf_dra.driver.kube.events import EventReporter
from kerf_dra.driver.kube.http.client import Client, PatchType
from kerf_dra.driver.kube.http.errors import AlreadyExistsError, ConflictError, ForbiddenError, NotFoundError
from kerf_dra.driver.kube.http.write_history import UndoneWriteError
from kerf_dra.driver.kube.informer import Informer
from kerf_dra.driver.kube.patches import replace_by_merge
from kerf_dra.driver.kube.store import ObjectChange, Store
from kerf_dra.driver.runtime import metrics
from kerf_dra.driver.runtime.notifier import Notifier
from kerf_dra.driver.runtime.problem_log import ProblemLog

_log = logging.getLogger(__name__)

_devices: Final = metrics.gauge("kerf_discovered_devices", "Devices that nodes have found by discovery.", ["state"])


class DiscoveryReconciler:
    """The part of the controller for devices that nodes find."""

    def __init__(
        self,
        client: Client,
        kinds: ResourceKinds,
        *,
        device_classes: AssumeCache[DeviceClass],
        slices: Store[ResourceSlice],
        nodes: Store[Node],
        events: EventReporter,
        settle_s: float,
        retry_s: float,
        now: Callable[[], datetime],
    ) -> None:
        """``slices`` are the cached slices of the driver ``shared.kerf.dev``.

        After a change a pass waits for ``settle_s`` seconds, because changes come in groups; after a failed write, or
        while the definitions are missing, for ``retry_s``.
        """
        self._client = client
        self._kinds = kinds
        self._device_classes = device_classes
        self._slices = AssumeCache(slices)
        self._nodes = nodes
        self._events = events
        self._settle_s = settle_s
        self._retry_s = retry_s
        self._now = now
        self._change = Notifier()
        self._configurations = Informer(client, DISCOVERY_CONFIGURATIONS, on_change=self._on_object)
        self._found = Informer(client, COMPACT_DEVICES, on_change=self._on_object)
        self._keeps_shares = True
        self._answers: dict[str, tuple[DeviceClass, str]] = {}
        """The last write of each DeviceClass: what was desired, and the resource version of the answer."""
        self._slice_answers: dict[str, tuple[ResourceSlice, str]] = {}
        """The same of each slice."""
        self._problems = ProblemLog(_log)
        """What could not be done, by the name of the object; empty: nothing could."""
        self._tried: set[str] = set()
        """The names of the objects that this pass has tried to write."""

    def on_slice(self, change: ObjectChange[ResourceSlice]) -> None:
        """Handle a change of a slice of the driver."""
        self._slices.on_change(change)
        self._change.notify()

    def on_device_class(self, change: ObjectChange[DeviceClass]) -> None:
        """Handle a change of a DeviceClass, after the cache of them."""
        if change.ref.name.endswith(f".{SHARED.driver}"):
            self._change.notify()

    def on_node(self, change: ObjectChange[Node]) -> None:
        """Handle a change of a node."""
        if _hostname(change.old) != _hostname(change.new):
            self._change.notify()

    async def run(self) -> None:
        """Run until cancelled."""
        async with self._informers():
            while True:
                change = self._change.next_event
                await_s = self._retry_s
                self._tried.clear()
                try:
                    next_expiry = await self.reconcile()
                    self._problems.keep(self._tried)
                    retry_s = self._retry_s if self._problems.messages else float("inf")
                    await_s = min(self._seconds_to(next_expiry), retry_s)
                except KerfError as error:
                    self._problems.note("", f"discovered devices cannot be published: {error}")
                with anyio.move_on_after(await_s):
                    await change.wait()
                await anyio.sleep(self._settle_s)

    async def reconcile(self) -> datetime | None:
        """Write what differs from the plan; returns when a device expires. Raises TransientError and ForbiddenError."""
        plan = plan_discovery(await self._snapshot(), self._now())
        for state in ("online", "offline", "invalid"):
            _devices.labels(state).set(sum(_state_of(one) == state for one in plan.devices))
        keeps_shares = self._keeps_shares
        for device in plan.devices:  # before the slices: by its label a plugin finds the device that it is to prepare
            if device.correction is not None and not device.is_expired:
                await self._try(device.held.metadata.name, self._correct(device.held, device.correction))
        await self._write_slices(plan)
        if keeps_shares != self._keeps_shares:
            return await self.reconcile()
        await self._write_classes(plan)
        report_refused(
            self._events,
            {each.held.metadata.name: each.refused for each in plan.devices if each.refused is not None},
        )
        for device in plan.devices:
            await self._write_device(device)
        for held, status in plan.configurations:
            if status != held.status:
                await self._write_status(DISCOVERY_CONFIGURATIONS, held, status)
        return plan.next_expiry

    async def _snapshot(self) -> DiscoverySnapshot:
        devices = tuple(self._found.store.values())
        hostnames = {node.metadata.name: _hostname(node) or "" for node in self._nodes.values()}
        for name in sorted(list_nodes(devices) - hostnames.keys()):
            # A node that leaves its devices does not come back to them by itself: the watch may lack a new one.
            if (node := await self._client.find(NODES, name)) is not None:
                hostnames[name] = _hostname(node) or ""
        return DiscoverySnapshot(
            configurations=tuple(self._configurations.store.values()),
            devices=devices,
            hostnames=hostnames,
            taken_classes=frozenset(
                one.metadata.name
                for one in self._device_classes.values()
                if one.metadata.name.endswith(f".{SHARED.driver}") and not is_owned(one)
            ),
            keeps_shares=self._keeps_shares,
        )

    async def _write_slices(self, plan: DiscoveryPlan) -> None:
        present = {one.metadata.name: one for one in self._slices.values() if one.spec.node_name is None}
        for name, one in present.items():
            if name not in plan.slices and not one.is_terminating:
                await self._try(name, self._delete(self._kinds.resource_slices, one, "no node can get its device"))
        for name, desired in plan.slices.items():
            current = present.get(name)
            if current is None:
                await self._try(name, self._create_slice(desired))
            elif not current.is_terminating and not self._has_slice(current, desired):
                await self._try(name, self._update_slice(current, desired))

    def _has_slice(self, current: ResourceSlice, desired: ResourceSlice) -> bool:
        """Whether a slice is as desired, as far as the server keeps the fields of the last write."""
        if current.spec == desired.spec:
            return True
        return self._slice_answers.get(desired.metadata.name) == (desired, current.metadata.resource_version)

    async def _create_slice(self, desired: ResourceSlice) -> None:
        self._note_slice(await self._client.create(self._kinds.resource_slices, desired, field_manager=NAME), desired)

    async def _update_slice(self, current: ResourceSlice, desired: ResourceSlice) -> None:
        metadata = {"resourceVersion": current.metadata.resource_version, "labels": desired.metadata.labels}
        metadata["ownerReferences"] = to_builtins(desired.metadata.owner_references)
        kind = self._kinds.resource_slices
        there = kind.encode(current)["spec"]
        patch = {"metadata": metadata, "spec": {**dict.fromkeys(there), **kind.encode(desired)["spec"]}}
        kept = await self._client.patch(kind, current.metadata.name, patch, type=PatchType.MERGE, field_manager=NAME)
        self._note_slice(kept, desired)

    def _note_slice(self, kept: ResourceSlice, desired: ResourceSlice) -> None:
        self._slices.assume(kept)
        self._slice_answers[kept.metadata.name] = (desired, kept.metadata.resource_version)
        is_shared = any(device.allow_multiple_allocations for device in kept.spec.devices)
        if self._keeps_shares and not is_shared:
            self._keeps_shares = False
            _log.error("discovered devices have one user each: the API server drops the fields that let them have more")

    async def _write_classes(self, plan: DiscoveryPlan) -> None:
        for name, desired in plan.classes.items():
            current = self._device_classes.get(ObjectRef("", name))
            if current is None:
                await self._try(name, self._create_class(desired))
            elif not current.is_terminating and is_owned(current) and not self._has(current, desired):
                await self._try(name, self._update_class(current, desired))

    def _has(self, current: DeviceClass, desired: DeviceClass) -> bool:
        """Whether a DeviceClass is as desired, as far as the server keeps the fields of the last write."""
        if current.spec == desired.spec and current.metadata.owner_references == desired.metadata.owner_references:
            return True
        return self._answers.get(desired.metadata.name) == (desired, current.metadata.resource_version)

    async def _create_class(self, desired: DeviceClass) -> None:
        self._note_class(await self._client.create(self._kinds.device_classes, desired, field_manager=NAME), desired)

    async def _update_class(self, current: DeviceClass, desired: DeviceClass) -> None:
        kind = self._kinds.device_classes
        there = kind.encode(current).get("spec", {})
        patch = {
            "metadata": {
                "resourceVersion": current.metadata.resource_version,
                "labels": desired.metadata.labels,
                "ownerReferences": to_builtins(desired.metadata.owner_references),
            },
            "spec": {**dict.fromkeys(there), **kind.encode(desired)["spec"]},
        }
        kept = await self._client.patch(kind, current.metadata.name, patch, type=PatchType.MERGE, field_manager=NAME)
        self._note_class(kept, desired)

    def _note_class(self, kept: DeviceClass, desired: DeviceClass) -> None:
        self._device_classes.assume(kept)
        self._answers[kept.metadata.name] = (desired, kept.metadata.resource_version)

    async def _write_device(self, plan: DevicePlan) -> None:
        held = plan.held
        if plan.is_expired or plan.refused is not None:
            why = "no node has seen it for long" if plan.refused is None else plan.refused.why
            await self._try(held.metadata.name, self._delete(DISCOVERED_DEVICES, held, why))
            return
        if plan.status != held.status:
            await self._write_status(DISCOVERED_DEVICES, held, plan.status)

    async def _correct(self, held: DiscoveredDeviceObject, correction: JsonObject) -> None:
        await self._client.patch(
            DISCOVERED_DEVICES, held.metadata.name, correction, type=PatchType.MERGE, field_manager=NAME
        )

    async def _delete(self, kind: Kind[Any], held: Any, why: str) -> None:  # noqa: ANN401  (an object of the kind)
        """Delete an object, unless it has changed: a device may have come back."""
        metadata = held.metadata
        await self._client.delete(kind, metadata.name, uid=metadata.uid, resource_version=metadata.resource_version)
        _log.info("%s %s: deleted, %s", kind.kind, metadata.name, why)

    async def _write_status(
        self,
        kind: Kind[Any],
        held: DiscoveryConfigurationObject | DiscoveredDeviceObject,
        status: DiscoveryConfigurationStatus | DiscoveredDeviceStatus,
    ) -> None:
        change = replace_by_merge(to_builtins(held.status), to_builtins(status))
        patch = {"metadata": {"uid": held.metadata.uid}, "status": change}
        await self._try(
            held.metadata.name,
            self._patch_status(kind, held.metadata.name, patch),
        )

    async def _patch_status(self, kind: Kind[Any], name: str, patch: JsonObject) -> None:
        await self._client.patch(kind, name, patch, type=PatchType.MERGE, subresource="status", field_manager=NAME)

    async def _try(self, name: str, write: Any) -> None:  # noqa: ANN401  (a coroutine)
        """Await a write; one that came too late is planned again when the watch shows why.

        What the server refuses for good, or another program undoes, is logged once, and does not keep other objects
        from being written.
        """
        self._tried.add(name)
        try:
            await write
            self._problems.clear(name)
        except (AlreadyExistsError, NotFoundError, ConflictError) as error:
            _log.debug("%s: %s", name, error)
        except UndoneWriteError as error:
            self._problems.note(name, f"{name}: {error}")
        except ForbiddenError:
            raise
        except TransientError:
            raise
        except PermanentError as error:
            self._problems.note(name, f"{name}: {error}")

    def _seconds_to(self, at: datetime | None) -> float:
        return float("inf") if at is None else max(0.0, (at - self._now()).total_seconds())

    def _on_object(self, _change: ObjectChange[Any]) -> None:
        self._change.notify()

    @asynccontextmanager
    async def _informers(self) -> AsyncIterator[None]:
        for kind in (DISCOVERY_CONFIGURATIONS, DISCOVERED_DEVICES):
            await wait_until_readable(self._client, kind, poll_s=self._retry_s)
        async with anyio.create_task_group() as group:
            for informer in (self._configurations, self._found):
                group.start_soon(informer.run)
                await informer.wait_synced()
            yield


def _hostname(node: Node | None) -> str | None:
    return None if node is None else node.metadata.labels.get(HOSTNAME, "")


def _state_of(plan: DevicePlan) -> str:
    [condition] = plan.status.conditions
    if condition.reason == "Invalid":
        return "invalid"
    return "offline" if plan.status.offline_since else "online"
