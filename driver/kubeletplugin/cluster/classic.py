"""The cluster where a controller allocates (Kubernetes 1.27 to 1.31): a NodeInventory in place of ResourceSlices.

The plugin renews the inventory periodically, because a controller allocates nothing on a node whose plugin has stopped
to do so. The Node owns the inventory, so that both are deleted together.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final

import anyio

from kerf_dra.api.core.v1 import ObjectReference, Pod
from kerf_dra.api.dra.registry import PluginServices, services_for_kubelet
from kerf_dra.api.errors import KerfError, TransientError, UnsupportedError
from kerf_dra.api.kerf.card_maintenance import CardMaintenanceObject, MaintenanceWork
from kerf_dra.api.kerf.node_inventory import NODE_INVENTORIES, NodeInventorySpec, inventory_name
from kerf_dra.api.model.allocations import AllocatedDeviceStatus
from kerf_dra.api.model.claims import AllocatedClaim, ResourceClaim
from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.api.model.names import ClaimRef, ObjectRef
from kerf_dra.api.wire import to_builtins
from kerf_dra.driver.kube.discovery import ClassicFeatures
from kerf_dra.driver.kube.events import EventKind, EventReporter
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.store import ObjectChange, Store
from kerf_dra.driver.kubeletplugin.cluster.base import (
    ClaimInformer,
    DiscoveredDeviceSource,
    list_claim,
    lists_claims,
    node_owner,
    node_reference,
    read_claim,
    read_pod,
)
from kerf_dra.driver.kubeletplugin.cluster.descriptions import (
    DescriptionSource,
    watch_descriptions,
    without_maintenances,
)
from kerf_dra.driver.kubeletplugin.cluster.node_inventory import build_inventory_spec
from kerf_dra.driver.kubeletplugin.cluster.node_watch import NodeWatch
from kerf_dra.driver.kubeletplugin.inventory.devices import DeviceSet, PublishTarget
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.partitions.slice_limits import SliceLayout
from kerf_dra.driver.runtime.backoff import Backoff
from kerf_dra.driver.runtime.notifier import Notifier

RENEW_S: Final = 60.0
"""Time between two renewals: three of them before a controller counts the plugin as silent."""
MAX_DRIVER_NAME: Final = 26
"""Until Kubernetes 1.30 the kubelet makes annotation names of at most 63 characters from driver and claim UID
(kubernetes/kubernetes#123889)."""
_LONG_NAMES_SINCE: Final = (1, 31)
_RETRY: Final = Backoff(first_s=0.5, factor=2, limit_s=30, jitter=0.2)
"""Back-off of writes that fail: at most half of RENEW_S apart, so that the plugin does not count as silent."""
_LAST_WRITE_S: Final = 2.0
"""Limit of the last write when the plugin ends: the API server answers at once, or is unreachable."""

_log = logging.getLogger(__name__)


class KubeletChangedError(TransientError):
    """The kubelet has another version, which needs other answers: the plugin is to start again."""

    def __init__(self, version: str) -> None:
        super().__init__(f"the kubelet is {version} now and needs other answers: the plugin starts again for it")


class ClassicCluster:
    """A Cluster that publishes a NodeInventory."""

    def __init__(
        self,
        client: Client,
        features: ClassicFeatures,
        node: NodeWatch,
        settings: Settings,
        now: Callable[[], datetime],
    ) -> None:
        """Raises UnsupportedError for a driver name too long for such kubelets, and for a kubelet that is too old."""
        if features.kubernetes < _LONG_NAMES_SINCE and len(settings.driver_name) > MAX_DRIVER_NAME:
            raise UnsupportedError(
                f"driver name {settings.driver_name} has {len(settings.driver_name)} characters; until Kubernetes 1.30 "
                f"at most {MAX_DRIVER_NAME} are possible: its family needs a shorter one"
            )
        self.descriptions: DescriptionSource = watch_descriptions(client, settings)
        self.maintenances: DescriptionSource = without_maintenances(client)
        self.discovered_devices: DiscoveredDeviceSource | None = None
        self._client = client
        self._claims = features.resource.resource_claims
        self._node = node
        self._settings = settings
        self._now = now
        self._name = inventory_name(settings.node_name, settings.driver_name)
        self._spec = NodeInventorySpec(driver=settings.driver_name, node=settings.node_name)
        self._change = Notifier()
        self._events = EventReporter(client, component=settings.field_manager, instance=settings.node_name)
        self.kubelet_services: PluginServices = services_for_kubelet(_kubelet_version(node))
        self.target = PublishTarget(
            driver=settings.driver_name,
            node=settings.node_name,
            layout=SliceLayout.SPLIT,
            vocabularies={settings.family.name: settings.family.vocabulary},
        )

    @property
    def kubelet_lists_claims(self) -> bool:
        return lists_claims(self._node.node)

    async def read_claim(self, claim: ClaimRef, *, not_older_than: str | None = None) -> ResourceClaim | None:
        return await read_claim(self._client, self._claims, claim, not_older_than=not_older_than)

    async def list_claim(self, claim: ClaimRef) -> Sequence[ResourceClaim] | None:
        return await list_claim(self._client, self._claims, claim)

    @property
    def can_evict(self) -> bool:
        return False  # no controller evicts pods for a taint in a NodeInventory

    async def list_claims(self) -> None:
        """Devices that cannot be allocated are tainted, whether or not a claim has them: the inventory lists cards."""
        return

    async def read_pod(self, ref: ObjectRef) -> Pod | None:
        return await read_pod(self._client, ref)

    def report(self, about: ObjectReference | None, *, type: EventKind, reason: str, message: str) -> None:  # noqa: A002
        self._events.report(about or node_reference(self._node.node), type=type, reason=reason, message=message)

    def publish(self, devices: DeviceSet) -> None:
        cards = [card for inputs in devices.inputs for card in inputs.cards]
        taints = {device: held for inputs in devices.inputs for device, held in inputs.taints.items()}
        self._spec = build_inventory_spec(
            self._settings.driver_name, self._settings.node_name, cards, taints, ready=True, renewed_at=""
        )
        self._change.notify()

    async def list_published(self) -> Sequence[ResourceSlice]:
        """A NodeInventory is no slice: extended resources are not offered where a controller allocates."""
        return ()

    def watch_claims(self, on_change: Callable[[ObjectChange[AllocatedClaim]], None]) -> ClaimInformer:  # noqa: ARG002  (no claim changes)
        return _NoClaims()

    @property
    def has_device_status(self) -> bool:
        return False

    async def write_device_status(
        self, claim: AllocatedClaim | ResourceClaim, devices: Sequence[AllocatedDeviceStatus]
    ) -> AllocatedClaim:
        raise UnsupportedError(f"claim {claim.ref}: its status cannot have {len(devices)} devices")

    async def write_maintenance_work(self, name: str, uid: str, work: MaintenanceWork) -> CardMaintenanceObject | None:
        del name, uid, work  # no CardMaintenance reaches this cluster's cards
        return None

    async def run(self, on_target_change: Callable[[], None]) -> None:  # noqa: ARG002  (the target never changes)
        """Write the inventory whenever it changes and every RENEW_S; when cancelled, write that no plugin is ready.

        Raises KubeletChangedError.
        """
        async with anyio.create_task_group() as group:
            group.start_soon(self._events.run)
            group.start_soon(self._follow_node)
            await self._renew()

    async def _follow_node(self) -> None:
        """Write for the Node that there is now. Raises KubeletChangedError."""
        change = self._node.changed.next_event
        while True:
            version = _kubelet_version(self._node)
            if services_for_kubelet(version) != self.kubelet_services:
                raise KubeletChangedError(version)
            await change.wait()
            change = self._node.changed.next_event
            self._change.notify()

    async def _renew(self) -> None:
        try:
            while True:
                change = self._change.next_event
                await self._write_until_done()
                with anyio.move_on_after(RENEW_S):
                    await change.wait()
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_LAST_WRITE_S), suppress(KerfError):
                await self._write({"ready": False})

    async def _write_until_done(self) -> None:
        if self._node.is_absent:  # the inventory is garbage-collected, however often it is written
            return
        for delay_s in _RETRY.delays():
            try:
                await self._write(None)
                return
            except KerfError as error:
                _log.error("cannot write NodeInventory %s: %s", self._name, error)
                await anyio.sleep(delay_s)

    async def _write(self, override: dict[str, bool] | None) -> None:
        """Write by server-side apply: all fields are the plugin's."""
        renewed_at = self._now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {**to_builtins(self._spec), "renewedAt": renewed_at, **(override or {})}
        metadata = {"name": self._name, "ownerReferences": to_builtins((node_owner(self._node.node),))}
        await self._client.apply(
            NODE_INVENTORIES, {"metadata": metadata, "spec": spec}, field_manager=self._settings.field_manager
        )


def _kubelet_version(watch: NodeWatch) -> str:
    return watch.node.status.node_info.kubelet_version


class _NoClaims:
    """An informer that never syncs: pods are bound after their claims are allocated, and nothing is prepared before."""

    store: Store[AllocatedClaim] = Store()

    async def run(self) -> None:
        await anyio.sleep_forever()

    async def wait_synced(self) -> None:
        await anyio.sleep_forever()
