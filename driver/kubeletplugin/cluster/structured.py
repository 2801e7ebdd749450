"""The cluster where the scheduler allocates (Kubernetes 1.32 and later): devices are published in ResourceSlices."""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Final

import anyio

from kerf_dra.api.core.v1 import ObjectReference, Pod
from kerf_dra.api.dra.registry import STRUCTURED_SERVICES, PluginServices
from kerf_dra.api.kerf.card_maintenance import CardMaintenanceObject, MaintenanceWork
from kerf_dra.api.model.allocations import AllocatedDeviceStatus
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.claims import AllocatedClaim, ResourceClaim
from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.api.model.names import ClaimRef, ObjectRef
from kerf_dra.api.resource.kinds import allocated_claim_kind
from kerf_dra.api.wire import to_builtins
from kerf_dra.driver.kube.discovery import ApiFeatures
from kerf_dra.driver.kube.events import EventKind, EventReporter
from kerf_dra.driver.kube.http.client import Client, JsonPatch, PatchType
from kerf_dra.driver.kube.http.errors import ConflictError, ForbiddenError, InvalidError
from kerf_dra.driver.kube.informer import Informer
from kerf_dra.driver.kube.slice_publisher import PublishSettings, SlicePublisher
from kerf_dra.driver.kube.store import ObjectChange
from kerf_dra.driver.kubeletplugin.cluster.base import (
    PATCH_REFUSED,
    ClaimInformer,
    DiscoveredDeviceSource,
    NotPublishedYetError,
    StatusDroppedError,
    list_claim,
    lists_claims,
    node_owner,
    node_reference,
    read_claim,
    read_pod,
    write_maintenance_work,
)
from kerf_dra.driver.kubeletplugin.cluster.descriptions import (
    DescriptionSource,
    watch_descriptions,
    watch_maintenances,
)
from kerf_dra.driver.kubeletplugin.cluster.dropped_fields import (
    probe_dropped_fields,
    probe_list_attributes,
    watch_dropped_fields,
)
from kerf_dra.driver.kubeletplugin.cluster.node_watch import NodeWatch
from kerf_dra.driver.kubeletplugin.cluster.resource_classes import ResourceClassWatch
from kerf_dra.driver.kubeletplugin.inventory.binding_conditions import device_key
from kerf_dra.driver.kubeletplugin.inventory.devices import DeviceSet, PublishTarget
from kerf_dra.driver.kubeletplugin.inventory.optional_devices import OptionalDevices, find_optional_devices
from kerf_dra.driver.kubeletplugin.inventory.plugin_resources import find_plugin_resources, merge_plugin_resources
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.partitions.slice_limits import SliceLayout
from kerf_dra.driver.scheduling.scheduler_faults import Feature, Release, find_fault

_COUNTER_FIELDS: Final = ("consumesCounters", "sharedCounters")
_SHARE_FIELDS: Final = ("allowMultipleAllocations", "requestPolicy")
_CONDITION_FIELDS: Final = ("bindingConditions", "bindingFailureConditions")
_TAINT_FIELDS: Final = ("taints",)
"""Fields of slices without which partitions, shared devices or slow loads are published differently (``_restrict``);
without taints no pod is evicted."""
_EVICTION_SINCE: Final = (1, 36)
"""Since this release NoExecute taints evict pods by default (KEP-5055): before, the gate was off."""

_NO_PERMISSION: Final = 'requires resource="resourceclaims/driver"'
"""What the API server says, with the code of an invalid object, to who may not write a driver's entries (KEP-4817)."""
_ENTRIES: Final = "/status/devices"
_WITHHELD: Final = "SharesNotPublished"
"""The reason of the event about a node whose shares are left off."""

_log = logging.getLogger(__name__)


