"""Nodes by what is free of them: kept while everything changes, and the same as worked out anew."""

from hypothesis import given
from hypothesis import strategies as st

from api.model.allocations import DeviceAllocationResult, DeviceRequestAllocationResult
from api.model.classic import ClassicAllocation
from api.model.device_attributes import pool_name
from driver.controller.classic.allocator import ONLY_REQUEST, only_node
from driver.controller.classic.placement import Look
from driver.partitions.geometry import DeviceKind
from tests.controller.classic.hardware import DRIVER, gpu
from tests.controller.classic.scene import Scene

NODES = ("n1", "n2", "n3")
DEVICES = ("gpu-0-1g-10gb-at-0", "gpu-0-1g-10gb-at-1", "gpu-0")


def allocation(node: str, device: str) -> ClassicAllocation:
    result = DeviceRequestAllocationResult(
        request=ONLY_REQUEST, driver=DRIVER, pool=pool_name(node, DeviceKind.GPU), device=device
    )
    devices = DeviceAllocationResult(results=(result,))
    return ClassicAllocation(devices=devices, node_selector=only_node(node), drivers=(DRIVER,))


def anew(scene: Scene) -> dict[Look, list[str]]:
    found: dict[Look, list[str]] = {}
    for node in NODES:
        if scene.world.stock(node) is not None:
            found.setdefault(scene.world.state(node).look, []).append(node)
    return found


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("take"), st.sampled_from(NODES), st.sampled_from(DEVICES)),
            st.tuples(st.just("free"), st.sampled_from(NODES), st.sampled_from(DEVICES)),
            st.tuples(st.just("cards"), st.sampled_from(NODES), st.integers(0, 2)),
            st.tuples(st.just("gone"), st.sampled_from(NODES), st.just(0)),
            st.tuples(st.just("look"), st.sampled_from(NODES), st.just(0)),
        ),
        max_size=30,
    )
)
def test_nodes_are_grouped_by_what_is_free_of_them(changes: list[tuple[str, str, str | int]]) -> None:
    scene = Scene()
    for what, node, detail in changes:
        match what:
            case "take":
                scene.claim(f"{node}-{detail}", allocation=allocation(node, str(detail)))
            case "free":
                scene.claim(f"{node}-{detail}")
            case "cards":
                scene.node(node, *(gpu(node, index) for index in range(int(detail))))
            case "gone" if scene.world.stock(node) is not None:
                scene.remove_inventory(node)
            case "look":
                scene.world.alike()
    grouped = {look: list(nodes) for look, nodes in scene.world.alike().items()}
    assert grouped == anew(scene)
    assert all(nodes == sorted(nodes) for nodes in grouped.values())
