"""The claims and contexts that are reconciled again after a change (Q-8, Q-9, Q-10, Q-13), and no others."""

from msgspec.structs import replace

from kerf_dra.api.model.classic import ClassicClaim
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.controller.classic.event_handlers import ClaimEventHandlers, ReconcileKey
from kerf_dra.driver.kube.store import ObjectChange
from tests.controller.classic.cluster_builder import ClusterBuilder, claim, consumer, pod
from tests.controller.classic.hardware import inventory, node_object
from tests.controller.classic.test_claims import HELD

POD = ReconcileKey("context", ObjectRef("ns", "pod"))
WAITING = ReconcileKey("claim", ObjectRef("ns", "waiting"))


class Queue:
    """A queue that records the keys that are added."""

    def __init__(self) -> None:
        self.keys: list[ReconcileKey] = []

    def add(self, key: ReconcileKey, *, after_s: float = 0.0) -> None:
        assert after_s >= 0
        self.keys.append(key)


class HandlerFixture:
    """One pod that is negotiated for, one Immediate claim without a place, one claim that is settled."""

    def __init__(self) -> None:
        self.builder = ClusterBuilder()
        self.builder.node("n1")
        self.queue = Queue()
        self.event_handlers = ClaimEventHandlers(self.queue, self.builder.view)
        self.builder.context(potential=("n1",))
        self.builder.claim("waiting", immediate=True)
        self.builder.claim("settled", immediate=True, allocation=HELD)

    def changed(self, old: ClassicClaim | None, new: ClassicClaim | None) -> list[ReconcileKey]:
        value = new or old
        assert value is not None
        self.event_handlers.on_claim(ObjectChange(value.ref, old, new))
        return self.queue.keys


def test_a_class_wakes_those_who_may_wait_for_it() -> None:
    # Q-8, C-12, C-13
    fixture = HandlerFixture()
    class_ = fixture.builder.resource_class("gpu")
    fixture.event_handlers.on_class(ObjectChange(class_.ref, None, class_))
    assert fixture.queue.keys == [POD, WAITING]


def test_parameters_wake_those_who_may_wait_for_them() -> None:
    #
    fixture = HandlerFixture()
    fixture.builder.claim_parameters("p", {})
    (held,) = fixture.builder.stores.parameters["GpuClaimParameters"].values()
    fixture.event_handlers.on_parameters(ObjectChange(held.ref, None, held))
    assert fixture.queue.keys == [POD, WAITING]


def test_freed_devices_wake_those_who_may_wait_for_them() -> None:
    #
    fixture = HandlerFixture()
    old = claim("settled", allocation=HELD)
    assert fixture.changed(old, claim("settled", version="2")) == [ReconcileKey("claim", old.ref), POD, WAITING]


def test_a_pod_less_at_a_claim_that_was_full_wakes_those_who_may_wait_for_a_place() -> None:
    #
    shared, users = replace(HELD, max_pods=2), (consumer("a"), consumer("b"))
    full = claim("settled", allocation=shared, reserved_for=users)
    fixture = HandlerFixture()
    assert fixture.changed(full, claim("settled", allocation=shared, reserved_for=users[:1])) == [
        ReconcileKey("claim", full.ref),
        POD,
        WAITING,
    ]
    fixture = HandlerFixture()
    half = claim("settled", allocation=shared, reserved_for=users[:1])
    assert fixture.changed(half, claim("settled", allocation=shared)) == [ReconcileKey("claim", full.ref)]


def test_a_change_that_frees_nothing_wakes_only_the_claim() -> None:
    fixture = HandlerFixture()
    old = claim("settled", allocation=HELD)
    new = replace(old, metadata=replace(old.metadata, resource_version="2", labels={"a": "b"}))
    assert fixture.changed(old, new) == [ReconcileKey("claim", old.ref)]


def test_a_new_claim_wakes_its_pods_context() -> None:
    fixture = HandlerFixture()
    assert fixture.changed(None, claim("new", owner=pod())) == [ReconcileKey("claim", ObjectRef("ns", "new")), POD]


def test_a_claim_that_any_pod_may_name_wakes_the_contexts_of_its_namespace() -> None:
    fixture = HandlerFixture()
    assert fixture.changed(None, claim("new")) == [ReconcileKey("claim", ObjectRef("ns", "new")), POD]


def test_an_inventory_that_is_only_renewed_wakes_nobody() -> None:
    fixture = HandlerFixture()
    old, new = inventory("n1"), inventory("n1", renewed_at="2")
    fixture.event_handlers.on_inventory(ObjectChange(old.ref, old, new))
    assert fixture.queue.keys == []
    fixture.event_handlers.on_inventory(ObjectChange(old.ref, new, inventory("n1", ready=False)))
    assert fixture.queue.keys == [POD, WAITING, ReconcileKey("claim", ObjectRef("ns", "settled"))]


def test_nodes_wake_only_by_their_labels() -> None:
    fixture = HandlerFixture()
    old, same, other = node_object("n1"), node_object("n1"), node_object("n1", {"rack": "b"})
    fixture.event_handlers.on_node(ObjectChange(old.ref, old, same))
    assert fixture.queue.keys == []
    fixture.event_handlers.on_node(ObjectChange(old.ref, same, other))
    assert fixture.queue.keys == [POD, WAITING]


def test_a_new_leader_looks_at_everything() -> None:
    # NE-01, NE-14
    fixture = HandlerFixture()
    fixture.event_handlers.requeue_all()
    assert set(fixture.queue.keys) == {POD, WAITING, ReconcileKey("claim", ObjectRef("ns", "settled"))}