class StructuredCluster:
    """A Cluster that publishes ResourceSlices."""

    def __init__(
        self,
        client: Client,
        features: ApiFeatures,
        node: NodeWatch,
        settings: Settings,
        target: PublishTarget,
        *,
        classes: ResourceClassWatch,
        dropped: Collection[str] = (),
    ) -> None:
        """``dropped`` are the paths of fields of slices that the API server is known to drop."""
        self.discovered_devices: DiscoveredDeviceSource | None = None
        self.kubelet_services: PluginServices = STRUCTURED_SERVICES
        self.descriptions: DescriptionSource = watch_descriptions(client, settings)
        self.maintenances: DescriptionSource = watch_maintenances(client, settings)
        self._client = client
        self._claims = features.resource.resource_claims
        self._slices = features.resource.resource_slices
        self._allocated = allocated_claim_kind(features.resource.version)
        self._on_target_change: Callable[[], None] = lambda: None
        self._classes = classes
        self._classes_poll_s = settings.classes_poll_s
        self._field_manager = settings.field_manager
        self.target = target
        self._node = node
        self._events = EventReporter(client, component=settings.field_manager, instance=settings.node_name)
        self._family = settings.family
        self._has_evictions = features.kubernetes >= _EVICTION_SINCE
        self._dropped = set(dropped)
        self._release = Release(*features.kubernetes, features.patch)
        self._has_reported_shares = False
        self._publisher = SlicePublisher(
            client,
            features.resource,
            driver=settings.driver_name,
            node_name=settings.node_name,
            owner=node_owner(node.node),
            settings=PublishSettings(min_interval_s=settings.publish_min_interval_s),
            on_problem=self._note_problem,
        )

    @classmethod
    async def connect(
        cls, client: Client, features: ApiFeatures, node: NodeWatch, settings: Settings, classes: ResourceClassWatch
    ) -> "StructuredCluster":
        """Find out what the API server keeps of this driver's slices. Raises ApiError for a call that fails."""
        listed = await classes.list_now()
        target = PublishTarget(
            driver=settings.driver_name,
            node=settings.node_name,
            is_network_attached=settings.family.is_network_attached,
            vocabularies={settings.family.name: settings.family.vocabulary},
            layout=SliceLayout.SPLIT if features.split_counter_slices else SliceLayout.COMBINED,
            optional_devices=find_optional_devices(listed or (), settings.family),
            plugin_resources=find_plugin_resources(listed or (), settings.family, node.node),
        )
        if find_fault(Release(*features.kubernetes, features.patch), Feature.SHARES) is not None:
            target = replace(target, withholds_shares=True)
        if target.is_network_attached:
            return cls(client, features, node, settings, target, classes=classes)
        dropped = await probe_dropped_fields(client, features.resource.resource_slices, target)
        target = _restrict(target, dropped)
        kind = features.resource.resource_slices
        if settings.list_attributes and await probe_list_attributes(client, kind, target):
            words = {name: vocabulary.with_lists() for name, vocabulary in target.vocabularies.items()}
            target = replace(target, vocabularies=words)
        return cls(client, features, node, settings, target, classes=classes, dropped=dropped)

    @property
    def kubelet_lists_claims(self) -> bool:
        return lists_claims(self._node.node)

    async def read_claim(self, claim: ClaimRef, *, not_older_than: str | None = None) -> ResourceClaim | None:
        return await read_claim(self._client, self._claims, claim, not_older_than=not_older_than)

    async def list_claim(self, claim: ClaimRef) -> Sequence[ResourceClaim] | None:
        return await list_claim(self._client, self._claims, claim)

    @property
    def can_evict(self) -> bool:
        return self._has_evictions and not any(path.endswith(_TAINT_FIELDS) for path in self._dropped)

    async def list_claims(self) -> Sequence[AllocatedClaim] | None:
        try:
            return (await self._client.list(self._allocated)).items
        except ForbiddenError:  # a permission that only early loading needs (``kerf rbac --early-loading``)
            return None

    async def read_pod(self, ref: ObjectRef) -> Pod | None:
        return await read_pod(self._client, ref)

    def report(self, about: ObjectReference | None, *, type: EventKind, reason: str, message: str) -> None:  # noqa: A002
        self._events.report(about or node_reference(self._node.node), type=type, reason=reason, message=message)

    def publish(self, devices: DeviceSet) -> None:
        self._publisher.publish(devices.pools)

    async def list_published(self) -> Sequence[ResourceSlice]:
        if not self._publisher.is_settled:
            raise NotPublishedYetError
        selector = f"spec.driver={self._family.driver},spec.nodeName={self.target.node}"
        return (await self._client.list(self._slices, field_selector=selector)).items

    def watch_claims(self, on_change: Callable[[ObjectChange[AllocatedClaim]], None]) -> ClaimInformer:
        return Informer(self._client, self._allocated, on_change=on_change)

    @property
    def has_device_status(self) -> bool:
        return not self._family.is_network_attached  # whose pools say nothing of a node, as policies demand

    async def write_device_status(
        self, claim: AllocatedClaim | ResourceClaim, devices: Sequence[AllocatedDeviceStatus]
    ) -> AllocatedClaim:
        """Write by a JSON patch, which touches no other driver's entries; the resource version detects changes.

        A server-side apply would have the API server encode the whole claim again, with sorted keys, and refuse that as
        a change of the allocation where a user's parameters are not sorted.
        """
        try:
            kept = await self._client.patch(
                self._allocated,
                claim.metadata.name,
                _replace_entries(claim, devices, self._family.driver),
                type=PatchType.JSON,
                namespace=claim.metadata.namespace,
                subresource="status",
                field_manager=self._field_manager,
            )
        except InvalidError as error:
            if _NO_PERMISSION in error.message:
                raise ForbiddenError(error.call, error.status, error.reason, error.message) from error
            if PATCH_REFUSED in error.message:
                raise ConflictError(error.call, error.status, error.reason, error.message) from error
            raise
        if not {device_key(entry) for entry in kept.status.devices}.issuperset(map(device_key, devices)):
            raise StatusDroppedError(claim.ref)
        return kept

    async def write_maintenance_work(self, name: str, uid: str, work: MaintenanceWork) -> CardMaintenanceObject | None:
        return await write_maintenance_work(self._client, name, uid, work, field_manager=self._field_manager)

    async def run(self, on_target_change: Callable[[], None]) -> None:
        self._on_target_change = on_target_change
        self._report_withheld_shares()
        async with anyio.create_task_group() as group:
            group.start_soon(self._publisher.run)
            group.start_soon(self._watch_classes)
            group.start_soon(self._follow_node)
            group.start_soon(self._follow_removals)
            group.start_soon(watch_dropped_fields, self._client, self._slices, self.target, self._dropped)
            group.start_soon(self._events.run)

    async def _watch_classes(self) -> None:
        await self._classes.follow(self._classes_changed, poll_s=self._classes_poll_s)

    async def _follow_node(self) -> None:
        """Have the Node that there is now own the slices, and decide which classes' resources it offers."""
        while True:
            change = self._node.changed.next_event
            self._publisher.set_owner(None if self._node.is_absent else node_owner(self._node.node))
            self._classes_changed()
            await change.wait()

    async def _follow_removals(self) -> None:
        """Have the Node read again when slices were removed: it may be another one, whose predecessor owned them."""
        while True:
            await self._publisher.removed.wait()
            self._node.request()

    def _set_target(self, target: PublishTarget) -> None:
        if target != self.target:
            self.target = target
            self._report_withheld_shares()
            self._on_target_change()

    def _report_withheld_shares(self) -> None:
        """Say once why no shares are published, where a class wants some."""
        fault = find_fault(self._release, Feature.SHARES)
        if fault is None or self._has_reported_shares or not self.target.optional_devices.shareable:
            return
        self._has_reported_shares = True
        message = (
            f"ResourceClasses want shares of {self._family.name} devices, and none are published: kube-scheduler "
            f"{self._release} gives what excludes each other to two pods ({fault.issue}); Kubernetes {fault.fixed_in} "
            "has the fix"
        )
        _log.error("%s", message)
        self.report(None, type="Warning", reason=_WITHHELD, message=message)

    def _classes_changed(self) -> None:
        wanted = find_optional_devices(self._classes.classes, self._family)
        # Until the first list is complete, a class that is missing may still come.
        known = OptionalDevices() if self._classes.synced else self.target.optional_devices
        resources = find_plugin_resources(self._classes.classes, self._family, self._node.node)
        if not self._classes.synced:
            resources = merge_plugin_resources(resources, self.target.plugin_resources)
        self._set_target(replace(self.target, optional_devices=wanted.union(known), plugin_resources=resources))

    def _note_problem(self, _problem: str) -> None:
        """Restrict the target where the server no longer keeps fields; the publisher has logged the problem."""
        self._dropped |= self._publisher.dropped_fields
        self._set_target(_restrict(self.target, self._publisher.dropped_fields))


