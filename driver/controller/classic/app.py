"""The controller where drivers allocate (Kubernetes 1.27 to 1.31): informers feed a queue of claims and contexts.

::

    ResourceClaim  PodSchedulingContext  ResourceClass  parameters  NodeInventory  Node      informers
          └───────────────┴──────────────────┬┴───────────────┴──────────┴──────────┘
                           state, event_handlers             known objects; which keys to reconcile
                                  WorkQueue                  merged, one worker per key
                                  reconciler                 in the leader only, after its take-over
                    claims, scheduling_contexts              the plans (pure)
"""

import logging
import secrets
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from random import Random
from typing import Final

import anyio

from kerf_dra.api.core.v1 import ObjectReference
from kerf_dra.api.errors import KerfError, TransientError
from kerf_dra.api.kerf.classic_parameters import CLAIM_PARAMETERS, CLASS_PARAMETERS
from kerf_dra.api.model.classic import ClassicClaim, PodSchedulingContext
from kerf_dra.api.model.metadata import Object, ObjectT
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.wire import Kind, projected_kind
from kerf_dra.driver.controller.candidate import run_candidate
from kerf_dra.driver.controller.classic.api import KubeClaimClient
from kerf_dra.driver.controller.classic.discovered_devices import DiscoveredDeviceKeeper
from kerf_dra.driver.controller.classic.event_handlers import ClaimEventHandlers, ReconcileKey
from kerf_dra.driver.controller.classic.reconcile_result import EventSubject, ReconcileResult, Requeue, WarningEvent
from kerf_dra.driver.controller.classic.reconciler import ClaimReconciler
from kerf_dra.driver.controller.classic.state import ClusterView, InformerStores
from kerf_dra.driver.controller.classic.unused_classes import UnusedClassReporter
from kerf_dra.driver.controller.projections import (
    COMPACT_INVENTORIES,
    LABELED_NODES,
    drop_annotations,
    share_context_nodes,
)
from kerf_dra.driver.controller.settings import NAME, Settings
from kerf_dra.driver.kube.discovery import ClassicFeatures
from kerf_dra.driver.kube.events import EventReporter
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.informer import AnyInformer, Informer
from kerf_dra.driver.runtime import metrics
from kerf_dra.driver.runtime.backoff import Backoff
from kerf_dra.driver.runtime.work_queue import WorkQueue

_GENERATED_NAMES: Final = (1, 28)
"""The first version in which the pod's status has the name of a claim from a template (KEP-3063)."""
_POLICIES: Final = (1, 30)
"""The first version in which the API server enforces ValidatingAdmissionPolicies by default (KEP-3488)."""
_WORKERS_FOR_A_CALL: Final = 4
"""The workers for each concurrent call of the client. Those that allocate wait together for one read of the Lease:
with four, other calls fill that time, and ten claims share a read (with one worker, two or three claims do)."""
_TAKE_OVER: Final = Backoff(first_s=0.5, factor=2, limit_s=10, jitter=0.2)
"""The back-off of the take-over, with a short first delay because a leader may write nothing before it."""

_log = logging.getLogger(__name__)

_passes: Final = metrics.counter(
    "kerf_classic_passes_total", "Passes over claims and scheduling contexts, by the rule that ended them.", ["rule"]
)
_seconds: Final = metrics.histogram(
    "kerf_classic_pass_seconds",
    "What a pass takes, waiting for the API server included.",
    ["what"],
    buckets=(0.005, 0.02, 0.1, 0.5, 2, 10),  # from a pass without a write to a server that hardly answers
)


class RequeueError(TransientError):
    """The key could not be decided yet: the work queue tries it again with back-off."""


