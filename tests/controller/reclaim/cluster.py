"""A cluster of one node with cards for tests of the reclaimer: pods, claims, a plugin that taints, an API server.

The API server evicts as Kubernetes' does: with the UID as a precondition, not while a disruption budget protects the
pod, and a pod that is evicted is being deleted until it has ended. Each accepted eviction is judged at once.
"""

import copy
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kerf_dra.api.core.policy import Eviction
from kerf_dra.api.core.v1 import ObjectReference, Pod
from kerf_dra.api.kerf.card_maintenance import CARD_MAINTENANCES, CardMaintenanceObject, CardMaintenanceStatus
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.claims import AllocatedClaim
from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.api.model.metadata import ObjectT
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.api.wire import Kind, ListMeta, ObjectList
from kerf_dra.driver.controller.reclaim.executor import CLAIM_INDEXERS, CardReclaimer
from kerf_dra.driver.controller.reclaim.repairer import CardRepairer, SliceRepairs, keep_repairs
from kerf_dra.driver.controller.reclaim.settings import ReclaimSettings
from kerf_dra.driver.kube.events import EventKind
from kerf_dra.driver.kube.http.client import PatchType
from kerf_dra.driver.kube.http.errors import AlreadyExistsError, ConflictError, NotFoundError, ThrottledError
from kerf_dra.driver.kube.store import Store
from kerf_dra.driver.reclaim.automatic_repairs import AUTOMATIC_LABEL, ReclaimMode
from tests.fakes.cluster_states import slices
from tests.reclaim.cases import claim, pod, result, taint_slices

START: Final = datetime(2026, 11, 27, 10, 0, tzinfo=UTC)
NODE: Final = "node-1"
CARDS: Final = ("gpu-0", "gpu-1")
BUDGET: Final = "Cannot evict pod as it would violate the pod's disruption budget."


def uuid(card: str) -> str:
    return f"GPU-{NODE}-{card.removeprefix('gpu-')}"


class KilledError(Exception):
    """The process ends here."""


@dataclass(frozen=True)
class Process:
    """One process of the reclaimer, with its caches."""

    maintenances: Store[CardMaintenanceObject]
    claims: Store[AllocatedClaim]
    repairs: Store[SliceRepairs]
    reclaimer: CardReclaimer
    repairer: CardRepairer


