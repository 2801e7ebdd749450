"""The cluster where the scheduler allocates (Kubernetes 1.32 and later): devices are published in ResourceSlices."""

import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

import anyio

from api.core.v1 import NODES
from api.dra.registry import STRUCTURED_SERVICES, PluginServices
from api.kerf.v1alpha1 import RESOURCE_CLASSES, ResourceClassObject
from api.model.allocations import AllocatedDeviceStatus
from api.model.claims import AllocatedClaim, ResourceClaim
from api.model.metadata import OwnerReference
from api.model.names import ClaimRef
from api.resource.kinds import allocated_claim_kind
from api.wire import to_builtins
from driver.kube.discovery import ApiFeatures, discover
from driver.kube.http.client import Client
from driver.kube.http.errors import ApiError, ForbiddenError, NotFoundError
from driver.kube.informer import Informer
from driver.kube.slice_publisher import PublishSettings, SlicePublisher
from driver.kube.store import ObjectChange
from driver.kubeletplugin.cluster.base import Following
from driver.kubeletplugin.cluster.dropped_fields import fields_lost
from driver.kubeletplugin.inventory.devices import Inventory, Place
from driver.kubeletplugin.inventory.optional_devices import Offers, offers, together
from driver.kubeletplugin.settings import FIELD_MANAGER, Settings
from driver.partitions.slice_limits import SliceLayout

_COUNTER_FIELDS: Final = ("consumesCounters", "sharedCounters")
_SHARE_FIELDS: Final = ("allowMultipleAllocations", "requestPolicy")
_CONDITION_FIELDS: Final = ("bindingConditions", "bindingFailureConditions")

_log = logging.getLogger(__name__)


class KubeCluster:
    """A real one."""

    def __init__(
        self,
        client: Client,
        features: ApiFeatures,
        owner: OwnerReference,
        settings: Settings,
        place: Place,
        *,
        can_follow_classes: bool,
    ) -> None:
        """``can_follow_classes``: there is the kind ResourceClass now, and it may be read."""
        self.offer: PluginServices = STRUCTURED_SERVICES
        self._client = client
        self._claims = features.resource.resource_claims
        self._allocated = allocated_claim_kind(features.resource.version)
        self._on_place: Callable[[], None] = lambda: None
        self._classes = Informer(client, RESOURCE_CLASSES, on_change=self._classes_changed)
        self._can_follow_classes = can_follow_classes
        self._classes_poll_s = settings.classes_poll_s
        self.place = place
        self._publisher = SlicePublisher(
            client,
            features.resource,
            driver=settings.driver_name,
            node_name=settings.node_name,
            owner=owner,
            settings=PublishSettings(min_interval_s=settings.publish_min_interval_s),
            on_problem=self._note_problem,
        )

    @classmethod
    async def connect(cls, client: Client, settings: Settings) -> "KubeCluster":
        """Learn what the API server offers and find this node. Raises ApiError and UnsupportedError."""
        features = await discover(client)
        node = await client.get(NODES, settings.node_name)
        owner = OwnerReference(
            api_version=NODES.api_version,
            kind=NODES.kind,
            name=node.metadata.name,
            uid=node.metadata.uid,
            controller=True,
        )
        classes = await _resource_classes(client)
        place = Place(
            driver=settings.driver_name,
            node=settings.node_name,
            layout=SliceLayout.SPLIT if features.split_counter_slices else SliceLayout.COMBINED,
            offers=offers(classes or ()),
        )
        place = _without(place, await fields_lost(client, features.resource.resource_slices, place))
        return cls(client, features, owner, settings, place, can_follow_classes=classes is not None)

    async def read_claim(self, claim: ClaimRef) -> ResourceClaim | None:
        """By a read of its own: the server's cache (``resourceVersion=0``) may have an allocation that is no more, and
        a watch cannot select claims by node, so every node would read those of all.
        """
        try:
            return await self._client.get(self._claims, claim.name, claim.namespace)
        except NotFoundError:
            return None

    def publish(self, inventory: Inventory) -> None:
        self._publisher.publish(inventory.pools)

    def follow_claims(self, on_change: Callable[[ObjectChange[AllocatedClaim]], None]) -> Following:
        return Informer(self._client, self._allocated, on_change=on_change)

    async def tell(self, claim: AllocatedClaim, devices: Sequence[AllocatedDeviceStatus]) -> None:
        """Server-side apply: other drivers' entries stay. The resource version makes sure of what was read."""
        metadata = {
            "name": claim.metadata.name,
            "namespace": claim.metadata.namespace,
            "resourceVersion": claim.metadata.resource_version,
        }
        await self._client.apply(
            self._allocated,
            {"metadata": metadata, "status": {"devices": to_builtins(devices)}},
            field_manager=FIELD_MANAGER,
            subresource="status",
        )

    async def run(self, on_place: Callable[[], None]) -> None:
        self._on_place = on_place
        async with anyio.create_task_group() as group:
            group.start_soon(self._publisher.run)
            group.start_soon(self._follow_classes)

    async def _follow_classes(self) -> None:
        """For ever, from when they can be: their definition may be installed after the plugin."""
        while not self._can_follow_classes:
            await anyio.sleep(self._classes_poll_s)
            with suppress(ApiError):
                await self._client.list(RESOURCE_CLASSES)
                self._can_follow_classes = True
                _log.info("ResourceClasses can be followed now")
        await self._classes.run()

    def _move(self, place: Place) -> None:
        if place != self.place:
            self.place = place
            self._on_place()

    def _classes_changed(self, _: ObjectChange[ResourceClassObject]) -> None:
        asked = offers(self._classes.store.values())
        # While the first list is being taken in, what was known before is not gone.
        known = Offers() if self._classes.synced else self.place.offers
        self._move(replace(self.place, offers=together(asked, known)))

    def _note_problem(self, _problem: str) -> None:
        """The publisher has logged it: a server that kept the fields at our start does so no longer."""
        self._move(_without(self.place, self._publisher.dropped_fields))


def _without(place: Place, lost: Collection[str]) -> Place:
    """``place`` where these fields are lost: they call for other devices, and stay lost until a restart."""
    if place.keeps_counters and any(path.endswith(_COUNTER_FIELDS) for path in lost):
        _log.error("offering whole cards only: the API server drops the counters that keep partitions apart")
        place = replace(place, keeps_counters=False)
    if place.keeps_shares and any(path.endswith(_SHARE_FIELDS) for path in lost):
        _log.error("offering nothing in shares: the API server drops what makes devices shareable")
        place = replace(place, keeps_shares=False)
    if place.keeps_conditions and any(path.endswith(_CONDITION_FIELDS) for path in lost):
        _log.error("pods are bound before their devices are ready: the API server drops binding conditions")
        place = replace(place, keeps_conditions=False)
    return place


async def _resource_classes(client: Client) -> Sequence[ResourceClassObject] | None:
    """What there is now; None when there is no such kind, or it may not be read: Kerf works without, but for shares."""
    try:
        return (await client.list(RESOURCE_CLASSES)).items
    except (NotFoundError, ForbiddenError) as error:
        _log.warning("nothing is offered in shares until ResourceClasses can be followed: %s", error)
        return None
