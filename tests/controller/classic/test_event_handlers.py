"""Which claims and contexts are looked at again after a change (Q-8, Q-9, Q-10, Q-13), and nothing beside."""

from msgspec.structs import replace

from api.model.classic import ClassicClaim
from api.model.names import ObjectRef
from driver.controller.classic.event_handlers import Key, Triggers
from driver.kube.store import ObjectChange
from tests.controller.classic.hardware import inventory, node_object
from tests.controller.classic.scene import Scene, claim, consumer, pod
from tests.controller.classic.test_claims import HELD

POD = Key("context", ObjectRef("ns", "pod"))
WAITING = Key("claim", ObjectRef("ns", "waiting"))


class Queue:
    """What was asked for."""

    def __init__(self) -> None:
        self.keys: list[Key] = []

    def add(self, key: Key, *, after_s: float = 0.0) -> None:
        assert after_s >= 0
        self.keys.append(key)


class Setting:
    """One pod that is negotiated for, one Immediate claim without a place, one claim that is settled."""

    def __init__(self) -> None:
        self.scene = Scene()
        self.scene.node("n1")
        self.queue = Queue()
        self.triggers = Triggers(self.queue, self.scene.world)
        self.scene.context(potential=("n1",))
        self.scene.claim("waiting", immediate=True)
        self.scene.claim("settled", immediate=True, allocation=HELD)

    def changed(self, old: ClassicClaim | None, new: ClassicClaim | None) -> list[Key]:
        value = new or old
        assert value is not None
        self.triggers.on_claim(ObjectChange(value.ref, old, new))
        return self.queue.keys


def test_a_class_wakes_those_who_may_wait_for_it() -> None:
    # Q-8, C-12, C-13
    setting = Setting()
    class_ = setting.scene.resource_class("gpu")
    setting.triggers.on_class(ObjectChange(class_.ref, None, class_))
    assert setting.queue.keys == [POD, WAITING]


def test_parameters_wake_those_who_may_wait_for_them() -> None:
    #
    setting = Setting()
    setting.scene.claim_parameters("p", {})
    (held,) = setting.scene.caches.parameters["GpuClaimParameters"].values()
    setting.triggers.on_parameters(ObjectChange(held.ref, None, held))
    assert setting.queue.keys == [POD, WAITING]


def test_freed_devices_wake_those_who_may_wait_for_them() -> None:
    #
    setting = Setting()
    old = claim("settled", allocation=HELD)
    assert setting.changed(old, claim("settled", version="2")) == [Key("claim", old.ref), POD, WAITING]


def test_a_pod_less_at_a_claim_that_was_full_wakes_those_who_may_wait_for_a_place() -> None:
    #
    shared, users = replace(HELD, max_pods=2), (consumer("a"), consumer("b"))
    full = claim("settled", allocation=shared, reserved_for=users)
    setting = Setting()
    assert setting.changed(full, claim("settled", allocation=shared, reserved_for=users[:1])) == [
        Key("claim", full.ref),
        POD,
        WAITING,
    ]
    setting = Setting()
    half = claim("settled", allocation=shared, reserved_for=users[:1])
    assert setting.changed(half, claim("settled", allocation=shared)) == [Key("claim", full.ref)]


def test_a_change_that_frees_nothing_wakes_only_the_claim() -> None:
    setting = Setting()
    old = claim("settled", allocation=HELD)
    new = replace(old, metadata=replace(old.metadata, resource_version="2", labels={"a": "b"}))
    assert setting.changed(old, new) == [Key("claim", old.ref)]


def test_a_new_claim_wakes_its_pods_context() -> None:
    setting = Setting()
    assert setting.changed(None, claim("new", owner=pod())) == [Key("claim", ObjectRef("ns", "new")), POD]


def test_a_claim_that_any_pod_may_name_wakes_the_contexts_of_its_namespace() -> None:
    setting = Setting()
    assert setting.changed(None, claim("new")) == [Key("claim", ObjectRef("ns", "new")), POD]


def test_an_inventory_that_is_only_renewed_wakes_nobody() -> None:
    setting = Setting()
    old, new = inventory("n1"), inventory("n1", renewed_at="2")
    setting.triggers.on_inventory(ObjectChange(old.ref, old, new))
    assert setting.queue.keys == []
    setting.triggers.on_inventory(ObjectChange(old.ref, new, inventory("n1", ready=False)))
    assert setting.queue.keys == [POD, WAITING, Key("claim", ObjectRef("ns", "settled"))]


def test_nodes_wake_only_by_their_labels() -> None:
    setting = Setting()
    old, same, other = node_object("n1"), node_object("n1"), node_object("n1", {"rack": "b"})
    setting.triggers.on_node(ObjectChange(old.ref, old, same))
    assert setting.queue.keys == []
    setting.triggers.on_node(ObjectChange(old.ref, same, other))
    assert setting.queue.keys == [POD, WAITING]


def test_a_new_leader_looks_at_everything() -> None:
    # NE-01, NE-14
    setting = Setting()
    setting.triggers.everything()
    assert set(setting.queue.keys) == {POD, WAITING, Key("claim", ObjectRef("ns", "settled"))}
