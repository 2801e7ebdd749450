"""What packing all claims would gain: more of the waiting pods, or more large partitions that are free."""

from collections.abc import Iterator

import pytest
from click import unstyle

from kerf_dra.api.core.v1 import PodSchedulingGate
from kerf_dra.driver.cli.cluster.frag import _lines
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.frag import FragmentationReport, measure_fragmentation
from tests.fakes.cluster_states import allocate_claims, claim, gpu_cluster, placed_pod, pod, replace


def spread(nodes: int = 3, profile: str = "1g-10gb", **spec: object) -> ClusterState:
    """Nodes with one H100 each, of which a pod holds one device each."""
    now = gpu_cluster(nodes)
    for number in range(1, nodes + 1):
        now = allocate_claims(now, claim(f"c{number}", profile), on=f"node-{number}")
    pods = (placed_pod(f"c{number}", f"c{number}", on=f"node-{number}") for number in range(1, nodes + 1))
    return replace(now, pods=tuple(replace(each, spec=replace(each.spec, **spec)) for each in pods))


def with_waiting(now: ClusterState, *profiles: str, **spec: object) -> ClusterState:
    names = [f"w{number}" for number in range(len(profiles))]
    claims = tuple(claim(name, profile) for name, profile in zip(names, profiles, strict=True))
    pods = tuple(pod(name, name, **spec) for name in names)  # type: ignore[arg-type]
    return replace(now, claims=(*now.claims, *claims), pods=(*now.pods, *pods))


def measure(now: ClusterState) -> FragmentationReport:
    return measure_fragmentation(ClusterIndex(now))


def said(now: ClusterState) -> str:
    lines = unstyle("\n".join(_lines(ClusterIndex(now), measure(now), 99))).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("packed"))
    return " ".join(line.strip() for line in _paragraph(lines[start:]))


def _paragraph(lines: list[str]) -> Iterator[str]:
    yield lines[0]
    for line in lines[1:]:
        if not line.startswith("  "):
            return
        yield line


def test_pods_that_wait_because_others_are_on_all_nodes_would_fit_if_those_were_packed() -> None:
    now = with_waiting(spread(), "7g-80gb", "7g-80gb", "7g-80gb")
    report = measure(now)
    assert report.packing is not None
    assert (report.packing.as_now, report.packing.packed, report.packing.units) == (3, 19, 24)
    assert (report.packing.waiting, report.packing.fit_now, report.packing.fit_packed) == (3, 0, 2)
    assert said(now) == "packed, 16 more of 24 units would be in use: 2 more waiting pods would fit"


def test_a_pod_that_waits_and_fits_as_it_is_is_no_gain() -> None:
    now = with_waiting(spread(1), "3g-40gb")
    report = measure(now)
    assert report.packing is not None
    assert (report.packing.fit_now, report.packing.as_now) == (report.packing.fit_packed, report.packing.packed)
    assert "nothing more would fit" in said(now)


def test_where_nothing_waits_the_large_partitions_count_that_would_be_free() -> None:
    now = spread()
    report = measure(now)
    gains = {each.size: (each.as_now, each.packed) for each in report.packed_sizes}
    assert gains["7g.80gb"] == gains["whole"] == (0, 2)
    assert said(now).startswith(
        "packed, more would be free: 2 whole of h100-80gb-sxm instead of 0, 2 7g.80gb of h100-80gb-sxm instead of 0"
    )


def test_claims_that_are_packed_already_gain_nothing() -> None:
    now = allocate_claims(gpu_cluster(2), claim("a", "4g-40gb"), claim("b", "3g-40gb"))
    report = measure(now)
    assert report.packed_sizes == ()
    assert said(now) == "packed in the order of publication, nothing more would fit"


def test_a_pod_that_may_run_on_its_node_only_is_packed_there() -> None:
    """Each pod selects a label that no node has any more: it may stay where it is."""
    now = spread(node_selector={"gone": "yes"})
    report = measure(now)
    assert report.packed_sizes == ()


@pytest.mark.parametrize(
    "spec", [{"node_name": "node-1"}, {"scheduling_gates": (PodSchedulingGate(name="example.com/later"),)}]
)
def test_pods_that_no_scheduler_places_do_not_wait(spec: dict[str, object]) -> None:
    now = with_waiting(spread(), "7g-80gb", **spec)
    report = measure(now)
    assert report.packing is not None
    assert report.packing.waiting == 0


def test_nothing_is_said_of_idle_cards_of_some_nodes_and_of_clusters_that_are_too_large_to_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert measure(gpu_cluster(2)).packing is None
    assert measure_fragmentation(ClusterIndex(spread()), nodes=["node-1"]).packing is None
    monkeypatch.setattr("kerf_dra.driver.diagnostics.placement.packed_cluster._MOST_STEPS", 8)
    assert measure(spread()).packing is None
