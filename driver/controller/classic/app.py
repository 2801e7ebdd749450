"""The controller process where drivers allocate: informers feed a queue of claims and contexts, whoever leads works.

::

    ResourceClaim  PodSchedulingContext  ResourceClass  parameters  NodeInventory  Node      informers
          └───────────────┴──────────────────┬┴───────────────┴──────────┴──────────┘
                              world, triggering            what is known; which keys need a pass
                                  WorkQueue                merged, one pass per key at a time
                                   syncing                 in the leader only, once it has taken over
"""

import logging
import secrets
import time
from collections.abc import Mapping
from random import Random
from typing import Final

import anyio

from api.core.v1 import NODES, ObjectReference
from api.errors import KerfError, TransientError
from api.kerf.classic_parameters import CLAIM_PARAMETERS, CLASS_PARAMETERS
from api.kerf.node_inventory import NODE_INVENTORIES
from api.model.metadata import Object, ObjectT
from api.model.names import ObjectRef
from api.wire import Kind
from driver.controller.classic.api import KubeApi
from driver.controller.classic.event_handlers import Key, Triggers
from driver.controller.classic.outcomes import About, Complaint, Outcome
from driver.controller.classic.reconciler import Ended, Syncing
from driver.controller.classic.state import Caches, World
from driver.controller.settings import LISTING_HINT, Settings
from driver.kube.discovery import ClassicFeatures
from driver.kube.events import EventReporter
from driver.kube.http.client import Client
from driver.kube.informer import AnyInformer, Informer, start_informers
from driver.kube.leader_election import run_as_leader
from driver.runtime import metrics
from driver.runtime.backoff import Backoff
from driver.runtime.metrics import REGISTRY
from driver.runtime.probes import Probes
from driver.runtime.work_queue import WorkQueue

_GENERATED_NAMES: Final = (1, 28)
"""From here on the name of a claim from a template stands in the pod's status (KEP-3063)."""
_POLICIES: Final = (1, 30)
"""From here on the API server keeps to ValidatingAdmissionPolicies unasked (KEP-3488)."""
_PASSES_FOR_A_CALL: Final = 4
"""Passes at a time, for each call that the client has under way. Those that allocate wait together for a look at the
Lease: with four, calls of others fill that time, and some ten claims share a look (with one, two or three)."""
_TAKE_OVER: Final = Backoff(first_s=0.5, factor=2, limit_s=10, jitter=0.2)
"""Leadership is worth nothing before it, so it is tried again soon."""

_log = logging.getLogger(__name__)

_passes: Final = metrics.counter(
    "kerf_classic_passes_total", "Passes over claims and scheduling contexts, by the rule that ended them.", ["rule"]
)
_seconds: Final = metrics.histogram(
    "kerf_classic_pass_seconds",
    "What a pass takes, waiting for the API server included.",
    ["what"],
    buckets=(0.005, 0.02, 0.1, 0.5, 2, 10),  # from a pass without a write to a server that is hardly there
)


class LaterError(TransientError):
    """The pass could not decide yet."""


