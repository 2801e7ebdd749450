"""What classes select, counted as a scheduler would evaluate them."""

import pytest

from kerf_dra.api.model.claims import DeviceClass
from kerf_dra.driver.allocation.semantics.matching import evaluate_selectors, selector_expressions
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.view import class_matches
from kerf_dra.driver.view.class_matches import count_more, find_matches, list_claims_of
from tests.fakes.cluster_states import ATTRIBUTES, CLASSES, device_class, gpu_cluster, replace
from tests.view.clusters import many_nodes, two_nodes

OF_ONE_CARD = device_class("one-card", f'{ATTRIBUTES}.uuid == "GPU-node-1-1"')
OF_A_PREFIX = device_class("prefix", f'{ATTRIBUTES}.uuid.startsWith("GPU-node-2")')
ALL = device_class("all")


@pytest.mark.parametrize("class_", [*CLASSES, OF_ONE_CARD, OF_A_PREFIX, ALL], ids=lambda each: each.metadata.name)
def test_each_published_device_is_judged_by_the_class(class_: DeviceClass) -> None:
    """Nodes whose slices differ in strings only are evaluated once, unless the class reads these strings."""
    now = gpu_cluster(3, 2)
    selectors = selector_expressions(class_.spec.selectors)
    expected: dict[str, int] = {}
    for slice_ in now.slices:
        for device in slice_.spec.devices:
            if evaluate_selectors(slice_.spec.driver, device, selectors) is True:
                node = slice_.spec.node_name or ""
                expected[node] = expected.get(node, 0) + 1
    found = find_matches(ClusterIndex(now), class_)
    assert found.by_node == expected
    assert found.devices == sum(expected.values()) > 0
    assert not found.problem


def test_a_selector_that_fails_is_named() -> None:
    found = find_matches(ClusterIndex(two_nodes()), device_class("faulty", "device.attributes["))
    assert found.devices == 0
    assert "device.attributes[" in found.problem


def test_what_is_too_much_is_not_counted_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_matches, "MOST_EVALUATED", 60)
    assert find_matches(ClusterIndex(many_nodes(60)), ALL).by_node.keys() == {f"node-{n:03}" for n in range(60)}
    found = find_matches(ClusterIndex(gpu_cluster(3, 2)), OF_ONE_CARD)
    assert "not all are counted" in found.problem


def test_what_would_fit_now_is_counted_and_bounded() -> None:
    cluster = ClusterIndex(two_nodes())
    whole, small = (next(each for each in CLASSES if each.metadata.name == name) for name in ("whole", "1g-10gb"))
    for class_, copies in ((whole, 3), (small, 24)):
        headroom = count_more(cluster, class_)
        assert headroom is not None
        assert (headroom.copies, headroom.is_bound) == (copies, False)
    assert count_more(ClusterIndex(replace(two_nodes(), nodes=())), whole).copies == 0  # type: ignore[union-attr]


def test_claims_are_found_by_their_requests() -> None:
    assert [str(each) for each in list_claims_of(ClusterIndex(two_nodes()), "whole")] == ["default/big"]
    assert list_claims_of(ClusterIndex(two_nodes()), "2g-20gb") == []