def _restrict(target: PublishTarget, dropped: Collection[str]) -> PublishTarget:
    """Return ``target`` without what needs the ``dropped`` fields, which stay dropped until a restart."""
    if target.keeps_counters and any(path.endswith(_COUNTER_FIELDS) for path in dropped):
        _log.error("only whole cards are published: the API server drops the counters of partitions")
        target = replace(target, keeps_counters=False)
    if target.keeps_shares and any(path.endswith(_SHARE_FIELDS) for path in dropped):
        _log.error("no shared devices are published: the API server drops the fields that make devices shareable")
        target = replace(target, keeps_shares=False)
    if target.keeps_conditions and any(path.endswith(_CONDITION_FIELDS) for path in dropped):
        _log.error("pods are bound before their devices are ready: the API server drops binding conditions")
        target = replace(target, keeps_conditions=False)
    return target


def _replace_entries(
    claim: AllocatedClaim | ResourceClaim, devices: Sequence[AllocatedDeviceStatus], driver: str
) -> JsonPatch:
    """Return the operations that replace the entries of ``driver`` in ``claim``, as it was read, by ``devices``.

    The resource version of what was read has the API server refuse them when the claim has changed since: their places
    in the list would be others.
    """
    lock: JsonObject = {
        "op": "replace",
        "path": "/metadata/resourceVersion",
        "value": claim.metadata.resource_version,
    }
    entries = claim.status.devices
    if not entries:
        return [lock, {"op": "add", "path": _ENTRIES, "value": to_builtins(devices)}]
    own = [place for place, entry in enumerate(entries) if entry.driver == driver]
    removals: JsonPatch = [{"op": "remove", "path": f"{_ENTRIES}/{place}"} for place in reversed(own)]
    additions: JsonPatch = [{"op": "add", "path": f"{_ENTRIES}/-", "value": to_builtins(entry)} for entry in devices]
    return [lock, *removals, *additions]
