"""The process ``kerf controller --reclaim``: informers, leader election, and the parts that evict and repair."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime

import anyio

from kerf_dra.api.errors import UnsupportedError
from kerf_dra.api.kerf.card_maintenance import CARD_MAINTENANCES, CardMaintenanceObject
from kerf_dra.api.model.claims import AllocatedClaim
from kerf_dra.api.resource.kinds import allocated_claim_kind
from kerf_dra.driver.controller.candidate import run_candidate
from kerf_dra.driver.controller.reclaim.executor import CLAIM_INDEXERS, CardReclaimer
from kerf_dra.driver.controller.reclaim.repairer import CardRepairer, SliceRepairs, repair_slice_kind
from kerf_dra.driver.controller.reclaim.settings import NAME, ReclaimSettings
from kerf_dra.driver.controller.settings import Settings
from kerf_dra.driver.kube.discovery import ApiFeatures, ClassicFeatures
from kerf_dra.driver.kube.events import EventReporter
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.informer import AnyInformer, Informer
from kerf_dra.driver.kube.store import ObjectChange


class ReclaimController:
    """The parts of the process and their connections."""

    def __init__(self, client: Client, features: ApiFeatures, settings: Settings, reclaim: ReclaimSettings) -> None:
        self._client = client
        self._settings = settings
        self._events = EventReporter(client, component=NAME, instance=settings.identity)
        self._maintenances: Informer[CardMaintenanceObject] = Informer(
            client, CARD_MAINTENANCES, on_change=self._on_maintenance
        )
        self._claims: Informer[AllocatedClaim] = Informer(
            client,
            allocated_claim_kind(features.resource.version),
            indexers=CLAIM_INDEXERS,
            on_change=lambda change: self._reclaimer.on_claim(change),
        )
        self._reclaimer = CardReclaimer(
            client,
            maintenances=self._maintenances.store,
            claims=self._claims.store,
            slices=features.resource.resource_slices,
            events=self._events,
            settings=reclaim,
            now=lambda: datetime.now(UTC),
            monotonic=time.monotonic,
        )
        self._repairs: Informer[SliceRepairs] = Informer(
            client,
            repair_slice_kind(features.resource.resource_slices),
            on_change=lambda change: self._repairer.on_slice(change),
        )
        self._repairer = CardRepairer(
            client,
            maintenances=self._maintenances.store,
            claims=self._claims.store,
            repairs=self._repairs.store,
            slices=features.resource.resource_slices,
            events=self._events,
            settings=reclaim,
            now=lambda: datetime.now(UTC),
        )

    def _on_maintenance(self, change: ObjectChange[CardMaintenanceObject]) -> None:
        self._reclaimer.on_maintenance(change)
        self._repairer.on_maintenance(change)

    async def run(self) -> None:
        """Run until cancelled."""
        informers: Mapping[str, AnyInformer] = {
            "cardmaintenances": self._maintenances,
            "resourceclaims": self._claims,
            "resourceslices": self._repairs,
        }
        await run_candidate(self._client, self._settings, self._events, informers, self._work)

    async def _work(self) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._reclaimer.run)
            group.start_soon(self._repairer.run)


def make_reclaim_controller(
    client: Client, features: ApiFeatures | ClassicFeatures, settings: Settings, reclaim: ReclaimSettings
) -> ReclaimController:
    """Return the process's controller. Raises UnsupportedError where Kerf's controller allocates claims itself."""
    if isinstance(features, ClassicFeatures):
        raise UnsupportedError(
            "`kerf controller --reclaim` works from Kubernetes 1.32 on: on this cluster Kerf's controller allocates "
            "claims itself, and CardMaintenances withhold no card"
        )
    return ReclaimController(client, features, settings, reclaim)