class ClassicController:
    """The parts of the process and how they are connected."""

    def __init__(self, client: Client, features: ClassicFeatures, settings: Settings) -> None:
        self._client = client
        self._settings = settings
        kinds = features.resource
        self._queue: WorkQueue[Key] = WorkQueue()
        self._events = EventReporter(client, component=f"resource driver {settings.driver}", instance=settings.identity)
        self._probes = Probes(REGISTRY)
        self._claims = Informer(client, kinds.claims, on_change=lambda change: self._triggers.on_claim(change))
        self._contexts = Informer(
            client, kinds.scheduling_contexts, on_change=lambda change: self._triggers.on_context(change)
        )
        self._classes = Informer(client, kinds.classes, on_change=lambda change: self._triggers.on_class(change))
        self._inventories = Informer(
            client, NODE_INVENTORIES, on_change=lambda change: self._triggers.on_inventory(change)
        )
        self._nodes = Informer(client, NODES, on_change=lambda change: self._triggers.on_node(change))
        self._parameters = {
            kind.kind: Informer(client, kind, on_change=lambda change: self._triggers.on_parameters(change))
            for kind in (*CLASS_PARAMETERS, *CLAIM_PARAMETERS)
        }
        self._world = World(
            Caches(
                claims=self._claims.store,
                classes=self._classes.store,
                contexts=self._contexts.store,
                inventories=self._inventories.store,
                nodes=self._nodes.store,
                parameters={kind: informer.store for kind, informer in self._parameters.items()},
            ),
            driver=settings.driver,
            monotonic=time.monotonic,
            names_are_generated=features.kubernetes >= _GENERATED_NAMES,
            pods_can_be_limited=features.kubernetes >= _POLICIES,
        )
        self._triggers = Triggers(self._queue, self._world)
        self._kinds = kinds
        api = KubeApi(client, kinds, lease=settings.lease, identity=settings.identity)
        self._syncing = Syncing(api, kinds, self._world)

    async def run(self) -> None:
        """Until cancelled. Nothing is decided before every list is in."""
        informers: Mapping[str, AnyInformer] = {
            "resourceclaims": self._claims,
            "podschedulingcontexts": self._contexts,
            "classes": self._classes,
            "nodeinventories": self._inventories,
            "nodes": self._nodes,
            **self._parameters,
        }
        settings = self._settings
        async with anyio.create_task_group() as group:
            await group.start(self._probes.serve, settings.probes)
            group.start_soon(self._events.run)
            await start_informers(
                group, informers, add_check=self._probes.add_check, within_s=settings.startup_s, hint=LISTING_HINT
            )
            await run_as_leader(self._client, settings.lease, settings.identity, settings.leading, self._work)
            group.cancel_scope.cancel()

    async def _work(self) -> None:
        """What the leader does, for ever."""
        await self._take_over()
        self._triggers.everything()
        await self._queue.run(self._pass, workers=_PASSES_FOR_A_CALL * self._client.calls_at_once)

    async def _take_over(self) -> None:
        for delay_s in _TAKE_OVER.delays(Random()):  # noqa: S311  (jitter, not a secret)
            try:
                await self._syncing.take_over(secrets.token_hex(8))
                return
            except KerfError as error:
                _log.warning("cannot take over from a former leader yet: %s", error)
                await anyio.sleep(delay_s)

    async def _pass(self, key: Key) -> None:
        sync = self._syncing.sync_claim if key.what == "claim" else self._syncing.sync_context
        try:
            with _seconds.labels(key.what).time():
                ended = await sync(key.ref)
        except TransientError:
            _passes.labels("failed").inc()
            raise
        except KerfError as error:
            ended = Ended("refused", Outcome.PERIODIC, (Complaint(_subject(key), str(error)),))
        _passes.labels(ended.rule).inc()
        for complaint in ended.complaints:
            self._complain(key, complaint)
        if ended.outcome is Outcome.REQUEUE:
            raise LaterError(ended.rule)
        if ended.outcome is Outcome.PERIODIC:
            self._queue.add(key, after_s=self._settings.recheck_s)

    def _complain(self, key: Key, complaint: Complaint) -> None:
        about = self._about(key, complaint)
        if about is not None:
            _log.debug("%s %s: %s", about.kind, key.ref, complaint.message)  # every time; the event counts them
            self._events.report(about, type="Warning", reason="Failed", message=complaint.message)

    def _about(self, key: Key, complaint: Complaint) -> ObjectReference | None:
        """What the event is about; None: it is gone."""
        namespaced = ObjectRef(key.ref.namespace, complaint.name or key.ref.name)
        match complaint.about:
            case About.CLAIM:
                return _reference(self._kinds.claims, self._claims.store.get(namespaced))
            case About.CONTEXT:
                return _reference(self._kinds.scheduling_contexts, self._contexts.store.get(namespaced))
            case About.CLASS:
                return _reference(self._kinds.classes, self._class_of(key, complaint))
            case About.POD:
                context = self._contexts.store.get(key.ref)
                owners = context.metadata.owner_references if context else ()
                uid = next((owner.uid for owner in owners if owner.controller), "")
                return ObjectReference(
                    api_version="v1", kind="Pod", namespace=key.ref.namespace, name=key.ref.name, uid=uid
                )

    def _class_of(self, key: Key, complaint: Complaint) -> Object | None:
        if complaint.name:
            return self._world.class_named(complaint.name)
        claim = self._claims.store.get(key.ref)
        return self._world.class_named(claim.spec.requests[0].class_name) if claim else None


def _subject(key: Key) -> About:
    return About.CLAIM if key.what == "claim" else About.CONTEXT


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
