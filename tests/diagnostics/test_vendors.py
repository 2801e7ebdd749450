"""``kerf why`` and ``kerf frag`` on the slices of other vendors' drivers: no driver's name is special."""

from pathlib import Path

import pytest

from kerf_dra.api.model.claims import DeviceConstraint
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.cli import main
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.dump import encode_dump, redact
from kerf_dra.driver.diagnostics.explain.report import Verdict, WhyReport
from kerf_dra.driver.diagnostics.explain.why import explain_pod
from kerf_dra.driver.diagnostics.frag import measure_fragmentation
from tests.diagnostics.vendor_slices import (
    CLASSES,
    DRANET,
    INTEL,
    NVIDIA,
    dranet_slices,
    intel_slices,
    nvidia_slices,
)
from tests.fakes.cluster_states import (
    allocate_claims,
    claim,
    gpu_cluster,
    node,
    placed_pod,
    pod,
    prepare_failure,
    replace,
    request,
    state,
)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:click")

MIG = f"device.attributes['{NVIDIA}']"


def profile(name: str) -> str:
    return f"{MIG}.profile == '{name}'"


def vendors(nodes: int = 1) -> ClusterState:
    """Return a cluster whose nodes have NVIDIA's and Intel's GPUs and dranet's interfaces."""
    names = [f"node-{number}" for number in range(1, nodes + 1)]
    published = [each for name in names for each in (*nvidia_slices(name), *intel_slices(name), *dranet_slices(name))]
    return state(*map(node, names), published=published, classes=CLASSES)


def explain(now: ClusterState, *wanted: object, **more: object) -> WhyReport:
    one = claim("wanted", *wanted, **more)  # type: ignore[arg-type]
    now = replace(now, claims=(*now.claims, one), pods=(*now.pods, pod("p", "wanted")))
    return explain_pod(ClusterIndex(now), ObjectRef("default", "p"))


def test_a_card_of_nvidia_that_is_full_is_told_with_its_counters_and_holders() -> None:
    now = allocate_claims(vendors(), claim("a", request("gpu", "mig.nvidia.com", profile("3g.40gb"))))
    answer = explain(now, request("gpu", "gpu.nvidia.com"))
    assert answer.verdict is Verdict.DOES_NOT_FIT
    assert [cause.code for cause in answer.causes] == ["counters"]
    [blocked] = answer.groups[0].in_the_way
    assert (blocked.pool, blocked.card, blocked.claims) == (
        f"{NVIDIA}/node-1",
        "gpu-0-counter-set",
        ("default/a",),
    )
    assert {"memory", "multiprocessors", "memory-slice-0", "memory-slice-3"} <= set(blocked.counters)
    assert "memory-slice-4" not in blocked.counters
    assert answer.causes[0].next_step == "wait until default/a on node-1 ends, or delete its pod; or add a node"


def test_the_nearest_miss_of_a_selector_over_nvidias_attributes_is_told() -> None:
    answer = explain(vendors(), request("gpu", "mig.nvidia.com", profile("4g.40gb")))
    [reason] = answer.groups[0].reasons
    assert reason.obstacle == "selector"
    assert reason.near_misses[0].unmet[0].has.keys() == {"profile"}


def test_intels_ill_gpu_is_told_with_its_taint_once_the_other_is_taken() -> None:
    now = allocate_claims(vendors(), claim("a", "gpu.intel.com"))
    answer = explain(now, "gpu.intel.com")
    [reason] = answer.groups[0].reasons
    assert (reason.obstacle, reason.taints) == ("tainted", ("gpu.intel.com/unhealthy=memory:NoExecute",))
    assert "add a toleration" in answer.causes[0].next_step


def test_capacities_of_intels_gpus_are_known() -> None:
    large = f"device.capacity['{INTEL}'].memory.isGreaterThan(quantity('20Gi'))"
    answer = explain(vendors(), request("gpu", "gpu.intel.com", large))
    [reason] = answer.groups[0].reasons
    assert reason.obstacle == "selector"
    assert reason.near_misses[0].unmet[0].has == {"memory": "16Gi"}


def test_dranets_interfaces_are_told_as_any_device() -> None:
    rdma = f"device.attributes['{DRANET}'].rdma"
    now = allocate_claims(vendors(), claim("a", request("nic", "dranet", rdma)))
    answer = explain(now, request("nic", "dranet", rdma))
    [reason] = answer.groups[0].reasons
    assert (reason.obstacle, reason.message) == ("in-use", "1 device matches, but is in use")


def test_a_constraint_over_two_vendors_is_told() -> None:
    gpu, nic = request("gpu", "gpu.intel.com"), request("nic", "dranet")
    same = DeviceConstraint(match_attribute="resource.kubernetes.io/pcieRoot")
    answer = explain(vendors(), gpu, nic, constraints=[same])
    assert [cause.code for cause in answer.causes] == ["constraint"]


