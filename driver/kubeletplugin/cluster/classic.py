"""The cluster where drivers allocate (Kubernetes 1.27 to 1.31): a NodeInventory in place of slices.

The inventory says that the plugin is there, and says so again and again: a controller gives nothing of a node whose
plugin has fallen silent. It is owned by the Node and goes with it.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from random import Random
from typing import Final

import anyio

from api.core.v1 import Node
from api.dra.registry import PluginServices, services_for_kubelet
from api.errors import KerfError, UnsupportedError
from api.kerf.node_inventory import NODE_INVENTORIES, NodeInventorySpec
from api.model.allocations import AllocatedDeviceStatus
from api.model.claims import AllocatedClaim, ResourceClaim
from api.model.metadata import OwnerReference
from api.model.names import ClaimRef
from api.wire import to_builtins
from driver.kube.discovery import ClassicFeatures
from driver.kube.http.client import Client
from driver.kube.http.errors import NotFoundError
from driver.kube.store import ObjectChange, Store
from driver.kubeletplugin.cluster.base import Following
from driver.kubeletplugin.cluster.node_inventory import inventory_spec
from driver.kubeletplugin.inventory.devices import Inventory, Place
from driver.kubeletplugin.settings import FIELD_MANAGER, Settings
from driver.partitions.slice_limits import SliceLayout
from driver.runtime.backoff import Backoff
from driver.runtime.notifier import Pulse

RENEW_S: Final = 60.0
"""How often the plugin says that it is there: three times before a controller counts it as silent."""
MAX_DRIVER_NAME: Final = 26
"""Until 1.30 the kubelet makes annotation names of at most 63 characters from driver and claim UID
(kubernetes/kubernetes#123889)."""
_LONG_NAMES: Final = (1, 31)
_RETRY: Final = Backoff(first_s=0.5, factor=2, limit_s=30, jitter=0.2)
_GOODBYE_S: Final = 2.0
"""For the last write at the end: the API server answers at once, or is away."""

_log = logging.getLogger(__name__)


class ClassicCluster:
    """See the head of the file."""

    def __init__(
        self, client: Client, features: ClassicFeatures, node: Node, settings: Settings, now: Callable[[], datetime]
    ) -> None:
        """Raises UnsupportedError for a driver name that such kubelets cannot handle, and for a kubelet too old."""
        if features.kubernetes < _LONG_NAMES and len(settings.driver_name) > MAX_DRIVER_NAME:
            raise UnsupportedError(
                f"driver name {settings.driver_name} has {len(settings.driver_name)} characters; until Kubernetes 1.30 "
                f"at most {MAX_DRIVER_NAME} are possible: shorten --driver-name"
            )
        self._client = client
        self._claims = features.resource.resource_claims
        self._node = node
        self._settings = settings
        self._now = now
        self._wanted = NodeInventorySpec(driver=settings.driver_name)
        self._change = Pulse()
        self.offer: PluginServices = services_for_kubelet(node.status.node_info.kubelet_version)
        self.place = Place(driver=settings.driver_name, node=settings.node_name, layout=SliceLayout.SPLIT)

    async def read_claim(self, claim: ClaimRef) -> ResourceClaim | None:
        try:
            return await self._client.get(self._claims, claim.name, claim.namespace)
        except NotFoundError:
            return None

    def publish(self, inventory: Inventory) -> None:
        sources = [stock.source for stock in inventory.stocks.values()]
        cards = [card for source in sources for card in source.cards]
        taints = {device: held for source in sources for device, held in source.taints.items()}
        self._wanted = inventory_spec(self._settings.driver_name, cards, taints, ready=True, renewed_at="")
        self._change.beat()

    def follow_claims(self, on_change: Callable[[ObjectChange[AllocatedClaim]], None]) -> Following:  # noqa: ARG002  (there is nothing to tell)
        return _NothingToFollow()

    async def tell(self, claim: AllocatedClaim, devices: Sequence[AllocatedDeviceStatus]) -> None:
        raise UnsupportedError(f"claim {claim.ref}: its status has no place for {len(devices)} devices")

    async def run(self, on_place: Callable[[], None]) -> None:  # noqa: ARG002  (the place never changes)
        """Write the inventory whenever it changes and every RENEW_S, for ever; say at the end that nobody is there."""
        try:
            while True:
                change = self._change.next
                await self._write_until_done()
                with anyio.move_on_after(RENEW_S):
                    await change.wait()
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_GOODBYE_S), suppress(KerfError):
                await self._write({"ready": False})

    async def _write_until_done(self) -> None:
        for delay_s in _RETRY.delays(Random()):  # noqa: S311  (jitter, not a secret)
            try:
                await self._write(None)
                return
            except KerfError as error:
                _log.error("cannot write NodeInventory %s: %s", self._node.metadata.name, error)
                await anyio.sleep(delay_s)

    async def _write(self, instead: dict[str, bool] | None) -> None:
        """Server-side apply: the inventory is wholly ours."""
        renewed_at = self._now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {**to_builtins(self._wanted), "renewedAt": renewed_at, **(instead or {})}
        owner = OwnerReference(
            api_version="v1", kind="Node", name=self._node.metadata.name, uid=self._node.metadata.uid, controller=True
        )
        metadata = {"name": self._node.metadata.name, "ownerReferences": to_builtins((owner,))}
        await self._client.apply(NODE_INVENTORIES, {"metadata": metadata, "spec": spec}, field_manager=FIELD_MANAGER)


class _NothingToFollow:
    """Where pods are bound only after their claims are allocated, nothing has to be done before."""

    store: Store[AllocatedClaim] = Store()

    async def run(self) -> None:
        await anyio.sleep_forever()

    async def wait_synced(self) -> None:
        await anyio.sleep_forever()
