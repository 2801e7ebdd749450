"""The cluster for discovered devices on Kubernetes 1.29 to 1.31, where nodes count their users in the devices' objects.

No controller allocates them there, so nothing is published: no NodeInventory has a device that several nodes reach.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

import anyio

from kerf_dra.api.core.v1 import NODES
from kerf_dra.api.kerf.discovery_objects import (
    DISCOVERED_DEVICES,
    DISCOVERY_CONFIGURATIONS,
    DeviceUser,
    DiscoveredDeviceObject,
    DiscoveryConfigurationObject,
)
from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.api.wire import Kind, to_builtins
from kerf_dra.driver.families.shared.node_labels import make_selector
from kerf_dra.driver.families.shared.objects import Discovery, FoundDevice, join_objects
from kerf_dra.driver.kube.definitions import wait_until_readable
from kerf_dra.driver.kube.discovery import ClassicFeatures
from kerf_dra.driver.kube.http.client import Client, PatchType
from kerf_dra.driver.kube.informer import Informer
from kerf_dra.driver.kube.patches import if_unchanged
from kerf_dra.driver.kubeletplugin.cluster.base import DiscoveredDeviceSource
from kerf_dra.driver.kubeletplugin.cluster.classic import ClassicCluster
from kerf_dra.driver.kubeletplugin.cluster.node_watch import NodeWatch
from kerf_dra.driver.kubeletplugin.inventory.devices import DeviceSet
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.runtime.notifier import Notifier

CDI_DEVICES_SINCE: Final = (1, 29)
"""The first version whose kubelet gives containers the CDI devices that a device plugin names (KEP-4009, beta)."""


class DiscoveredDeviceWatch:
    """A DiscoveredDeviceSource on the API server: of the devices that a node may see.

    The kinds' definitions may be installed after the plugin. Its DescriptionWatch follows the same devices, for the
    backend: without what nodes write into their status, which this one is about.
    """

    def __init__(self, client: Client, node_name: str, *, poll_s: float, field_manager: str) -> None:
        """``poll_s`` is the time in seconds between two tries to read a kind that cannot be read."""
        self._client = client
        self._poll_s = poll_s
        self._field_manager = field_manager
        self._configurations = Informer(client, DISCOVERY_CONFIGURATIONS, on_change=self._note)
        self._devices = Informer(
            client, DISCOVERED_DEVICES, label_selector=make_selector(node_name), on_change=self._note
        )
        self._discovery: Discovery | None = None
        self.changed = Notifier()

    @property
    def is_synced(self) -> bool:
        return self._configurations.synced and self._devices.synced

    @property
    def discovery(self) -> Discovery:
        if self._discovery is None:
            self._discovery = join_objects(self._list_configurations(), self._devices.store.values())
        return self._discovery

    async def read(self, name: str) -> DiscoveredDeviceObject | None:
        return await self._client.find(DISCOVERED_DEVICES, name)

    def join(self, held: DiscoveredDeviceObject) -> FoundDevice | None:
        return join_objects(self._list_configurations(), [held]).devices.get(held.metadata.name)

    async def write_users(self, held: DiscoveredDeviceObject, users: Sequence[DeviceUser]) -> None:
        patch = {"metadata": if_unchanged(held.metadata), "status": {"users": to_builtins(tuple(users))}}
        await self._client.patch(
            DISCOVERED_DEVICES,
            held.metadata.name,
            patch,
            type=PatchType.MERGE,
            subresource="status",
            field_manager=self._field_manager,
        )

    async def run(self) -> None:
        """Follow the objects until cancelled."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._follow, DISCOVERY_CONFIGURATIONS, self._configurations)
            group.start_soon(self._follow, DISCOVERED_DEVICES, self._devices)
            await self._configurations.wait_synced()
            await self._devices.wait_synced()
            self._note(None)

    async def _follow(self, kind: Kind[Any], informer: Informer[Any]) -> None:
        await wait_until_readable(self._client, kind, poll_s=self._poll_s)
        await informer.run()

    def _list_configurations(self) -> list[DiscoveryConfigurationObject]:
        return [one for one in self._configurations.store.values() if not one.is_terminating]

    def _note(self, _change: object) -> None:
        self._discovery = None
        self.changed.notify()


class DiscoveredDeviceCluster(ClassicCluster):
    """A Cluster that publishes nothing."""

    def __init__(
        self,
        client: Client,
        features: ClassicFeatures,
        node: NodeWatch,
        settings: Settings,
        now: Callable[[], datetime],
    ) -> None:
        """Raises what ClassicCluster raises."""
        super().__init__(client, features, node, settings, now)
        self._node_name = settings.node_name
        self._watch = DiscoveredDeviceWatch(
            client, settings.node_name, poll_s=settings.classes_poll_s, field_manager=settings.field_manager
        )
        self.discovered_devices: DiscoveredDeviceSource | None = self._watch
        self.target = replace(self.target, is_network_attached=True)

    def publish(self, devices: DeviceSet) -> None:
        """Publish nothing."""

    async def list_published(self) -> Sequence[ResourceSlice]:
        """Return nothing, if the API server answers. Raises ApiError."""
        await self._client.get(NODES, self._node_name)
        return ()

    async def run(self, on_target_change: Callable[[], None]) -> None:  # noqa: ARG002  (the target never changes)
        """Follow the devices until cancelled. Raises KubeletChangedError."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._events.run)
            group.start_soon(self._follow_node)
            await self._watch.run()
