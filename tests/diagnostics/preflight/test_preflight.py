"""What `kerf check` finds in facts of clusters and nodes: one fact is changed, one result follows."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import pytest

from kerf_dra.api.model.devices import DeviceTaintSelector
from kerf_dra.driver.controller.structured.placement_verdict import PlacementFacts, judge_placement
from kerf_dra.driver.diagnostics.preflight.cluster import (
    CLASSIC_KINDS,
    ClusterFacts,
    check_cluster,
    parse_feature_gates,
)
from kerf_dra.driver.diagnostics.preflight.node import HookFacts, NodeFacts, UnlistedCardFacts, check_node
from kerf_dra.driver.diagnostics.preflight.permissions import AccountReview, Permission
from kerf_dra.driver.diagnostics.preflight.results import CheckLevel, CheckResult, PreflightReport, Unread
from tests.diagnostics.preflight.facts import (
    CARD,
    CLUSTER,
    FOLDER,
    GPU,
    HARDWARE,
    NEEDED,
    NODE,
    SERVER,
    claim,
    controller_pod,
    definition,
    device_class,
    node,
    offering_class,
    placed_class,
    publish_many,
    published,
    reclaimer_pod,
    taint_rule,
    with_card,
)

FORBIDDEN = Unread(reason="GET /x: 403 no")


def complaints(report: PreflightReport) -> list[CheckResult]:
    return [result for result in report.results if result.level is not CheckLevel.OK]


def test_a_cluster_and_a_node_where_nothing_is_wrong_have_no_complaint() -> None:
    assert not complaints(check_cluster(CLUSTER))
    assert not complaints(check_node(NODE))
    assert check_cluster(CLUSTER).worst is check_node(NODE).worst is CheckLevel.OK


@pytest.mark.parametrize(
    ("denied", "is_running", "level", "said"),
    [
        (NEEDED, False, CheckLevel.OK, "there is no reclaimer: `kerf drain` withholds cards, and no pod is evicted"),
        ((), False, CheckLevel.WARNING, "may evict pods, and no pod runs with it"),
        (NEEDED[:1], False, CheckLevel.WARNING, "may evict pods, and no pod runs with it"),
        ((), True, CheckLevel.OK, "kerf-reclaimer-1 may do all that it needs (2 permissions)"),
        (NEEDED[:1], True, CheckLevel.PROBLEM, "kerf-system/kerf-reclaimer may not get nodes"),
        (NEEDED, True, CheckLevel.PROBLEM, "kerf-system/kerf-reclaimer may do nothing of what it needs"),
    ],
)
def test_the_reclaimer_is_installed_as_a_whole_or_not_at_all(
    denied: Sequence[Permission], is_running: bool, level: CheckLevel, said: str
) -> None:
    review = AccountReview(account="kerf-system/kerf-reclaimer", needed=NEEDED, denied=frozenset(denied))
    pods = (controller_pod("1Gi"), *([reclaimer_pod()] if is_running else []))
    report = check_cluster(replace(CLUSTER, reclaimer=review, pods=pods))
    [found] = [result for result in report.results if result.check == "reclaimer"]
    assert found.level is level
    assert said in found.message
    assert [*complaints(report)] == ([] if level is CheckLevel.OK else [found])


def test_where_drivers_allocate_there_is_nothing_to_say_of_the_reclaimer() -> None:
    report = check_cluster(replace(CLUSTER, reclaimer=None))
    assert "reclaimer" not in [result.check for result in report.results]


@pytest.mark.parametrize(
    "expression",
    [
        'device.attributes["nic.example.com"].brand == "Nvidia"',
        f'device.attributes["{GPU}"].model == "brand"',
        f'device.capacity["{GPU}"].memory.isGreaterThan(quantity("1Gi"))',
        f'device.attributes["{GPU}"].tile == 1',  # of another driver's
    ],
)
def test_a_class_that_reads_no_retired_attribute_of_a_driver_is_no_complaint(expression: str) -> None:
    assert not complaints(check_cluster(replace(CLUSTER, device_classes=(device_class("new", expression),))))


def test_a_claim_that_has_its_devices_is_no_complaint_whatever_it_reads() -> None:
    held = claim("holds", f'device.attributes["{GPU}"].brand == "Nvidia"', is_allocated=True)
    assert not complaints(check_cluster(replace(CLUSTER, claims=(held,))))


def test_a_resource_that_all_its_nodes_list_is_no_complaint_and_is_named() -> None:
    nodes = (node("one", allocatable={"kerf.dev/small": "2"}), node("other", allocatable={"kerf.dev/small": "3"}))
    report = check_cluster(replace(CLUSTER, classes=(offering_class(),), nodes=nodes))
    assert not complaints(report)
    [said] = [result.message for result in report.results if result.check == "extended-resources"]
    assert said == "one, other list kerf.dev/small, at least 2 each"


def test_where_drivers_allocate_no_resource_is_offered() -> None:
    report = check_cluster(replace(CLUSTER, **{**OLD, "classes": (offering_class(),), "slices": ()}))
    [said] = [result.message for result in report.results if result.check == "extended-resources"]
    assert said.endswith("drivers allocate in this cluster (classic DRA)")


@pytest.mark.parametrize(
    ("asked", "status", "expected"),
    [
        ("Packed", "True", "ResourceClass small asks for placement: Packed: it is so"),
        ("Spread", "True", "ResourceClass small asks for placement: Spread: it is so"),
        ("None", "True", "no ResourceClass asks for nodes to be preferred (placement: Packed or Spread)"),
        (None, "", "no ResourceClass asks for nodes to be preferred (placement: Packed or Spread)"),
        ("packed", "", "no ResourceClass asks for nodes to be preferred (placement: Packed or Spread)"),
    ],
)
def test_a_placement_that_is_in_effect_or_that_no_class_asks_for_is_no_complaint(
    asked: str | None, status: str, expected: str
) -> None:
    report = check_cluster(replace(CLUSTER, classes=(placed_class(asked, status),)))
    assert not complaints(report)
    assert [result.message for result in report.results if result.check == "class-placements"] == [expected]


def test_a_graded_class_is_no_complaint() -> None:
    verdict = judge_placement("Packed", PlacementFacts(is_grading_enabled=True, has_label=True))
    assert verdict is not None
    report = check_cluster(replace(CLUSTER, classes=(placed_class("Packed", verdict.status, verdict.message),)))
    assert not complaints(report)
    [said] = [result.message for result in report.results if result.check == "class-placements"]
    assert said.endswith(
        "requests of the class have alternatives, of which the scheduler prefers those that break least"
    )


def test_where_drivers_allocate_no_placement_has_an_effect() -> None:
    report = check_cluster(replace(CLUSTER, **{**OLD, "classes": (placed_class("Packed"),), "slices": ()}))
    [said] = [result.message for result in complaints(report) if result.check == "class-placements"]
    assert said.endswith("which has no effect where drivers allocate (classic DRA)")


OLD: dict[str, Any] = {
    "kubernetes": (1, 30),
    "release": "v1.30.0",
    "served": frozenset({"v1alpha2"}),
    "is_classic": True,
}
ALPHA = {"kubernetes": (1, 34), "release": "v1.34.4"}

CLUSTERS: Sequence[tuple[dict[str, Any], str]] = [
    ({"kubernetes": (1, 26), "release": "v1.26.3"}, "problem version: the API server is v1.26.3"),
    ({"served": frozenset()}, "problem dra-api: the API server serves no version"),
    ({"gates": {"DynamicResourceAllocation": False}}, "problem feature-gates: DynamicResourceAllocation is off"),
    ({"gates": {"DRAPartitionableDevices": False}}, "warning feature-gates: DRAPartitionableDevices is off: cards are"),
    ({"gates": FORBIDDEN}, "warning feature-gates: the feature gates cannot be read (GET /x: 403 no)"),
    (
        {"gates": {}, "kubernetes": (1, 32), "release": "v1.32.2"},
        "warning feature-gates: v1.32.2 does not have DRAPartitionableDevices",
    ),
    ({**ALPHA, "gates": {}}, "warning feature-gates: DRAConsumableCapacity is off"),
    ({"classes": FORBIDDEN}, "warning extended-resources: ResourceClasses cannot be read: GET /x"),
    (
        {"classes": (offering_class(),)},
        "warning extended-resources: ResourceClass small wants 2 of kerf.dev/small on each of its nodes: no node lists",
    ),
    (
        {
            "classes": (offering_class(),),
            "nodes": (
                node("full", allocatable={"kerf.dev/small": "2"}),
                node("half", allocatable={"kerf.dev/small": "1"}),
                node("none"),
            ),
        },
        "warning extended-resources: ResourceClass small wants 2 of kerf.dev/small on each of its nodes: only full",
    ),
    (
        {"classes": (offering_class(refusal="the name is taken"),)},
        "warning extended-resources: no node offers kerf.dev/small of ResourceClass small: the name is taken",
    ),
    ({"definitions": FORBIDDEN}, "warning definitions: CustomResourceDefinitions cannot be read: GET /x"),
    (
        {"classes": (placed_class("None", "True"), placed_class("Packed", "False", "not in effect: why"))},
        "warning class-placements: ResourceClass small asks for placement: Packed: not in effect: why",
    ),
    (
        {"classes": (placed_class(None), placed_class("Spread", "Unknown", "no scheduler has asked"))},
        "warning class-placements: ResourceClass small asks for placement: Spread: no scheduler has asked",
    ),
    (
        {"classes": (placed_class("Packed"),)},
        "warning class-placements: ResourceClass small asks for placement: Packed, and the controller has not said",
    ),
    ({"definitions": {"resourceclasses.kerf.dev": None}}, "warning definitions: Kerf's kinds are not installed"),
    (
        {"definitions": dict.fromkeys(CLASSIC_KINDS) | {CLASSIC_KINDS[0]: definition("v1alpha1")}},
        "problem definitions: some of Kerf's kinds are not installed: cardmaintenances.kerf.dev, ",
    ),
    (
        {"definitions": {"resourceclasses.kerf.dev": definition("v1alpha0")}},
        "problem definitions: resourceclasses.kerf.dev serves v1alpha0",
    ),
    (
        {"definitions": {"resourceclasses.kerf.dev": definition("v1alpha1", established=False)}},
        "problem definitions: resourceclasses.kerf.dev is not established",
    ),
    ({"reviews": FORBIDDEN}, "warning permissions: what Kerf's accounts may do cannot be read"),
    (
        {"reviews": (AccountReview(account="a/b", needed=NEEDED, denied=frozenset(NEEDED)),)},
        "warning permissions: service account a/b has none of its 2 permissions",
    ),
    (
        {"reviews": (AccountReview(account="a/b", needed=NEEDED, denied=frozenset(NEEDED[:1])),)},
        "problem permissions: service account a/b may not get nodes",
    ),
    ({"reclaimer": FORBIDDEN}, "warning reclaimer: what the reclaimer may do cannot be read"),
    ({"nodes": FORBIDDEN}, "warning container-runtime: nodes cannot be read"),
    ({"nodes": ()}, "warning container-runtime: the cluster has no node"),
    (
        {"nodes": (node(runtime="containerd://1.6.30"),)},
        "problem container-runtime: node-1: containerd://1.6.30 has no",
    ),
    ({"nodes": (node(runtime="containerd://1.7.27"),)}, "warning container-runtime: node-1: containerd://1.7.27 has"),
    ({"nodes": (node(runtime="cri-o://1.22.0"),)}, "problem container-runtime: node-1: cri-o://1.22.0 has no CDI"),
    ({"nodes": (node(runtime="docker://27.0"),)}, "warning container-runtime: node-1: it is not known whether docker"),
    ({"nodes": (node(kubelet="v1.31.2"),)}, "problem kubelet-version: node-1: kubelet v1.31.2 cannot prepare"),
    ({"nodes": (node(kubelet="v1.32.2"),)}, "warning kubelet-version: node-1: kubelet v1.32.2 lets no two plugins"),
    ({"nodes": (node(kubelet="?"),)}, "warning kubelet-version: node-1: '?' is not a version"),
    ({"slices": FORBIDDEN}, "warning other-drivers: ResourceSlices cannot be read"),
    ({"claims": FORBIDDEN}, "warning double-allocation: ResourceClaims cannot be read"),
    (
        {"slices": (CARD, published("gpu.nvidia.com", {"gpu.nvidia.com/uuid": "GPU-1"}))},
        "problem other-drivers: driver gpu.nvidia.com publishes the same cards as Kerf's gpu.kerf.dev on node-1 (such",
    ),
    (
        {"slices": (CARD, published("other.dev", {"pcieBusID": "00000000:65:00.0"}))},
        "problem other-drivers: driver other.dev publishes the same cards as Kerf's gpu.kerf.dev on node-1 (such",
    ),
    (
        {"slices": (CARD, published("gpu.nvidia.com", {"uuid": "GPU-2"}))},
        "warning other-drivers: gpu.nvidia.com and Kerf's gpu.kerf.dev both run on node-1, and publish no card twice",
    ),
    (
        {"slices": (publish_many(0), published("gpu.nvidia.com", {"uuid": "GPU-1"}))},
        "warning other-drivers: gpu.nvidia.com and Kerf's gpu.kerf.dev both run on node-1, and publish no card twice",
    ),
    (
        {"slices": tuple(published(driver, {}) for driver in ("gpu-intel.kerf.dev", "gpu.intel.com"))},
        "warning other-drivers: gpu.intel.com and Kerf's gpu-intel.kerf.dev both run on node-1",
    ),
    (
        {"nodes": (node(allocatable={"nvidia.com/gpu": "8"}),)},
        "warning device-plugins: a device plugin hands out nvidia.com/gpu on node-1",
    ),
    (
        {"nodes": (node(allocatable={"nvidia.com/mig-1g.10gb": "7"}),)},
        "warning device-plugins: a device plugin hands out nvidia.com/mig-1g.10gb on node-1",
    ),
    (
        {"gates": {"DRADeviceTaintRules": True, "DRADeviceTaints": False}},
        "warning feature-gates: DRADeviceTaintRules is on, and DRADeviceTaints, which it needs, is off",
    ),
    (
        {"gates": {"DRADeviceBindingConditions": True, "DRAResourceClaimDeviceStatus": False}},
        "warning feature-gates: DRADeviceBindingConditions is on, and DRAResourceClaimDeviceStatus, which it needs, is",
    ),
    ({"taint_rules": FORBIDDEN}, "warning taint-rules: DeviceTaintRules cannot be read: GET /x"),
    (
        {"taint_rules": (taint_rule("all", None),)},
        "problem taint-rules: DeviceTaintRule all has no selector, which means all devices of all drivers: every pod",
    ),
    (
        {"taint_rules": (taint_rule("all", DeviceTaintSelector()),)},
        "problem taint-rules: DeviceTaintRule all has an empty selector, which means all devices of all drivers: every",
    ),
    (
        {"taint_rules": (taint_rule("all", DeviceTaintSelector(driver="")),)},
        "problem taint-rules: DeviceTaintRule all has an empty selector, which means all devices of all drivers: every",
    ),
    (
        {"taint_rules": (taint_rule("all", None, "NoSchedule"),)},
        "warning taint-rules: DeviceTaintRule all has no selector, which means all devices of all drivers: no claim",
    ),
    (
        {"taint_rules": (taint_rule("gpus", DeviceTaintSelector(driver=GPU)),)},
        f"warning taint-rules: DeviceTaintRule gpus taints all devices of {GPU}: every pod that has one",
    ),
    ({"device_classes": FORBIDDEN}, "warning retired-attributes: DeviceClasses cannot be read: GET /x"),
    (
        {"device_classes": (device_class("old", f'device.attributes["{GPU}"].brand == "Nvidia"'),)},
        f"problem retired-attributes: DeviceClass old read {GPU}/brand, which devices no longer have: pods with such",
    ),
    (
        {"claims": (claim("waits", f'device.capacity["{GPU}"].ofaEngines.isGreaterThan(quantity("0"))'),)},
        f"problem retired-attributes: ResourceClaim default/waits read {GPU}/ofaEngines, which devices no longer have:",
    ),
    ({"pods": FORBIDDEN}, "warning memory: pods of Kerf cannot be read: GET /x"),
    (
        {"pods": (controller_pod("120M"),)},
        "warning memory: the limit of memory of kerf-controller-1 is 120 MB, and the devices of this cluster (1) need",
    ),
    (
        {"pods": (controller_pod("200M"),), "slices": (publish_many(208 * 1000),)},
        "warning memory: the limit of memory of kerf-controller-1 is 200 MB, and the devices of this cluster (208000)",
    ),
    ({"skew_s": None}, "warning clock: the API server's answers have no time"),
    ({"skew_s": -9.0}, "warning clock: the API server's clock is 9 s behind this machine's"),
    ({"skew_s": 75.4}, "problem clock: the API server's clock is 75 s ahead of this machine's"),
    (
        {**OLD, "gates": FORBIDDEN, "nodes": (node(kubelet="v1.30.14"),)},
        "warning kubelet-version: node-1: kubelet v1.30",
    ),
]


@pytest.mark.parametrize(("changes", "complaint"), CLUSTERS, ids=lambda each: each if isinstance(each, str) else "")
def test_what_is_wrong_with_a_cluster_is_said_with_what_to_do(changes: dict[str, Any], complaint: str) -> None:
    found = complaints(check_cluster(replace(CLUSTER, **changes)))
    assert any(f"{one.level} {one.check}: {one.message}".startswith(complaint) for one in found), found
    assert all(one.next_step for one in found)


HARMLESS: Sequence[dict[str, Any]] = [
    {"slices": (CARD, published("gpu.example.com", {"uuid": "GPU-2"}))},
    {"slices": (CARD, published("compute-domain.nvidia.com", {"id": "0"}))},
    {
        "slices": (  # Kerf's counters are in a slice without devices
            publish_many(0),
            published(GPU, {"uuid": "g", "simulated": True}),
            published("gpu.nvidia.com", {"uuid": "GPU-1"}),
        )
    },
    {"slices": (CARD, published("gpu.nvidia.com", {"uuid": "GPU-1"}, "node-2"))},
    {"nodes": (node(allocatable={"nvidia.com/gpu": "0"}),)},
    {"nodes": (node("node-2", allocatable={"nvidia.com/gpu": "8"}), node())},
    {"nodes": (node(runtime="cri-o://1.31.0"),)},
    {"skew_s": 1.0},
    {"taint_rules": (taint_rule("informs", None, "None"),)},
    {"taint_rules": (taint_rule("theirs", DeviceTaintSelector(driver="gpu.example.com")),)},
    {"taint_rules": ()},
    {"pods": (controller_pod(None),)},
    {"pods": ()},
    {"pods": (controller_pod("208M"),), "slices": (publish_many(208 * 1000),)},
    {"gates": {"DRADeviceTaintRules": False, "DRADeviceTaints": True}},
]


@pytest.mark.parametrize("changes", HARMLESS, ids=str)
def test_what_others_do_elsewhere_is_no_complaint(changes: dict[str, Any]) -> None:
    assert not complaints(check_cluster(replace(CLUSTER, **changes)))


def unlisted(*, is_expected: bool) -> UnlistedCardFacts:
    return UnlistedCardFacts(
        description="0000:5e:00.0: nouveau has it", next_step="install the driver", is_expected=is_expected
    )


def test_a_card_that_is_meant_for_a_virtual_machine_is_named_and_no_complaint() -> None:
    hardware = replace(HARDWARE, unlisted=(unlisted(is_expected=True),))
    report = check_node(replace(NODE, hardware=(hardware,)))
    assert not complaints(report)
    assert [result.message for result in report.results if result.check == "unlisted-cards"] == [
        "gpu.kerf.dev does not have the card 0000:5e:00.0: nouveau has it; install the driver"
    ]


def test_a_card_that_is_kept_out_is_named_and_no_complaint() -> None:
    hardware = replace(HARDWARE, cards=(), kept_out=("gpu-0 (GPU-1): GPU-1 is excluded",))
    report = check_node(replace(NODE, hardware=(hardware,)))
    assert not complaints(report)
    assert "gpu.kerf.dev does not publish gpu-0 (GPU-1): GPU-1 is excluded" in [each.message for each in report.results]


NODES: Sequence[tuple[dict[str, Any], str]] = [
    ({"boot_id": FORBIDDEN}, "problem kernel: the boot ID cannot be read"),
    (
        {"folders": (replace(FOLDER, is_writable=False),)},
        "problem folders: /plugins/gpu.kerf.dev (checkpoint) cannot be",
    ),
    ({"long_sockets": ("socket path /x has 120 bytes",)}, "problem folders: socket path /x has 120 bytes"),
    (
        {"folders": (replace(FOLDER, free_bytes=2**20),)},
        "problem disk: /plugins/gpu.kerf.dev (checkpoint) has 1 MiB free",
    ),
    (
        {"folders": (replace(FOLDER, free_bytes=2**24),)},
        "warning disk: /plugins/gpu.kerf.dev (checkpoint) has 16 MiB free",
    ),
    (
        {"folders": (replace(FOLDER, free_files=7),)},
        "warning disk: /plugins/gpu.kerf.dev (checkpoint) has 7 inodes free",
    ),
    (
        {"hooks": HookFacts(path="/hooks", names=("flash",), problems=("others than root may write hook /hooks/fan",))},
        "problem hooks: others than root may write hook /hooks/fan",
    ),
    ({"has_pod_resources": False}, "warning pod-resources: there is no socket /pod-resources/kubelet.sock"),
    (
        {"runtime_config": FORBIDDEN, "api_server": None},
        "warning container-runtime: it is not known whether the runtime",
    ),
    ({"runtime_config": None, "api_server": None}, "warning container-runtime: it is not known whether the runtime"),
    ({"hardware": None}, "warning hardware: no --backend is named"),
    ({"hardware": (replace(HARDWARE, cards=()),)}, "problem hardware: there is no card on this node"),
    (
        {"hardware": (replace(HARDWARE, problems=("NVML is not there",)),)},
        "problem hardware: gpu.kerf.dev, backend nvidia: NVML is not there",
    ),
    (
        {"hardware": (replace(HARDWARE, unlisted=(unlisted(is_expected=False),)),)},
        "warning unlisted-cards: gpu.kerf.dev does not have the card 0000:5e:00.0: nouveau has it",
    ),
    (
        {"hardware": (replace(HARDWARE, unknown=("nvidia=GPU-never",)),)},
        "warning kept-out-cards: nvidia=GPU-never is included or excluded, and there is no such card",
    ),
    (
        {"hardware": with_card(no_partitions="MIG mode is off, and to switch it on takes a reset")},
        "warning partitions: card gpu-0 is available whole only: MIG mode is off",
    ),
    (
        {"hardware": with_card(no_whole="MIG mode is on")},
        "warning partitions: card gpu-0 is available in partitions only",
    ),
    (
        {"hardware": with_card(no_whole="MIG mode is on", no_partitions="migMode is Static")},
        "problem partitions: card gpu-0 is not available at all",
    ),
    ({"hardware": with_card(unhealthy=("lost: Xid 79",))}, "warning health: card gpu-0: lost: Xid 79"),
    (
        {"hardware": with_card(others=("3g.40gb at 0",))},
        "warning held-hardware: card gpu-0: 3g.40gb at 0 is in use outside",
    ),
    ({"api_server": FORBIDDEN}, "warning api-server: the API server was not reached"),
    ({"api_server": replace(SERVER, node=FORBIDDEN)}, "warning node: node node-1 cannot be read"),
    ({"api_server": replace(SERVER, slices=FORBIDDEN)}, "warning other-drivers: ResourceSlices cannot be read"),
    ({"api_server": replace(SERVER, skew_s=100.0)}, "problem clock: the API server's clock is 100 s ahead"),
    (
        {"api_server": replace(SERVER, review=AccountReview(account="", needed=NEEDED, denied=frozenset(NEEDED[1:])))},
        "problem permissions: this account may not get pods",
    ),
    (
        {"api_server": replace(SERVER, node=node(allocatable={"nvidia.com/gpu": "8"}))},
        "problem device-plugins: a device plugin hands out nvidia.com/gpu on this node",
    ),
    (
        {"api_server": replace(SERVER, slices=(CARD, published("gpu.nvidia.com", {"uuid": "GPU-1"})))},
        "problem other-drivers: driver gpu.nvidia.com publishes the same cards",
    ),
    (
        {"api_server": FORBIDDEN, "registered": (GPU, "gpu.nvidia.com")},
        "problem other-drivers: driver gpu.nvidia.com, which hands out the cards of Kerf's gpu.kerf.dev, is registered",
    ),
]


@pytest.mark.parametrize(("changes", "complaint"), NODES, ids=lambda each: each if isinstance(each, str) else "")
def test_what_is_wrong_with_a_node_is_said_with_what_to_do(changes: dict[str, Any], complaint: str) -> None:
    found = complaints(check_node(replace(NODE, **changes)))
    assert any(f"{one.level} {one.check}: {one.message}".startswith(complaint) for one in found), found
    assert all(one.next_step for one in found)


def test_one_of_several_families_may_have_no_card() -> None:
    families = (HARDWARE, replace(HARDWARE, driver="fpga.kerf.dev", cards=()))
    assert not complaints(check_node(replace(NODE, hardware=families)))


def test_simulated_cards_are_nobody_elses() -> None:
    server = replace(SERVER, node=node(allocatable={"nvidia.com/gpu": "8"}))
    facts = replace(NODE, api_server=server, registered=("gpu.nvidia.com",))
    assert complaints(check_node(facts))
    simulated = (replace(HARDWARE, backends=("simulated",)),)
    assert not complaints(check_node(replace(facts, hardware=simulated)))


CRI = {"enable_cdi": True}
CONFIGS: Sequence[tuple[dict[str, Any], str, str]] = [
    ({"plugins": {"io.containerd.grpc.v1.cri": CRI}}, "containerd://1.7.27", "ok"),
    ({"plugins": {"io.containerd.cri.v1.runtime": CRI}}, "", "ok"),
    ({"plugins": {"io.containerd.cri.v1.runtime": {}}}, "containerd://2.0.1", "ok"),
    ({}, "containerd://1.7.27", "warning"),
    ({"plugins": {"io.containerd.grpc.v1.cri": {}}}, "", "warning"),
    ({"plugins": {"io.containerd.grpc.v1.cri": {"enable_cdi": False}}}, "containerd://2.0.1", "problem"),
    ({"plugins": {"io.containerd.grpc.v1.cri": {**CRI, "cdi_spec_dirs": ["/run/cdi"]}}}, "containerd://1.7.27", "ok"),
    ({"plugins": {"io.containerd.grpc.v1.cri": {**CRI, "cdi_spec_dirs": ["/opt"]}}}, "containerd://1.7.27", "problem"),
]


@pytest.mark.parametrize(("document", "version", "level"), CONFIGS, ids=str)
def test_containerd_is_judged_by_its_configuration(document: dict[str, Any], version: str, level: str) -> None:
    server = replace(SERVER, node=node(runtime=version))
    report = check_node(replace(NODE, runtime_config=document, api_server=server))
    assert [result.level for result in report.results if result.check == "container-runtime"] == [level]


def test_folders_of_one_file_system_are_one_line_about_its_space() -> None:
    folders = (FOLDER, replace(FOLDER, path="/other"), replace(FOLDER, path="/third", file_system=2))
    report = check_node(replace(NODE, folders=folders))
    assert [one.message.split()[0] for one in report.results if one.check == "disk"] == ["/third", FOLDER.path]


def test_feature_gates_are_read_from_the_metrics_of_an_api_server() -> None:
    text = (
        "# TYPE kubernetes_feature_enabled gauge\n"
        'kubernetes_feature_enabled{name="DRAPartitionableDevices",stage="BETA"} 1\n'
        'kubernetes_feature_enabled{name="DRADerivedAttributes",stage="ALPHA"} 0\n'
        'apiserver_request_total{code="200"} 7\n'
    )
    assert parse_feature_gates(text) == {"DRAPartitionableDevices": True, "DRADerivedAttributes": False}
    assert parse_feature_gates("up 1\n") == Unread(reason="its metrics have none")


def test_facts_of_a_node_without_an_api_server_are_enough() -> None:
    assert check_node(replace(NODE, api_server=None)).subject == "node node-1"


def test_every_fact_is_one_that_some_case_changes() -> None:
    """A fact that no check reads would be read from clusters for nothing."""
    changed = {name for changes, _ in CLUSTERS for name in changes}
    changed_of_node = {name for changes, _ in NODES for name in changes}
    assert {field.name for field in fields(ClusterFacts)} - changed == {"own_drivers", "retired"}
    assert {field.name for field in fields(NodeFacts)} - changed_of_node == {
        "node_name",
        "pod_resources",
        "cdi_dir",
        "runtime_config_path",
    }


def test_a_permission_is_written_as_kubectl_writes_kinds() -> None:
    assert str(Permission("kerf.dev", "resourceclasses/status", "patch")) == "patch resourceclasses/status.kerf.dev"
    assert str(Permission("", "events", "create", "default")) == "create events in namespace default"
    assert GPU in CLUSTER.own_drivers


def test_hooks_that_can_be_run_are_listed() -> None:
    facts = replace(NODE, hooks=HookFacts(path="/hooks", names=("fan", "flash"), problems=()))
    [result] = [each for each in check_node(facts).results if each.check == "hooks"]
    assert result.message == "only root may write /hooks; programs that may be run: fan, flash"
    assert not [each for each in check_node(NODE).results if each.check == "hooks"]
