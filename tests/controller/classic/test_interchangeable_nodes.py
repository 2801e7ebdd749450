"""Interchangeable nodes, grouped by their free units: kept up to date, and the same as computed from scratch."""

from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.api.model.allocations import DeviceAllocationResult, DeviceRequestAllocationResult
from kerf_dra.api.model.classic import ONLY_REQUEST, ClassicAllocation
from kerf_dra.api.model.device_attributes import pool_name
from kerf_dra.driver.controller.classic.allocator import only_node
from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.families.gpu import GPU
from tests.controller.classic.cluster_builder import ClusterBuilder
from tests.controller.classic.hardware import DRIVER, gpu

NODES = ("n1", "n2", "n3")
DEVICES = ("gpu-0-1g-10gb-at-0", "gpu-0-1g-10gb-at-1", "gpu-0")


def allocation(node: str, device: str) -> ClassicAllocation:
    result = DeviceRequestAllocationResult(
        request=ONLY_REQUEST, driver=DRIVER, pool=pool_name(node, "gpu"), device=device
    )
    devices = DeviceAllocationResult(results=(result,))
    return ClassicAllocation(devices=devices, node_selector=only_node(node), drivers=(DRIVER,))


def by_hand(cards: dict[str, int], taken: set[tuple[str, str]]) -> set[tuple[str, ...]]:
    """The nodes that have as many cards, and as much taken of the first."""
    found: dict[object, list[str]] = {}
    for node in sorted(cards):
        devices = frozenset(device for of, device in taken if of == node)
        found.setdefault((cards[node], "all" if "gpu-0" in devices else devices), []).append(node)
    return {tuple(nodes) for nodes in found.values()}


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("take"), st.sampled_from(NODES), st.sampled_from(DEVICES)),
            st.tuples(st.just("free"), st.sampled_from(NODES), st.sampled_from(DEVICES)),
            st.tuples(st.just("cards"), st.sampled_from(NODES), st.integers(1, 2)),
            st.tuples(st.just("gone"), st.sampled_from(NODES), st.just(0)),
            st.tuples(st.just("look"), st.sampled_from(NODES), st.just(0)),
        ),
        max_size=30,
    )
)
def test_nodes_are_grouped_by_what_is_free_of_them(changes: list[tuple[str, str, str | int]]) -> None:
    builder = ClusterBuilder()
    cards: dict[str, int] = {}
    taken: set[tuple[str, str]] = set()
    for what, node, detail in changes:
        match what:
            case "take":
                builder.claim(f"{node}-{detail}", allocation=allocation(node, str(detail)))
                taken.add((node, str(detail)))
            case "free":
                builder.claim(f"{node}-{detail}")
                taken.discard((node, str(detail)))
            case "cards":
                cards[node] = int(detail)
                builder.node(node, *(gpu(node, index) for index in range(cards[node])))
            case "gone" if node in cards:
                del cards[node]
                for family in (GPU, FPGA):
                    builder.remove_inventory(node, family.driver)
            case "look":
                builder.view.nodes_by_signature()
    assert {tuple(nodes) for nodes in builder.view.nodes_by_signature().values()} == by_hand(cards, taken)