class ClassicController:
    """The parts of the controller process and their connections."""

    def __init__(self, client: Client, features: ClassicFeatures, settings: Settings) -> None:
        self._client = client
        self._settings = settings
        self._kinds = features.resource
        self._queue: WorkQueue[ReconcileKey] = WorkQueue(name="claims")
        self._events = EventReporter(client, component=NAME, instance=settings.identity)
        claims = projected_kind(self._kinds.claims, ClassicClaim, drop_annotations)
        self._claims = Informer(client, claims, on_change=lambda change: self._event_handlers.on_claim(change))
        contexts = projected_kind(self._kinds.scheduling_contexts, PodSchedulingContext, share_context_nodes)
        self._contexts = Informer(client, contexts, on_change=lambda change: self._event_handlers.on_context(change))
        self._classes = Informer(
            client, self._kinds.classes, on_change=lambda change: self._event_handlers.on_class(change)
        )
        self._inventories = Informer(
            client, COMPACT_INVENTORIES, on_change=lambda change: self._event_handlers.on_inventory(change)
        )
        self._nodes = Informer(client, LABELED_NODES, on_change=lambda change: self._event_handlers.on_node(change))
        self._parameters = {
            kind.kind: Informer(client, kind, on_change=lambda change: self._event_handlers.on_parameters(change))
            for kind in (*CLASS_PARAMETERS, *CLAIM_PARAMETERS)
        }
        self._view = ClusterView(
            InformerStores(
                claims=self._claims.store,
                classes=self._classes.store,
                contexts=self._contexts.store,
                inventories=self._inventories.store,
                nodes=self._nodes.store,
                parameters={kind: informer.store for kind, informer in self._parameters.items()},
            ),
            monotonic=time.monotonic,
            names_are_generated=features.kubernetes >= _GENERATED_NAMES,
            pods_can_be_limited=features.kubernetes >= _POLICIES,
            unknown_claims=lambda: self._claims.unknown,
            claims_version=lambda: self._claims.version,
        )
        self._event_handlers = ClaimEventHandlers(self._queue, self._view)
        claim_client = KubeClaimClient(client, self._kinds, lease=settings.lease, identity=settings.identity)
        self._reconciler = ClaimReconciler(claim_client, self._kinds, self._view)
        self._discovered_devices = DiscoveredDeviceKeeper(
            client,
            nodes=self._nodes.store,
            events=self._events,
            interval_s=settings.recheck_s,
            now=lambda: datetime.now(UTC),
        )
        self._unused_classes = UnusedClassReporter(client, interval_s=settings.recheck_s, now=lambda: datetime.now(UTC))

    async def run(self) -> None:
        """Run until cancelled."""
        informers: Mapping[str, AnyInformer] = {
            "resourceclaims": self._claims,
            "podschedulingcontexts": self._contexts,
            "classes": self._classes,
            "nodeinventories": self._inventories,
            "nodes": self._nodes,
            **self._parameters,
        }
        await run_candidate(self._client, self._settings, self._events, informers, self._lead)

    async def _lead(self) -> None:
        """Work as the leader, without end."""
        await self._take_over()
        self._event_handlers.requeue_all()
        async with anyio.create_task_group() as group:
            group.start_soon(self._unused_classes.run)
            group.start_soon(self._discovered_devices.run)
            await self._queue.run(self._reconcile, workers=_WORKERS_FOR_A_CALL * self._client.calls_at_once)

    async def _take_over(self) -> None:
        for delay_s in _TAKE_OVER.delays(Random()):  # noqa: S311  (jitter, not a secret)
            try:
                await self._reconciler.take_over(secrets.token_hex(8))
                return
            except KerfError as error:
                _log.warning("cannot take over from a former leader yet: %s", error)
                await anyio.sleep(delay_s)

    async def _reconcile(self, key: ReconcileKey) -> None:
        is_claim = key.what == "claim"
        reconcile = self._reconciler.reconcile_claim if is_claim else self._reconciler.reconcile_context
        try:
            with _seconds.labels(key.what).time():
                result = await reconcile(key.ref)
        except TransientError:
            _passes.labels("failed").inc()
            raise
        except KerfError as error:
            warning = WarningEvent(EventSubject.CLAIM if is_claim else EventSubject.CONTEXT, str(error))
            result = ReconcileResult(rule="refused", warnings=(warning,), requeue=Requeue.PERIODIC)
        _passes.labels(result.rule).inc()
        for warning in result.warnings:
            self._record_event(key, warning)
        if result.requeue is Requeue.BACKOFF:
            raise RequeueError(result.rule)
        if result.requeue is Requeue.PERIODIC:
            self._queue.add(key, after_s=self._settings.recheck_s)

    def _record_event(self, key: ReconcileKey, warning: WarningEvent) -> None:
        about = self._subject(key, warning)
        if about is not None:
            _log.debug("%s %s: %s", about.kind, key.ref, warning.message)  # every time; the event counts them
            self._events.report(about, type="Warning", reason="Failed", message=warning.message)

    def _subject(self, key: ReconcileKey, warning: WarningEvent) -> ObjectReference | None:
        """Return the object that the event is about; None: it no longer exists."""
        namespaced = ObjectRef(key.ref.namespace, warning.name or key.ref.name)
        match warning.about:
            case EventSubject.CLAIM:
                return _reference(self._kinds.claims, self._claims.store.get(namespaced))
            case EventSubject.CONTEXT:
                return _reference(self._kinds.scheduling_contexts, self._contexts.store.get(namespaced))
            case EventSubject.CLASS:
                return _reference(self._kinds.classes, self._view.class_named(warning.name))
            case EventSubject.POD:
                context = self._contexts.store.get(key.ref)
                owners = context.metadata.owner_references if context else ()
                uid = next((owner.uid for owner in owners if owner.controller), "")
                return ObjectReference(
                    api_version="v1", kind="Pod", namespace=key.ref.namespace, name=key.ref.name, uid=uid
                )


def _reference(kind: Kind[ObjectT], value: Object | None) -> ObjectReference | None:
    if value is None:
        return None
    return ObjectReference(
        api_version=kind.api_version,
        kind=kind.kind,
        namespace=value.metadata.namespace,
        name=value.metadata.name,
        uid=value.metadata.uid,
    )
