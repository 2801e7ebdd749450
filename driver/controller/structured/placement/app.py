"""The parts of the scheduler extender and their connections."""

from collections.abc import Mapping
from typing import Final

import anyio.lowlevel

from kerf_dra.api.core.v1 import Node
from kerf_dra.api.kerf.v1alpha1 import ResourceClassObject
from kerf_dra.api.model.claims import DeviceClass, ResourceClaim
from kerf_dra.api.wire import projected_kind
from kerf_dra.driver.allocation.pools.interned_slices import CompactSlice, SliceCompactor
from kerf_dra.driver.controller.settings import ExtenderSettings
from kerf_dra.driver.controller.structured.extender_activity import ExtenderActivity
from kerf_dra.driver.controller.structured.placement.extender_server import ExtenderServer
from kerf_dra.driver.controller.structured.placement.placement_index import PlacementIndex, project_claim
from kerf_dra.driver.controller.structured.placement.scheduler_extender import SchedulerExtender
from kerf_dra.driver.kube.discovery import ApiFeatures
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.informer import AnyInformer, Informer
from kerf_dra.driver.kube.store import ObjectChange

_SLICES: Final = "resourceslices of all drivers"
_CLAIMS: Final = "resourceclaims"


class PlacementExtender:
    """The extender of one replica, with informers of its own for the slices of all drivers and for all claims."""

    def __init__(
        self,
        client: Client,
        features: ApiFeatures,
        settings: ExtenderSettings,
        activity: ExtenderActivity,
        *,
        nodes: Informer[Node],
        device_classes: Informer[DeviceClass],
        resource_classes: Informer[ResourceClassObject],
    ) -> None:
        compactor = SliceCompactor()
        kinds = features.resource
        self._settings = settings
        self._activity = activity
        self._slices: Informer[CompactSlice] = Informer(
            client, projected_kind(kinds.resource_slices, CompactSlice, compactor.compact), on_change=self._on_slice
        )
        self._claims: Informer[ResourceClaim] = Informer(
            client, projected_kind(kinds.resource_claims, ResourceClaim, project_claim), on_change=self._on_claim
        )
        self._used = (self._slices, self._claims, nodes, device_classes, resource_classes)
        self.index = PlacementIndex(
            compactor,
            slices=self._slices.store,
            claims=self._claims.store,
            nodes=nodes.store,
            device_classes=device_classes.store,
            resource_classes=resource_classes.store,
        )
        """What the handlers of the shared informers must update: ``on_node``."""

    def _on_slice(self, change: ObjectChange[CompactSlice]) -> None:
        self.index.on_slice(change)

    def _on_claim(self, change: ObjectChange[ResourceClaim]) -> None:
        self.index.on_claim(change)

    @property
    def informers(self) -> Mapping[str, AnyInformer]:
        """The extender's own informers, which the process runs with the others."""
        return {_SLICES: self._slices, _CLAIMS: self._claims}

    async def run(self) -> None:
        """Serve from the time when all lists have been read, until cancelled. Raises ExtenderError."""
        for informer in self._used:
            await informer.wait_synced()
        self.index.build()
        while self.index.refresh():
            await anyio.lowlevel.checkpoint()
        server = ExtenderServer(SchedulerExtender(self.index, self._activity), self._settings.certificates)
        await server.serve(self._settings.address)
