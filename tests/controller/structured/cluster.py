"""A cluster for the controller's tests: an API server's rules about two kinds, caches that lag behind on demand."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from kerf_dra.api.core.v1 import Node, ObjectReference
from kerf_dra.api.kerf.v1alpha1 import RESOURCE_CLASSES, ResourceClassObject, ResourceClassStatus
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.claims import DeviceClass
from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.api.model.metadata import Condition, ObjectMeta, ObjectT
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.api.wire import Kind
from kerf_dra.driver.cel.compile import compile_selector
from kerf_dra.driver.controller.structured.device_groups import DeviceGroupIndex
from kerf_dra.driver.controller.structured.event_handlers import ClassCaches
from kerf_dra.driver.controller.structured.extender_activity import ExtenderActivity
from kerf_dra.driver.controller.structured.graded_placement import GradedPlacement
from kerf_dra.driver.controller.structured.reconciler import ClassReconciler
from kerf_dra.driver.families.registry import BUILT_IN
from kerf_dra.driver.kube.assume_cache import AssumeCache
from kerf_dra.driver.kube.events import EventKind
from kerf_dra.driver.kube.http.client import PatchType
from kerf_dra.driver.kube.http.errors import AlreadyExistsError, ConflictError, NotFoundError
from kerf_dra.driver.kube.store import ObjectChange, Store
from tests.controller.structured.admission_server import BindingServer

DEVICE_CLASSES: Final = KINDS.device_classes
FAMILIES: Final = {family.name: family for family in BUILT_IN}
START: Final = datetime(2026, 11, 20, 8, 30, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Write:
    """One call that changed something, or tried to."""

    verb: str
    kind: str
    name: str


@dataclass
class Cluster:
    """The API server (``objects``), the informers' stores, and a Reconciler between them.

    ``lagging`` keeps the stores as they are until ``deliver`` is called.
    """

    lagging: bool = False
    dropped_fields: frozenset[str] = frozenset()
    """Fields of a DeviceClass' spec that the server drops, as with a feature gate off."""
    fail: Callable[[Write], Exception | None] = lambda _write: None
    """What a call is answered with instead of being done."""
    before_write: Callable[[Write], None] = lambda _write: None
    """Runs just before a call reaches the server: what somebody else did in that moment."""
    objects: dict[tuple[str, str], JsonObject] = field(default_factory=dict)
    writes: list[Write] = field(default_factory=list)
    events: list[tuple[str, str, str, str]] = field(default_factory=list)
    seconds: float = 0.0
    """Time since START."""
    bindings: BindingServer = field(default_factory=BindingServer)
    extender: ExtenderActivity | None = None
    """Whether schedulers ask the scheduler extender; None: it is disabled."""

    def __post_init__(self) -> None:
        self._version = 0
        self._applied: dict[str, set[str]] = {}
        self._classes: Store[ResourceClassObject] = Store()
        self._device_classes: Store[DeviceClass] = Store()
        self._nodes: Store[Node] = Store()
        self.published = DeviceGroupIndex(BUILT_IN)
        self.grading = GradedPlacement(self.bindings)
        self.reconciler = self.new_reconciler()

    def new_reconciler(self) -> ClassReconciler:
        """This process after a restart: of what was written nothing is remembered."""
        self._caches = ClassCaches(
            resource_classes=AssumeCache(self._classes, monotonic=lambda: self.seconds),
            device_classes=AssumeCache(self._device_classes, monotonic=lambda: self.seconds),
            nodes=self._nodes,
            published=self.published,
        )
        return ClassReconciler(
            self,
            DEVICE_CLASSES,
            self._caches,
            families=FAMILIES,
            compile_selector=lambda expression: compile_selector(expression).matches,
            grading=self.grading,
            extender=self.extender,
            events=self,
            now=lambda: START + timedelta(seconds=self.seconds),
            monotonic=lambda: self.seconds,
        )

    # --- the client's side -------------------------------------------------------------------------------------------

    async def create(self, kind: Kind[ObjectT], value: ObjectT, *, field_manager: str = "") -> ObjectT:
        self._arrive(Write("create", kind.kind, value.metadata.name))
        if (kind.kind, value.metadata.name) in self.objects:
            raise AlreadyExistsError("POST", 409, "AlreadyExists", "exists")
        return self._store(kind, kind.encode(value))

    async def patch(
        self,
        kind: Kind[ObjectT],
        name: str,
        patch: JsonObject,
        *,
        type: PatchType,  # noqa: A002  (the client's name)
        field_manager: str = "",
    ) -> ObjectT:
        assert type is PatchType.MERGE
        self._arrive(Write("patch", kind.kind, name))
        current = self._get(kind, name)
        if patch["metadata"].get("resourceVersion", "") not in {"", current["metadata"]["resourceVersion"]}:
            raise ConflictError("PATCH", 409, "Conflict", "the object has been modified")
        return self._store(kind, merge(current, patch))

    async def apply(
        self, kind: Kind[ObjectT], value: JsonObject, *, field_manager: str, subresource: str = ""
    ) -> ObjectT:
        assert (field_manager, subresource) == ("kerf-controller", "status")
        name = value["metadata"]["name"]
        self._arrive(Write("status", kind.kind, name))
        current = self._get(kind, name)
        if value["metadata"].get("resourceVersion", "") not in {"", current["metadata"]["resourceVersion"]}:
            raise ConflictError("PATCH", 409, "Conflict", "the object has been modified")
        uid = current["metadata"]["uid"]
        status = copy.deepcopy(value["status"])
        ours = {condition["type"] for condition in status["conditions"]} | self._applied.get(uid, set())
        self._applied[uid] = {condition["type"] for condition in status["conditions"]}
        others = [one for one in current.get("status", {}).get("conditions", []) if one["type"] not in ours]
        return self._store(kind, {**current, "status": status | {"conditions": others + status["conditions"]}})

    def report(self, about: ObjectReference, *, type: EventKind, reason: str, message: str) -> None:  # noqa: A002
        self.events.append((about.name, type, reason, message))

    def _arrive(self, write: Write) -> None:
        self.before_write(write)
        self.writes.append(write)
        failure = self.fail(write)
        if failure is not None:
            raise failure

    # --- what people and other controllers do ------------------------------------------------------------------------

    def put_class(self, name: str, spec: JsonObject) -> None:
        """Create a ResourceClass, or change its spec."""
        held = self.objects.get(("ResourceClass", name), {"metadata": {"name": name}})
        self._store(RESOURCE_CLASSES, {**held, "spec": spec})

    def put_condition(self, name: str, type_: str) -> None:
        """Write another controller's condition to a ResourceClass."""
        held = self.objects["ResourceClass", name]
        condition = {"type": type_, "status": "True", "reason": "Because", "message": ""}
        conditions = [condition, *held["status"]["conditions"]]
        self._store(RESOURCE_CLASSES, {**held, "status": held["status"] | {"conditions": conditions}})

    def put_device_class(self, name: str, **changes: Any) -> None:
        """Create a DeviceClass by hand, or change top-level fields of one."""
        held = self.objects.get(("DeviceClass", name), {"metadata": {"name": name}, "spec": {}})
        self._store(DEVICE_CLASSES, {**held, **changes})

    def delete(self, kind: str, name: str) -> None:
        self.objects.pop((kind, name), None)
        self._delivered()

    def collect_garbage(self) -> None:
        """Delete DeviceClasses whose owner is gone, as Kubernetes does."""
        uids = {held["metadata"]["uid"] for held in self.objects.values()}
        for (kind, name), held in list(self.objects.items()):
            owners = held["metadata"].get("ownerReferences", [])
            if owners and not any(owner["uid"] in uids for owner in owners):
                self.delete(kind, name)

    def put_node(self, name: str, labels: dict[str, str]) -> None:
        self._nodes.put(Node(metadata=ObjectMeta(name=name, labels=labels)))

    def publish(self, *slices: ResourceSlice) -> None:
        for one in slices:
            self.published.update(one.ref, one)

    def deliver(self) -> None:
        """Let the caches catch up, as by a new list: what came and went in between is never seen."""
        self._fill(RESOURCE_CLASSES, self._classes, self._caches.resource_classes)
        self._fill(DEVICE_CLASSES, self._device_classes, self._caches.device_classes)

    def _fill(self, kind: Kind[ObjectT], store: Store[ObjectT], cache: AssumeCache[ObjectT]) -> None:
        for gone in store.values():
            if (kind.kind, gone.metadata.name) not in self.objects:
                store.remove(gone.ref)
                cache.on_change(ObjectChange(gone.ref, gone, None))
        for (kind_name, _), held in self.objects.items():
            if kind_name == kind.kind:
                value = decode(kind, held)
                old = store.get(value.ref)
                if old != value:
                    store.put(value)
                    cache.on_change(ObjectChange(value.ref, old, value))

    @property
    def caches(self) -> ClassCaches:
        return self._caches

    @staticmethod
    def device_class_change(name: str, spec: JsonObject) -> ObjectChange[DeviceClass]:
        """The event of a DeviceClass that somebody has created."""
        value = decode(DEVICE_CLASSES, {"metadata": {"name": name}, "spec": spec})
        return ObjectChange(value.ref, None, value)

    @staticmethod
    def resource_class_change(name: str, spec: JsonObject) -> ObjectChange[ResourceClassObject]:
        """The event of a ResourceClass that somebody has created."""
        value = decode(RESOURCE_CLASSES, {"metadata": {"name": name}, "spec": spec})
        return ObjectChange(value.ref, None, value)

    # --- what there is ------------------------------------------------------------------------------------------------

    def resource_class(self, name: str) -> ResourceClassObject:
        return decode(RESOURCE_CLASSES, self.objects["ResourceClass", name])

    def device_class(self, name: str) -> DeviceClass | None:
        held = self.objects.get(("DeviceClass", name))
        return None if held is None else decode(DEVICE_CLASSES, held)

    def status(self, name: str) -> ResourceClassStatus:
        return self.resource_class(name).status

    def condition(self, name: str, type_: str) -> Condition:
        return next(one for one in self.status(name).conditions if one.type == type_)

    async def settle(self, name: str, passes: int = 3) -> list[Write]:
        """Passes over one class, with the caches up to date before each; returns the writes."""
        before = len(self.writes)
        for _ in range(passes):
            self.deliver()
            await self.reconciler.reconcile(name)
        self.deliver()
        return self.writes[before:]

    # --- the server's side --------------------------------------------------------------------------------------------

    def _get(self, kind: Kind[ObjectT], name: str) -> JsonObject:
        try:
            return self.objects[kind.kind, name]
        except KeyError:
            raise NotFoundError("GET", 404, "NotFound", f"{kind.plural} {name!r} not found") from None

    def _store(self, kind: Kind[ObjectT], value: JsonObject) -> ObjectT:
        """Keep ``value`` as a server does: a write that changes nothing leaves the version alone."""
        value = copy.deepcopy(value)
        name = value["metadata"]["name"]
        if kind.kind == "DeviceClass":
            value["spec"] = {k: v for k, v in value.get("spec", {}).items() if k not in self.dropped_fields}
        before = self.objects.get((kind.kind, name))
        if before is None:
            self._version += 1
            value["metadata"] |= {"uid": f"uid-{self._version}", "generation": 1}
        elif value.get("spec") != before.get("spec"):
            value["metadata"]["generation"] = before["metadata"]["generation"] + 1
        if value != before:
            self._version += 1
            value["metadata"]["resourceVersion"] = str(self._version)
        self.objects[kind.kind, name] = value
        self._delivered()
        return decode(kind, value)

    def _delivered(self) -> None:
        if not self.lagging:
            self.deliver()


def decode(kind: Kind[ObjectT], held: JsonObject) -> ObjectT:
    return kind.decode(msgspec.json.encode(held))


def merge(target: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged


def expression(cluster: Cluster, name: str) -> str:
    device_class = cluster.device_class(name)
    assert device_class is not None
    [selector] = device_class.spec.selectors
    assert selector.cel is not None
    return selector.cel.expression


def verdicts(cluster: Cluster, name: str) -> dict[str, str]:
    return {one.type: f"{one.status} {one.reason}" for one in cluster.status(name).conditions}
