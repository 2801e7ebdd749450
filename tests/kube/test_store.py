import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.api.core.v1 import Pod, PodSpec
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.kube.store import Store


def pod(name: str, node: str, *, version: int = 1) -> Pod:
    return Pod(
        metadata=ObjectMeta(namespace="default", name=name, resource_version=str(version)), spec=PodSpec(node_name=node)
    )


def by_node() -> Store[Pod]:
    return Store({"node": lambda value: [value.spec.node_name], "all": lambda _: ["x", "x"]})


def test_what_a_reader_holds_does_not_change_under_it() -> None:
    store = by_node()
    store.put(pod("a", "n1"))
    held = (store.values(), store.indexed("node", "n1"), store.refs())
    store.remove(ObjectRef("default", "a"))
    assert held == ((pod("a", "n1"),), (pod("a", "n1"),), (ObjectRef("default", "a"),))
    assert (store.values(), store.indexed("node", "n1"), store.refs()) == ((), (), ())


def test_an_unknown_index_is_an_error_and_an_unknown_key_is_not() -> None:
    assert by_node().indexed("node", "nowhere") == ()
    with pytest.raises(KeyError):
        by_node().indexed("zone", "a")


def test_removing_what_is_not_there_changes_nothing() -> None:
    store = by_node()
    store.remove(ObjectRef("default", "a"))
    assert len(store) == 0


Step = tuple[str, str | None, int]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["n1", "n2", None]), st.integers(0, 3)), max_size=20))
def test_indexes_find_exactly_what_the_store_holds(steps: list[Step]) -> None:
    store, model = by_node(), dict[ObjectRef, Pod]()
    for name, node, version in steps:
        ref = ObjectRef("default", name)
        if node is None:
            store.remove(ref)
            model.pop(ref, None)
        else:
            model[ref] = pod(name, node, version=version)
            store.put(model[ref])
    assert {value.ref: value for value in store.values()} == model
    assert len(store) == len(model)
    assert all(store.get(ref) == value for ref, value in model.items())
    assert {value.ref: value for value in store.indexed("all", "x")} == model
    for node in ("n1", "n2"):
        found = {value.ref: value for value in store.indexed("node", node)}
        assert found == {ref: value for ref, value in model.items() if value.spec.node_name == node}


def test_an_index_forgets_the_keys_that_no_object_has() -> None:
    """Else it grows with each pod that comes and goes."""
    store = by_node()
    for number in range(10):
        store.put(pod("a", f"n{number}", version=number))
    assert set(store._indexes["node"]) == {"n9"}
    store.remove(ObjectRef("default", "a"))
    assert store._indexes == {"node": {}, "all": {}}