@dataclass
class Cluster:
    """The API server, the caches of the reclaimer, and the reclaimer; ``new_process`` is a restart of it."""

    fail: Callable[[str, str], Exception | None] = lambda _verb, _name: None
    """What a call is answered with instead of being done."""
    lose_answer: Callable[[str, str], Exception | None] = lambda _verb, _name: None
    """What a call that has been done is answered with."""
    pods: dict[ObjectRef, Pod] = field(default_factory=dict)
    cards: dict[str, str] = field(default_factory=dict)
    """The card of each pod, by its UID."""
    claims: dict[ObjectRef, AllocatedClaim] = field(default_factory=dict)
    maintenances: dict[str, JsonObject] = field(default_factory=dict)
    names: tuple[str, ...] = CARDS
    """The cards of the node."""
    tainted: set[str] = field(default_factory=set)
    """The cards that the plugin has tainted."""
    repairs: dict[str, str] = field(default_factory=dict)
    """What the plugin says that cards need, as the value of the taint."""
    protected: set[str] = field(default_factory=set)
    """The UIDs of pods whose disruption budget allows no eviction."""
    evicted: list[str] = field(default_factory=list)
    """The UIDs of the pods whose eviction was accepted."""
    calls: list[tuple[str, str]] = field(default_factory=list)
    events: list[tuple[str, str]] = field(default_factory=list)
    may_evict_bare: bool = False
    refuses_second_eviction: bool = True
    """Whether a pod that is being deleted must not be evicted again; two leaders may do that at the same time."""
    seconds: float = 0.0
    settings: ReclaimSettings = field(default_factory=ReclaimSettings)

    def __post_init__(self) -> None:
        self._numbers = 0
        self._version = 0
        self.process = self.start_process()

    @property
    def reclaimer(self) -> CardReclaimer:
        return self.process.reclaimer

    @property
    def repairer(self) -> CardRepairer:
        return self.process.repairer

    def new_process(self) -> CardReclaimer:
        """Have another process in place of the one that there was."""
        self.process = self.start_process()
        return self.reclaimer

    def start_process(self) -> "Process":
        maintenances: Store[CardMaintenanceObject] = Store()
        claims: Store[AllocatedClaim] = Store(CLAIM_INDEXERS)
        repairs: Store[SliceRepairs] = Store()
        process = Process(
            maintenances,
            claims,
            repairs,
            CardReclaimer(
                self,
                maintenances=maintenances,
                claims=claims,
                slices=KINDS.resource_slices,
                events=self,
                settings=self.settings,
                now=lambda: START + timedelta(seconds=self.seconds),
                monotonic=lambda: self.seconds,
            ),
            CardRepairer(
                self,
                maintenances=maintenances,
                claims=claims,
                repairs=repairs,
                slices=KINDS.resource_slices,
                events=self,
                settings=self.settings,
                now=lambda: START + timedelta(seconds=self.seconds),
            ),
        )
        self.deliver(process)
        return process

    def deliver(self, process: "Process | None" = None) -> None:
        """Have the caches of a process show what the API server has."""
        process = process or self.process
        found = {name: CARD_MAINTENANCES.decode(msgspec.json.encode(one)) for name, one in self.maintenances.items()}
        _copy(process.maintenances, {one.ref: one for one in found.values()})
        _copy(process.claims, self.claims)
        _copy(process.repairs, {one.ref: one for one in map(keep_repairs, self._list_slices(NODE))})

    async def reconcile(self) -> bool:
        """Do one pass with caches that are up to date."""
        self.deliver()
        return await self.reclaimer.reconcile()

    async def repair(self) -> None:
        """Do one pass of the part that acts by itself with caches that are up to date."""
        self.deliver()
        await self.repairer.reconcile()

    # --- what people, pods and nodes do ------------------------------------------------------------------------------

    def drain(self, card: str, name: str = "", **spec: Any) -> str:
        self._numbers += 1
        name = name or f"drain-{card}"
        self._store(name, {}, {"nodeName": NODE, "card": uuid(card), **spec}, self._numbers)
        return name

    def _store(self, name: str, labels: dict[str, str], spec: JsonObject, seconds: float) -> None:
        self._version += 1
        self.maintenances[name] = {
            "metadata": {
                "name": name,
                "uid": f"uid-{name}-{self._version}",
                "resourceVersion": str(self._version),
                "generation": 1,
                "creationTimestamp": (START + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ"),
                "labels": labels,
            },
            "spec": spec,
        }

    def follow_maintenances(self) -> None:
        """Have the plugin taint what is in maintenance, and nothing else."""
        wanted = {str(one["spec"].get("card", "")).lower() for one in self.maintenances.values()}
        self.tainted = {card for card in self.names if uuid(card).lower() in wanted}

    def run_pod(self, name: str, card: str, start: int = 0, **fields: Any) -> str:
        """Have a pod run with a partition of a card, the one at memory slice ``start``; returns its UID."""
        self._numbers += 1
        uid = f"uid-{name}-{self._numbers}"
        made = pod(name, f"{name}-gpu", **fields)
        made = replace(made, metadata=replace(made.metadata, uid=uid))
        namespace = made.metadata.namespace
        self.pods[made.ref] = made
        self.cards[uid] = card
        held = claim(f"{name}-gpu", result(f"{card}-1g-10gb-at-{start}"), users=[name], namespace=namespace)
        reserved = replace(held.status.reserved_for[0], uid=uid)
        status = replace(held.status, reserved_for=(reserved,))
        owner = replace(held.metadata.owner_references[0], uid=uid)
        metadata = replace(held.metadata, owner_references=(owner,))
        self.claims[held.ref] = AllocatedClaim(metadata=metadata, status=status)
        return uid

    def end_pod(self, ref: ObjectRef) -> None:
        """Have a pod and its claim go."""
        del self.pods[ref]
        self.claims.pop(ObjectRef(ref.namespace, f"{ref.name}-gpu"), None)

    def end_deleted_pods(self) -> None:
        for ref in [ref for ref, one in self.pods.items() if one.is_terminating]:
            self.end_pod(ref)

    def status(self, name: str) -> CardMaintenanceStatus:
        return CARD_MAINTENANCES.decode(msgspec.json.encode(self.maintenances[name])).status

    def is_in_use(self, card: str) -> bool:
        return any(self.cards[one.metadata.uid] == card for one in self.pods.values())

    # --- the client's side -------------------------------------------------------------------------------------------

    async def list(self, kind: Kind[ObjectT], *, field_selector: str = "") -> ObjectList[ObjectT]:
        self._begin("list", kind.plural)
        if kind.plural == CARD_MAINTENANCES.plural:
            found: Any = tuple(kind.decode(msgspec.json.encode(one)) for one in self.maintenances.values())
            return ObjectList(ListMeta(), found)
        assert field_selector.startswith("spec.nodeName=")
        node = field_selector.partition("=")[2]
        found = self._list_slices(node)
        if kind.plural == "pods":
            found = tuple(one for one in self.pods.values() if one.spec.node_name == node)
        return ObjectList(ListMeta(), found)

    async def find(self, kind: Kind[ObjectT], name: str) -> ObjectT | None:
        self._begin("find", name)
        held = self.maintenances.get(name)
        return None if held is None else kind.decode(msgspec.json.encode(held))

    def _list_slices(self, node: str) -> tuple[ResourceSlice, ...]:
        tainted = self.tainted if node == NODE else set()
        taints = [("maintenance", card, "in-use" if self.is_in_use(card) else "idle") for card in sorted(tainted)]
        taints += [("repair", card, value) for card, value in sorted(self.repairs.items()) if node == NODE]
        return _publish(node, len(self.names), *taints)

    async def create_subresource(self, kind: Kind[ObjectT], value: ObjectT, subresource: str) -> None:
        assert subresource == "eviction"
        assert isinstance(value, Eviction)
        self._begin("evict", str(value.ref))
        present = self.pods.get(value.ref)
        if present is None:
            raise NotFoundError("POST", 404, "NotFound", "no such pod")
        uid = present.metadata.uid
        if value.delete_options.preconditions.uid != uid:
            raise ConflictError("POST", 409, "Conflict", "the UID in the precondition is another one")
        if uid in self.protected:
            raise ThrottledError("POST", 429, "TooManyRequests", BUDGET)
        if present.is_terminating and not self.refuses_second_eviction:
            return
        assert uid not in self.evicted, f"{value.ref} is evicted twice"
        assert self.cards[uid] in self.tainted, f"{value.ref} is evicted from a card that still gets claims"
        assert self.cards[uid] in self.list_drained(), f"{value.ref} is evicted from a card that is not drained"
        assert present.metadata.namespace != "kube-system"
        assert present.metadata.owner_references or self.may_evict_bare, "nothing creates it again"
        assert "kerf.dev/do-not-evict" not in present.metadata.annotations
        self.evicted.append(uid)
        stamp = (START + timedelta(seconds=self.seconds)).isoformat()
        self.pods[value.ref] = replace(present, metadata=replace(present.metadata, deletion_timestamp=stamp))
        self._end("evict", str(value.ref))

    def list_drained(self) -> Collection[str]:
        """Return the cards of which pods may be evicted."""
        wanted = {str(one["spec"].get("card")) for one in self.maintenances.values()}
        return {card for card in self.names if uuid(card) in wanted}

    async def patch(
        self,
        kind: Kind[ObjectT],
        name: str,
        patch: JsonObject,
        *,
        type: PatchType,  # noqa: A002  (the client's name)
        subresource: str = "",
        field_manager: str = "",
    ) -> ObjectT:
        assert (type, field_manager) == (PatchType.MERGE, "kerf-reclaimer")
        self._begin(f"patch {subresource or 'object'}", name)
        held = self.maintenances.get(name)
        if held is None:
            raise NotFoundError("PATCH", 404, "NotFound", "no such object")
        if patch["metadata"]["uid"] != held["metadata"]["uid"]:
            raise ConflictError("PATCH", 409, "Conflict", "the UID is another one")
        assert set(patch) == ({"metadata", "status"} if subresource else {"metadata"})
        assert "work" not in patch.get("status", {}), "the node alone writes it, and may have since"
        self._version += 1
        self.maintenances[name] = _merge(held, {**patch, "metadata": self._stamp(patch["metadata"])})
        self._end(f"patch {subresource or 'object'}", name)
        return kind.decode(msgspec.json.encode(self.maintenances[name]))

    def _stamp(self, metadata: JsonObject) -> JsonObject:
        return {**metadata, "resourceVersion": str(self._version)}

    async def create(self, kind: Kind[ObjectT], value: ObjectT, *, field_manager: str = "") -> ObjectT:
        name = value.metadata.name
        self._begin("create", name)
        if name in self.maintenances:
            raise AlreadyExistsError("POST", 409, "AlreadyExists", "there is one")
        assert isinstance(value, CardMaintenanceObject)
        assert field_manager == "kerf-reclaimer"
        assert self.settings.mode is ReclaimMode.ACT
        opened = [
            one
            for one in self.list_open()
            if one["spec"]["card"] == value.spec["card"] and one["metadata"]["labels"].get(AUTOMATIC_LABEL)
        ]
        assert not opened, f"{name} is the second one for its card, beside {opened}"
        self._store(name, dict(value.metadata.labels), dict(value.spec), self.seconds)
        self._end("create", name)
        return kind.decode(msgspec.json.encode(self.maintenances[name]))

    def list_open(self) -> Sequence[JsonObject]:
        """Return the CardMaintenances whose cards have not been returned."""
        return [
            one for one in self.maintenances.values() if one.get("status", {}).get("work", {}).get("state") != "Done"
        ]

    async def delete(
        self, kind: Kind[ObjectT], name: str, *, uid: str | None = None, resource_version: str | None = None
    ) -> None:
        self._begin("delete", name)
        held = self.maintenances.get(name)
        if held is None:
            raise NotFoundError("DELETE", 404, "NotFound", "no such object")
        if (held["metadata"]["uid"], held["metadata"]["resourceVersion"]) != (uid, resource_version):
            raise ConflictError("DELETE", 409, "Conflict", "it is another one")
        assert held["metadata"]["labels"].get(AUTOMATIC_LABEL) == "true", "people's are never deleted"
        del self.maintenances[name]
        self._end("delete", name)

    def report(self, about: ObjectReference, *, type: EventKind, reason: str, message: str) -> None:  # noqa: A002
        assert (type, reason, about.kind) in (("Normal", "CardDrained", "Pod"), ("Warning", "CardNeedsRepair", "Node"))
        self.events.append((about.name, message))

    def _begin(self, verb: str, name: str) -> None:
        self.calls.append((verb, name))
        if error := self.fail(verb, name):
            raise error

    def _end(self, verb: str, name: str) -> None:
        if error := self.lose_answer(verb, name):
            raise error


@lru_cache(maxsize=512)  # of eight cards one or two have taints at a time
def _publish(node: str, cards: int, *tainted: tuple[str, str, str]) -> tuple[ResourceSlice, ...]:
    """Return the slices of a node with these taints: each with its name, the card and the value."""
    published = {one.metadata.name: one for one in _list_untainted(node, cards)}
    for name, card, value in tainted:
        for one in taint_slices(_list_untainted(node, cards), card, value=value, name=name):
            published[one.metadata.name] = _merge_taints(published[one.metadata.name], one)
    return tuple(published.values())


@lru_cache(maxsize=8)
def _list_untainted(node: str, cards: int) -> tuple[ResourceSlice, ...]:
    """Return the slices of a node with the devices that its pods have, and the whole cards."""

    def keep(one: ResourceSlice) -> ResourceSlice:
        kept = (each for each in one.spec.devices if each.name.count("-") == 1 or "-1g-10gb-at-" in each.name)
        return replace(one, spec=replace(one.spec, devices=tuple(kept)))

    return tuple(map(keep, slices(node, cards)))


def _copy(store: Store[Any], objects: dict[ObjectRef, Any]) -> None:
    for ref in store.refs():
        if ref not in objects:
            store.remove(ref)
    for value in objects.values():
        store.put(value)


def _merge(value: JsonObject, patch: JsonObject) -> JsonObject:
    merged = copy.deepcopy(value)
    for key, each in patch.items():
        if each is None:
            merged.pop(key, None)
        elif isinstance(each, dict):
            merged[key] = _merge(merged.get(key) or {}, each)
        else:
            merged[key] = each
    return merged


def _merge_taints(one: ResourceSlice, other: ResourceSlice) -> ResourceSlice:
    pairs = zip(one.spec.devices, other.spec.devices, strict=True)
    devices = tuple(replace(first, taints=(*first.taints, *second.taints)) for first, second in pairs)
    return replace(one, spec=replace(one.spec, devices=devices))
