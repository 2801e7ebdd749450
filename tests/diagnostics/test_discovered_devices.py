"""``kerf why`` and ``kerf frag`` of discovered devices: who sees them, who has them, on 1.29 to 1.31 by limits."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kerf_dra.api.core.v1 import (
    CUSTOM_RESOURCE_DEFINITIONS,
    NODE_SETUPS,
    NODES,
    PODS,
    Container,
    Node,
    NodeSetup,
    NodeSetupStatus,
    Pod,
    ResourceRequirements,
)
from kerf_dra.api.kerf.discovery_objects import (
    DISCOVERED_DEVICES,
    DISCOVERY_CONFIGURATIONS,
    DeviceUser,
    DiscoveredDeviceObject,
    DiscoveredDeviceStatus,
    DiscoveryConfigurationObject,
    device_name,
)
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.classic import ClassicClaim, ClassicClaimSpec, ClassicRequest
from kerf_dra.api.model.metadata import Condition, ObjectMeta
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.cli import main
from kerf_dra.driver.controller.structured.discovery.plan import DiscoverySnapshot, plan_discovery
from kerf_dra.driver.diagnostics.anonymization import anonymize
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.cluster_state import ClassicState, ClusterState
from kerf_dra.driver.diagnostics.dump import encode_dump, redact
from kerf_dra.driver.diagnostics.explain.report import Verdict, WhyReport
from kerf_dra.driver.diagnostics.explain.why import explain_claim, explain_pod
from kerf_dra.driver.diagnostics.extended_resources.discovered_devices import find_discovered
from tests.diagnostics.test_collector import cluster as served_cluster
from tests.diagnostics.test_collector import collect
from tests.fakes.cluster_states import allocate_claims, claim, device_class, node, pod, replace, state
from tools.generate import crds

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:click")

NAMES = ("node-1", "node-2", "node-3")
IDS = {device_name("cameras", id_, node=None): id_ for id_ in ("rtsp://10.0.0.7", "rtsp://10.0.0.8")}
FIRST, SECOND = IDS
ANY, THIS = "akri.sh/cameras", f"akri.sh/{FIRST}"


def limited(name: str, resource: str = ANY, amount: int = 1, *, on: str = "") -> Pod:
    made = pod(name, node_name=on)
    container = Container(name="c", resources=ResourceRequirements(limits={resource: Quantity(amount)}))
    return replace(made, spec=replace(made.spec, containers=(container,)))


def configured(**spec: Any) -> DiscoveryConfigurationObject:
    usual = {"discoveryHandler": {"name": "static"}, "capacity": 2, "extendedResourceDomain": "akri.sh"}
    return DiscoveryConfigurationObject(metadata=ObjectMeta(name="cameras"), spec=usual | spec)


def found(name: str, *nodes: str, users: Mapping[str, str] | None = None, **spec: Any) -> DiscoveredDeviceObject:
    """A device that ``nodes`` see; ``users`` have a resource each, by node and number (``node-1/0``)."""
    entered = tuple(
        DeviceUser(node=where.partition("/")[0], resource=resource, id=where)
        for where, resource in (users or {}).items()
    )
    fields = {
        "configurationName": "cameras",
        "deviceID": IDS.get(name, name),
        "shared": True,
        "nodes": [*nodes],
        **spec,
    }
    return DiscoveredDeviceObject(
        metadata=ObjectMeta(name=name), spec=fields, status=DiscoveredDeviceStatus(users=entered)
    )


def discovering(
    now: ClusterState,
    *devices: DiscoveredDeviceObject,
    configuration: DiscoveryConfigurationObject | None = None,
    listed: Mapping[str, Mapping[str, int]] | None = None,
) -> ClusterState:
    """Return ``now`` with these devices; the kubelets of nodes list ``listed``, or more than enough of all."""
    plenty = {ANY: 9, THIS: 9}
    setups = [
        NodeSetup(
            metadata=ObjectMeta(name=name),
            status=NodeSetupStatus(
                allocatable={each: str(n) for each, n in (plenty if listed is None else listed.get(name, {})).items()}
            ),
        )
        for name in NAMES
    ]
    configurations, states = find_discovered([configuration or configured()], devices, setups)
    return replace(now, discovery_configurations=configurations, discovered_devices=states)


def classic(*pods: Pod, **fields: Any) -> ClusterState:
    return ClusterState(kubernetes="1.30", nodes=tuple(map(node, NAMES)), pods=pods, classic=ClassicState(**fields))


def why(now: ClusterState, name: str = "p") -> WhyReport:
    return explain_pod(ClusterIndex(now), ObjectRef("default", name))


def said(report: WhyReport) -> list[tuple[str, str]]:
    return [(cause.code, cause.message) for cause in report.causes]


def full(report: WhyReport) -> list[str]:
    return [cause.message for cause in report.causes if cause.code == "discovered-device-full"]


FULL = (
    found(FIRST, "node-1", "node-2", users={"node-1/0": ANY, "node-2/0": THIS}),
    found(SECOND, "node-2", users={"node-2/1": ANY, "node-2/2": ANY}),
)
HOLDERS = (limited("a", on="node-1"), limited("b", THIS, on="node-2"), limited("c", on="node-2"))


def test_why_says_on_each_node_how_many_use_the_devices_who_and_whose_pod_has_ended() -> None:
    report = why(discovering(classic(limited("p"), *HOLDERS), *FULL))
    assert report.verdict is Verdict.DOES_NOT_FIT
    both = f"1 on node-2 by {THIS} (default/b)"
    assert [cause.code for cause in report.causes] == [*2 * ["discovered-device-full"], "discovered-device-unseen"]
    assert [cause.message for cause in report.causes] == [
        f"on node-1: {ANY}: the pod asks for 1, and {FIRST} has 2 of 2 users: 1 on node-1 by {ANY} (default/a), {both}",
        (
            f"on node-2: {ANY}: the pod asks for 1, and the 2 devices that the node sees have 4 of 4 users: "
            f"1 on node-1 by {ANY} (default/a), 2 on node-2 by {ANY} (default/c, 1 whose pod has ended), {both}"
        ),
        f"on node-3: {ANY}: the node sees none of its 2 devices; seen by node-1, node-2",
    ]
    assert "raise capacity of the DiscoveryConfiguration" in report.causes[0].next_step


def test_many_pods_of_a_node_are_counted_after_the_first_three() -> None:
    device = found(FIRST, "node-1", users={f"node-1/{number}": ANY for number in range(5)}, capacity=5)
    pods = [limited(f"h{number}", on="node-1") for number in range(5)]
    [message] = full(why(discovering(classic(limited("p"), *pods), device)))
    assert message.endswith(f"5 on node-1 by {ANY} (default/h0, default/h1, default/h2, 2 more pods)")


def test_the_report_of_a_pod_with_limits_fits_a_terminal_and_says_nothing_of_claims(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    dump = tmp_path / "dump.json"
    dump.write_bytes(encode_dump(discovering(classic(limited("p", THIS), *HOLDERS), *FULL)))
    assert main(["why", "pod/p", "--from", str(dump)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines == [
        "pod default/p: it fits on none of 3 nodes",
        "",
        "2 nodes: node-1, node-2",
        "  akri.sh/cameras-3f850a: the pod asks for 1, and cameras-3f850a has 2 of 2",
        "    users: 1 on node-1 by akri.sh/cameras (default/a), 1 on node-2 by",
        "    akri.sh/cameras-3f850a (default/b)",
        "",
        "1 node: node-3",
        "  akri.sh/cameras-3f850a: the node does not see cameras-3f850a; seen by node-1,",
        "    node-2",
        "",
        "what to do",
        "  -> wait until a pod that has one ends, whose user is removed some 30 seconds",
        "     later, delete such a pod, or raise capacity of the DiscoveryConfiguration",
        "  -> let the pod run on a node that sees one, or correct the name: kubectl get",
        "     discovereddevices lists them with their nodes; if none sees it, read the",
        "     log of the plugin on one that should",
        "",
        "CPU and memory are not judged: it is unknown what nodes have and pods request",
    ]


@pytest.mark.parametrize(
    ("waiting", "unique", "fits"),
    [
        (limited("p"), True, ("node-1", "node-2")),
        (limited("p", amount=2), True, ("node-2",)),
        (limited("p", amount=3), True, ()),
        (limited("p", amount=3), False, ("node-2",)),
        (limited("p", amount=4), False, ()),
        (limited("p", THIS), True, ("node-1", "node-2")),
        (limited("p", THIS, amount=2), True, ()),
    ],
    ids=["one", "two different", "three different", "three", "four", "this one", "this one twice"],
)
def test_a_pod_fits_where_so_many_users_are_left_as_the_kubelet_may_give(
    waiting: Pod, unique: bool, fits: tuple[str, ...]
) -> None:
    devices = (found(FIRST, "node-1", "node-2", users={"node-3/0": THIS}), found(SECOND, "node-2"))
    report = why(discovering(classic(waiting), *devices, configuration=configured(uniqueDevices=unique)))
    assert report.fitting_nodes == fits


def test_a_device_with_more_users_than_its_lowered_capacity_has_none_left() -> None:
    device = found(FIRST, "node-1", users={"node-1/0": THIS, "node-1/1": THIS}, capacity=1)
    [message] = full(why(discovering(classic(limited("p")), device)))
    assert f"{FIRST} has 2 of 1 users" in message


def test_what_a_kubelet_does_not_list_cannot_be_had_though_it_is_left() -> None:
    device = found(FIRST, "node-1", "node-2", users={"node-1/0": THIS})
    pods = limited("p", THIS), limited("a", THIS, on="node-1")
    report = why(discovering(classic(*pods), device, listed={"node-1": {THIS: 1}}))
    assert said(report)[:2] == [
        (
            "discovered-device-unlisted",
            f"on node-1: {THIS}: the pod asks for 1 of 1 left, but the node's kubelet lists 1, of which pods have 1",
        ),
        (
            "discovered-device-unlisted",
            f"on node-2: {THIS}: the pod asks for 1 of 1 left, but the node's kubelet lists none",
        ),
    ]
    assert "devicePlugin: true" in report.causes[0].next_step


@pytest.mark.parametrize(
    ("resource", "devices", "message"),
    [
        (ANY, (), "no node has found a device of DiscoveryConfiguration cameras"),
        (ANY, (found(FIRST),), f"the node does not see {FIRST}, nor does another node"),
        (ANY, (found(FIRST), found(SECOND)), "the node sees none of its 2 devices, nor does another node"),
        ("akri.sh/cameras-000000", (), "there is no DiscoveredDevice cameras-000000"),
        (THIS, (found(FIRST, capacity=-1),), f"DiscoveredDevice {FIRST} is invalid"),
    ],
    ids=["nothing found", "offline", "all offline", "gone", "invalid"],
)
def test_why_says_why_no_node_has_a_device(
    resource: str, devices: tuple[DiscoveredDeviceObject, ...], message: str
) -> None:
    report = why(discovering(classic(limited("p", resource)), *devices))
    assert said(report) == [("discovered-device-unseen", f"on node-1, node-2, node-3: {resource}: {message}")]


def test_a_pod_for_which_all_is_there_waits_for_the_scheduler() -> None:
    now = discovering(classic(limited("p")), found(FIRST, "node-2"))
    report = why(now)
    assert (report.verdict, report.fitting_nodes) == (Verdict.FITS, ("node-2",))
    assert report.causes[0].message == "what its limits ask for is there on node-2: it is not bound yet"
    bound = why(discovering(classic(limited("p", on="node-2")), found(FIRST, "node-2")))
    assert bound.causes[0].message == (
        "no fault is found: node node-2 is ready, and its kubelet gives containers what their limits ask for"
    )


def test_a_pod_with_a_claim_and_limits_is_told_of_both() -> None:
    asking = limited("p")
    asking = replace(asking, spec=replace(pod("p", "c").spec, containers=asking.spec.containers))
    made = ClassicClaim(
        metadata=ObjectMeta(name="c", namespace="default"),
        spec=ClassicClaimSpec(requests=(ClassicRequest(class_name="gpu"),)),
    )
    report = why(discovering(classic(asking, claims=(made,)), found(FIRST)))
    assert [code for code, _ in said(report)] == ["class-missing", "discovered-device-unseen"]
    fitting = why(discovering(classic(asking, claims=(made,)), found(FIRST, "node-1")))
    assert [code for code, _ in said(fitting)] == ["class-missing"]


@pytest.mark.parametrize(
    ("domain", "step"),
    [
        ("akri.sh", "have the pod ask for it by limits: akri.sh/cameras"),
        (None, "set extendedResourceDomain of its DiscoveryConfiguration"),
    ],
)
def test_a_claim_before_1_32_is_told_to_use_limits(domain: str | None, step: str) -> None:
    spec = {} if domain else {"extendedResourceDomain": None}
    made = ClassicClaim(
        metadata=ObjectMeta(name="c", namespace="default"),
        spec=ClassicClaimSpec(requests=(ClassicRequest(class_name="cameras.shared.kerf.dev"),)),
    )
    now = discovering(classic(claims=(made,)), found(FIRST, "node-1"), configuration=configured(**spec))
    [cause] = explain_claim(ClusterIndex(now), ObjectRef("default", "c")).causes
    assert cause.code == "class-missing"
    assert "claims cannot have discovered devices before Kubernetes 1.32" in cause.message
    assert cause.next_step.startswith(step)


def structured(
    *devices: DiscoveredDeviceObject, class_name: str = "cameras.shared.kerf.dev", **spec: Any
) -> ClusterState:
    """A cluster of 1.37 on which nothing is published, with a pod that waits for a claim of the class."""
    now = state(
        *map(node, NAMES),
        published=(),
        claims=(claim("p", class_name),),
        pods=(pod("p", "p"),),
        classes=(device_class(class_name, 'device.driver == "shared.kerf.dev"'),),
    )
    return discovering(now, *devices, configuration=configured(**spec))


@pytest.mark.parametrize(
    ("devices", "spec", "message"),
    [
        ((), {}, "no node has found a device of DiscoveryConfiguration cameras"),
        ((found(FIRST),), {}, f"the node does not see {FIRST}, nor does another node"),
        ((found(FIRST, *NAMES),), {"capacity": -1}, "DiscoveryConfiguration cameras is invalid"),
    ],
    ids=["nothing found", "offline", "invalid"],
)
def test_a_claim_for_devices_that_no_node_sees_is_told_so(
    devices: tuple[DiscoveredDeviceObject, ...], spec: dict[str, Any], message: str
) -> None:
    assert said(why(structured(*devices, **spec))) == [
        ("discovered-device-unseen", f"on node-1, node-2, node-3: claim default/p, request r0: {message}")
    ]


def test_a_claim_for_a_device_that_is_seen_and_not_published_is_told_the_controllers_reason() -> None:
    device = found(FIRST, *NAMES)
    reason = Condition(type="Published", status="False", reason="NoHostname", message="node-1 has no label")
    device = replace(device, status=replace(device.status, conditions=(reason,)))
    report = why(structured(device, class_name=f"{FIRST}.shared.kerf.dev"))
    [(code, message)] = said(report)
    assert code == "discovered-device-unseen"
    assert message.endswith(f"{FIRST} is not published: node-1 has no label")
    published = replace(device, status=DiscoveredDeviceStatus())
    assert said(why(structured(published)))[0][0] == "no-pool"  # it will be published in a second


@pytest.mark.parametrize(
    ("resource", "code", "message"),
    [
        (ANY, "extended-resource-refused", "DeviceClass cameras.shared.kerf.dev has no extendedResourceName"),
        ("akri.sh/cameras-000000", "discovered-device-unseen", "there is no DiscoveredDevice cameras-000000"),
    ],
    ids=["the server drops the name", "gone"],
)
def test_limits_that_nobody_backs_do_not_count_as_free(resource: str, code: str, message: str) -> None:
    now = replace(structured(found(FIRST, *NAMES)), pods=(limited("p", resource),), claims=())
    report = why(now)
    assert report.verdict is Verdict.BLOCKED
    [cause] = report.causes
    assert cause.code == code
    assert message in cause.message
    kept = tuple(replace(each, spec=replace(each.spec, extended_resource_name=resource)) for each in now.classes)
    assert why(replace(now, classes=kept)).verdict is not Verdict.BLOCKED


def published(*claims: str) -> ClusterState:
    """A cluster of 1.37 where two nodes see a device of capacity 2, with claims that have it."""
    hosts = {name: name for name in NAMES}
    configuration, device = configured(), found(FIRST, "node-1", "node-2")
    device = replace(device, metadata=replace(device.metadata, uid="d"))
    snapshot = DiscoverySnapshot(configurations=(configuration,), devices=(device,), hostnames=hosts)
    plan = plan_discovery(snapshot, datetime(2026, 11, 21, tzinfo=UTC))
    nodes = [node(name, labels={"kubernetes.io/hostname": name}) for name in NAMES]
    now = state(*nodes, published=plan.slices.values(), classes=plan.classes.values())
    return discovering(allocate_claims(now, *(claim(name, "cameras.shared.kerf.dev") for name in claims)), device)


def test_who_has_a_device_that_several_nodes_reach_is_told_once() -> None:
    now = published("a", "b")
    report = why(replace(now, claims=(*now.claims, claim("p", "cameras.shared.kerf.dev")), pods=(pod("p", "p"),)))
    [reached, other] = report.groups
    assert [(one.node, one.claims) for one in reached.in_the_way] == [("", ("default/a", "default/b"))]
    assert [reason.obstacle for reason in other.reasons] == ["discovered-device-unseen"]


def test_frag_says_how_many_users_a_device_has_and_of_which_nodes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    dump = tmp_path / "dump.json"
    dump.write_bytes(encode_dump(published("a")))
    table = [
        "DRIVER           POOL            WHOLE DEVICES  IN USE  CAPACITY IN USE",
        f"shared.kerf.dev  {FIRST}  1              1       1 of 2 users",
        "",
        f"shared.kerf.dev {FIRST}  [ A ]  A = default/a (shared)",
    ]
    for nodes, lines in {"node-*": table, "node-2,node-3": table, "node-3": ["no card is published"]}.items():
        assert main(["frag", "--nodes", nodes, "--from", str(dump)]) == 0
        assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == lines


def test_an_anonymized_state_leads_to_the_same_codes() -> None:
    for now in (discovering(classic(limited("p"), *HOLDERS), *FULL), structured(found(FIRST))):
        hidden, meanings = anonymize(redact(now))
        names = {text: pseudonym for pseudonym, text in meanings.items()}
        report = explain_pod(ClusterIndex(hidden), ObjectRef(names.get("default", "default"), names.get("p", "p")))
        assert [code for code, _ in said(report)] == [code for code, _ in said(why(now))]
        assert not {"cameras", "3f850a"} & {*str(report).replace("/", " ").replace("-", " ").split()}


async def test_a_cluster_of_1_30_is_collected_with_devices_their_users_and_the_pods_that_ask_for_them(
    tmp_path: Path,
) -> None:
    async with served_cluster(tmp_path, kubernetes=(1, 30), resource_versions=("v1alpha2",)) as (_, client):
        for crd in crds.documents():
            await client.apply(CUSTOM_RESOURCE_DEFINITIONS, crd, field_manager="admin")
        await client.create(NODES, Node(metadata=ObjectMeta(name="node-1")))
        setup = NodeSetup(metadata=ObjectMeta(name="node-1"), status=NodeSetupStatus(allocatable={ANY: "2"}))
        await client.apply(NODE_SETUPS, NODE_SETUPS.encode(setup), field_manager="kubelet", subresource="status")
        for name, resource in (("p", ANY), ("other", "akri.sh/gpu")):
            container = {"name": "c", "image": "x", "resources": {"limits": {resource: "1"}}}
            metadata: JsonObject = {"name": name, "namespace": "default"}
            value: JsonObject = {"metadata": metadata, "spec": {"containers": [container]}}
            await client.apply(PODS, value, field_manager="test")
        assert (await collect(client)).pods == ()
        await client.create(DISCOVERY_CONFIGURATIONS, configured())
        device = found(FIRST, "node-1", users={"node-1/0": ANY}, properties={"PASSWORD": "secret"})
        await client.create(DISCOVERED_DEVICES, device)
        encoded = DISCOVERED_DEVICES.encode(device)
        await client.apply(DISCOVERED_DEVICES, encoded, field_manager="plugin", subresource="status")
        now = await collect(client)
    assert [each.metadata.name for each in now.pods] == ["p"]
    [configuration], [held] = now.discovery_configurations, now.discovered_devices
    assert (configuration.resource, configuration.allocatable) == (ANY, {"node-1": 2})
    assert (held.resource, held.nodes, held.capacity) == (THIS, ("node-1",), 2)
    assert [(user.node, user.resource) for user in held.users] == [("node-1", ANY)]
    assert "secret" not in str(now)