@pytest.mark.parametrize(
    ("class_name", "driver", "message"),
    [
        ("gpu.nvidia.com", NVIDIA, "NodePrepareResources: rpc error: code = DeadlineExceeded desc = deadline exceeded"),
        ("gpu.intel.com", INTEL, "NodePrepareResources failed for claim default/p: could not find device"),
        ("dranet", DRANET, "NodePrepareResources failed for claim default/p: interface eth0 is in use"),
    ],
)
def test_what_any_drivers_plugin_says_is_told(class_name: str, driver: str, message: str) -> None:
    now = allocate_claims(vendors(), claim("p", class_name))
    now = replace(now, pods=(placed_pod("p", "p"),), events=(prepare_failure("p", message),))
    [cause] = explain_pod(ClusterIndex(now), ObjectRef("default", "p")).causes
    assert cause.code == ("prepare-slow" if "Deadline" in message else "prepare-failed")
    assert cause.message.endswith(message)
    without = replace(now, slices=tuple(each for each in now.slices if each.spec.driver != driver))
    [cause] = explain_pod(ClusterIndex(replace(without, events=())), ObjectRef("default", "p")).causes
    assert cause.code == "driver-absent"
    assert cause.message.startswith(f"driver {driver} publishes no device on node-1")


def test_partitions_of_nvidia_that_were_given_twice_are_found_by_their_counters() -> None:
    now = allocate_claims(vendors(), claim("p", request("gpu", "mig.nvidia.com", profile("1g.10gb"))))
    other = allocate_claims(vendors(), claim("q", "gpu.nvidia.com")).claims
    now = replace(now, claims=(*now.claims, *other), pods=(placed_pod("p", "p"),))
    causes = explain_pod(ClusterIndex(now), ObjectRef("default", "p")).causes
    assert causes[0].code == "double-allocation"
    assert "gpu-0-counter-set in pool gpu.nvidia.com/node-1" in causes[0].message


def test_counters_of_any_driver_are_measured_as_cards() -> None:
    now = allocate_claims(
        vendors(2),
        claim("a", request("gpu", "mig.nvidia.com", profile("2g.20gb"))),
        claim("b", request("gpu", "mig.nvidia.com", profile("1g.10gb"))),
        on="node-1",
    )
    answer = measure_fragmentation(ClusterIndex(now))
    assert (answer.cards, answer.unknown_cards) == ((), ())
    card, idle = answer.counter_sets
    assert (card.node, card.driver, card.counter_set) == ("node-1", NVIDIA, "gpu-0-counter-set")
    assert (card.devices, card.in_use, card.claims) == (14, 2, ("default/a", "default/b"))
    [units] = card.units
    assert (units.name, units.first) == ("memory-slice", 0)
    assert units.holders == (("default/a",), ("default/a",), ("default/b",), *((),) * 5)
    assert {each.name: (each.used, each.total) for each in card.counters} == {
        "copy-engines": ("0", "8"),
        "memory": ("29824Mi", "79Gi"),
        "multiprocessors": ("48", "132"),
    }
    assert card.would_fit == 4 + 1 + 1, "at slices 3 to 6, at 4, and at 4"
    assert (idle.in_use, idle.would_fit) == (0, 14)


def test_devices_without_counters_are_counted() -> None:
    now = allocate_claims(vendors(), claim("a", "gpu.intel.com"))
    pools = measure_fragmentation(ClusterIndex(now)).whole_devices
    assert {(each.driver, each.devices, each.in_use) for each in pools} == {(INTEL, 2, 1), (DRANET, 2, 0)}


def test_cards_of_known_geometry_are_not_drawn_twice() -> None:
    answer = measure_fragmentation(ClusterIndex(gpu_cluster()))
    assert len(answer.cards) == 1
    assert (answer.counter_sets, answer.whole_devices) == ((), ())


def test_only_the_nodes_that_are_asked_for_are_measured() -> None:
    answer = measure_fragmentation(ClusterIndex(vendors(3)), nodes=["node-2"])
    assert [each.node for each in answer.counter_sets] == ["node-2"]


def test_frag_draws_the_counters_of_a_card(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    now = allocate_claims(
        vendors(),
        claim("a", request("gpu", "mig.nvidia.com", profile("2g.20gb"))),
        claim("b", request("gpu", "mig.nvidia.com", profile("1g.10gb"))),
    )
    file = tmp_path / "dump.json"
    file.write_bytes(encode_dump(redact(now)))
    assert main(["frag", "--from", str(file)]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[:7] == [
        "node-1  gpu.nvidia.com  gpu-0-counter-set",
        "  2 of 14 devices in use; any one of 6 others would fit",
        "  memory-slice 0-7  [ a a b . . . . . ]     a = default/a  b = default/b",
        "                                            . = free",
        "  copy-engines      [....................]  0 of 8",
        "  memory            [########............]  29824Mi of 79Gi",
        "  multiprocessors   [########............]  48 of 132",
    ]
    assert "no card" not in out
    assert max(map(len, out.splitlines())) <= 80
