"""What pods and claims wait for where drivers' controllers allocate (Kubernetes 1.27 to 1.31)."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kerf_dra.api.core.v1 import ClaimSource, Event, ObjectReference, Pod, PodResourceClaim, PodSpec, PodStatus
from kerf_dra.api.kerf.classic_parameters import ParametersObject
from kerf_dra.api.kerf.node_inventory import InventoryTaints, NodeInventory, NodeInventorySpec
from kerf_dra.api.model.allocations import (
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaimConsumerReference,
)
from kerf_dra.api.model.classic import (
    ClassicAllocation,
    ClassicClaim,
    ClassicClaimSpec,
    ClassicClaimStatus,
    ClassicClass,
    ClassicRequest,
    ClassicTemplate,
    ClassicTemplateSpec,
    ParametersReference,
    PodSchedulingContext,
    PodSchedulingContextSpec,
    PodSchedulingContextStatus,
    UnsuitableNodes,
)
from kerf_dra.api.model.devices import DeviceTaint
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.cli import main
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.cluster_state import ClassicState, ClusterState
from kerf_dra.driver.diagnostics.dump import decode_dump, encode_dump, redact
from kerf_dra.driver.diagnostics.errors import QueryError
from kerf_dra.driver.diagnostics.explain.report import Verdict, WhyReport
from kerf_dra.driver.diagnostics.explain.why import explain_claim, explain_pod
from tests.fakes.cluster_states import REFUSED, node, prepare_failure, replace

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:click")

DRIVER = "gpu.example.com"
USER = ResourceClaimConsumerReference(resource="pods", name="p", uid="uid-p")


def claim(parameters: ParametersReference | None = None, **status: Any) -> ClassicClaim:
    request = ClassicRequest(class_name="gpu", parameters_ref=parameters)
    return ClassicClaim(
        metadata=ObjectMeta(name="c", namespace="default", uid="uid-c"),
        spec=ClassicClaimSpec(requests=(request,)),
        status=ClassicClaimStatus(**status),
    )


def allocated(**status: Any) -> ClassicClaim:
    result = DeviceRequestAllocationResult(request="", driver=DRIVER, pool="node-1/gpu", device="gpu-0")
    allocation = ClassicAllocation(devices=DeviceAllocationResult(results=(result,)), drivers=(DRIVER,))
    fields: dict[str, Any] = {"driver_name": DRIVER, "allocation": allocation, "reserved_for": (USER,)} | status
    return claim(**fields)


def pod(on: str = "", **status: Any) -> Pod:
    entry = PodResourceClaim(name="gpu", source=ClaimSource(resource_claim_name="c"))
    return Pod(
        metadata=ObjectMeta(name="p", namespace="default", uid="uid-p"),
        spec=PodSpec(resource_claims=(entry,), node_name=on),
        status=PodStatus(**status),
    )


def context(
    selected: str = "",
    potential: tuple[str, ...] = (),
    unsuitable: tuple[str, ...] | None = None,
    age: str = "07:59:50",
) -> PodSchedulingContext:
    """Return the negotiation for the pod; ``unsuitable`` None: the driver has not answered."""
    answers = () if unsuitable is None else (UnsuitableNodes(name="gpu", unsuitable_nodes=unsuitable),)
    return PodSchedulingContext(
        metadata=ObjectMeta(name="p", namespace="default", uid="uid-context", creation_timestamp=f"2026-11-21T{age}Z"),
        spec=PodSchedulingContextSpec(selected_node=selected, potential_nodes=potential),
        status=PodSchedulingContextStatus(resource_claims=answers),
    )


def inventory(**spec: Any) -> NodeInventory:
    fields: dict[str, Any] = {
        "driver": DRIVER,
        "node": "node-1",
        "ready": True,
        "renewed_at": "2026-11-21T07:59:30.123456Z",
    } | spec
    return NodeInventory(metadata=ObjectMeta(name="node-1"), spec=NodeInventorySpec(**fields))


def says(message: str, uid: str = "uid-context", at: str = "07:59:55") -> Event:
    return Event(
        involved_object=ObjectReference(kind="Any", namespace="default", name="p", uid=uid),
        reason="Failed",
        message=message,
        last_timestamp=f"2026-11-21T{at}Z",
    )


def cluster(held: ClassicClaim | None = None, its_pod: Pod | None = None, **fields: Any) -> ClusterState:
    """Return a cluster of 1.30 with a pod ``p`` that uses the claim ``c`` of the class ``gpu``."""
    events = fields.pop("events", ())
    classic: dict[str, Any] = {
        "claims": (held or claim(),),
        "classes": (ClassicClass(metadata=ObjectMeta(name="gpu"), driver_name=DRIVER),),
        "inventories": (inventory(),),
    }
    return ClusterState(
        kubernetes="1.30",
        gathered_at="2026-11-21T08:00:00+00:00",
        nodes=(node("node-1"), node("node-2")),
        pods=(its_pod or pod(),),
        events=events,
        classic=ClassicState(**(classic | fields)),
    )


def explain(now: ClusterState) -> WhyReport:
    return explain_pod(ClusterIndex(now), ObjectRef("default", "p"))


PARAMETERS = ParametersReference(api_group="kerf.dev", kind="GpuClaimParameters", name="small")
OTHERS = ParametersReference(api_group="other.io", kind="Params", name="x")
BOTH = ("node-1", "node-2")
WRONG = ParametersObject(metadata=ObjectMeta(name="small", namespace="default"), spec={"profil": "1g.10gb"})
RIGHT = ParametersObject(metadata=ObjectMeta(name="small", namespace="default"), spec={"profile": "1g.10gb"})


@dataclass(frozen=True)
class Case:
    now: Callable[[], ClusterState]
    verdict: Verdict
    code: str
    message: str


CASES = {
    "the claim is not there": Case(
        lambda: cluster(claims=()), Verdict.BLOCKED, "claim-missing", "claim default/c does not exist"
    ),
    "the claim is being deleted": Case(
        lambda: cluster(replace(claim(), metadata=replace(claim().metadata, deletion_timestamp="T"))),
        Verdict.BLOCKED,
        "claim-deleting",
        "claim default/c is being deleted",
    ),
    "the class is not there": Case(
        lambda: cluster(classes=()), Verdict.INVALID, "class-missing", "claim default/c: class gpu does not exist"
    ),
    "the parameters are not there": Case(
        lambda: cluster(claim(PARAMETERS)),
        Verdict.INVALID,
        "parameters-missing",
        "claim default/c: parametersRef: there is no GpuClaimParameters default/small",
    ),
    "the parameters are wrong": Case(
        lambda: cluster(claim(PARAMETERS), parameters={"GpuClaimParameters": (WRONG,)}),
        Verdict.INVALID,
        "parameters-refused",
        'spec.profil: unknown field; did you mean "profile"?',
    ),
    "the scheduler has not begun": Case(
        cluster, Verdict.WAITING, "scheduler", "it has not proposed nodes (PodSchedulingContext)"
    ),
    "the controller has not answered yet": Case(
        lambda: cluster(contexts=(context(potential=BOTH),)),
        Verdict.WAITING,
        "controller-silent",
        "the controller of gpu.example.com has not said which of 2 nodes do not suit, 10 s after the scheduler asked",
    ),
    "the controller is away": Case(
        lambda: cluster(contexts=(context(potential=BOTH, age="07:00:00"),)),
        Verdict.BLOCKED,
        "controller-silent",
        "60 min after the scheduler asked",
    ),
    "the controller is away though a node is selected": Case(
        lambda: cluster(contexts=(context("node-1", BOTH, age="07:00:00"),)),
        Verdict.BLOCKED,
        "controller-silent",
        "the controller of gpu.example.com has not said",
    ),
    "no node suits": Case(
        lambda: cluster(contexts=(context(potential=BOTH, unsuitable=BOTH),), events=(says("nothing is free (2)"),)),
        Verdict.DOES_NOT_FIT,
        "no-suitable-node",
        "none of 2 potential nodes suits, node-1, node-2; the controller of gpu.example.com says: nothing is free (2)",
    ),
    "a node suits": Case(
        lambda: cluster(contexts=(context(potential=BOTH, unsuitable=("node-1",)),)),
        Verdict.WAITING,
        "scheduler",
        "node-2 suits for claim default/c, and no node is selected yet",
    ),
    "a node is selected": Case(
        lambda: cluster(contexts=(context("node-1", BOTH, ()),)),
        Verdict.WAITING,
        "allocation-pending",
        "node node-1 is selected; the controller of gpu.example.com allocates next",
    ),
    "the selected node does not suit": Case(
        lambda: cluster(contexts=(context("node-1", BOTH, ("node-1",)),)),
        Verdict.WAITING,
        "allocation-pending",
        "node node-1 does not suit, and the scheduler selects another",
    ),
    "the controller refuses": Case(
        lambda: cluster(contexts=(context("node-1", BOTH, ()),), events=(says("claim parameters: too many"),)),
        Verdict.BLOCKED,
        "allocation-pending",
        "says: claim parameters: too many",
    ),
    "deallocation for another node": Case(
        lambda: cluster(allocated(reserved_for=(), deallocation_requested=True)),
        Verdict.WAITING,
        "deallocation-requested",
        "(status.deallocationRequested): the controller of gpu.example.com clears its allocation",
    ),
    "deallocation after the last pod": Case(
        lambda: cluster(allocated(deallocation_requested=True)),
        Verdict.WAITING,
        "deallocation-requested",
        "pod p still",
    ),
    "the claim is full": Case(
        lambda: cluster(allocated(reserved_for=(replace(USER, name="q", uid="uid-q"),))),
        Verdict.BLOCKED,
        "claim-full",
        "claim default/c is full: q may use it (status.reservedFor), and its class allows no more",
    ),
    "an allocation that nobody can read": Case(
        lambda: cluster(allocated(allocation=ClassicAllocation(unreadable={DRIVER: "it is not JSON"}))),
        Verdict.INVALID,
        "claim-contradiction",
        "the handle of driver gpu.example.com cannot be read: it is not JSON",
    ),
    "an allocation without hardware": Case(
        lambda: cluster(allocated(), events=(says("it has gpu-9, which NodeInventory n does not have", "uid-c"),)),
        Verdict.INVALID,
        "claim-contradiction",
        "it has gpu-9, which NodeInventory n does not have",
    ),
    "allocated and not bound": Case(
        lambda: cluster(allocated()), Verdict.WAITING, "scheduler", "the pod waits for the scheduler"
    ),
    "the plugin has stopped": Case(
        lambda: cluster(allocated(), pod("node-1"), inventories=(inventory(ready=False),)),
        Verdict.CANNOT_START,
        "driver-absent",
        "NodeInventory node-1 has spec.ready: false: the plugin of gpu.example.com has stopped there",
    ),
    "the plugin is silent": Case(
        lambda: cluster(allocated(), pod("node-1"), inventories=(inventory(renewed_at="2026-11-21T07:50:00Z"),)),
        Verdict.CANNOT_START,
        "driver-absent",
        "has not reported for 10 min (spec.renewedAt)",
    ),
    "the plugin never ran there": Case(
        lambda: cluster(allocated(), pod("node-2")),
        Verdict.CANNOT_START,
        "driver-absent",
        "there is no NodeInventory node-2 of driver gpu.example.com",
    ),
    "the device is tainted": Case(
        lambda: cluster(
            allocated(),
            pod("node-1"),
            inventories=(
                inventory(
                    taints=(InventoryTaints(device="gpu-0", taints=(DeviceTaint(key="ill", effect="NoExecute"),)),)
                ),
            ),
        ),
        Verdict.CANNOT_START,
        "device-tainted",
        "gpu-0 of claim default/c is tainted ill=:NoExecute",
    ),
    "a prepare that fails": Case(
        lambda: cluster(allocated(), pod("node-1"), events=(prepare_failure("p", REFUSED),)),
        Verdict.CANNOT_START,
        "prepare-failed",
        "claim default/c cannot be prepared on node-1: NodePrepareResources failed for ResourceClaim p: Insuff",
    ),
    "nothing is wrong": Case(
        lambda: cluster(allocated(), pod("node-1")), Verdict.STARTING, "preparing", "no fault is found: node node-1"
    ),
    "the pod ends": Case(
        lambda: cluster(
            allocated(),
            replace(pod("node-1"), metadata=replace(pod().metadata, deletion_timestamp="2026-11-21T08:00:10Z")),
        ),
        Verdict.ENDING,
        "unprepare-pending",
        "the kubelet waits for gpu.example.com to release its devices",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_each_state_of_a_negotiation_has_a_code_a_message_and_a_next_step(case: Case) -> None:
    now = case.now()
    answer = explain(now)
    assert answer.verdict is case.verdict
    cause = answer.causes[0]
    assert cause.code == case.code
    assert case.message in cause.message
    assert cause.next_step
    assert explain(decode_dump(encode_dump(redact(now)), "dump.json")) == answer, "a dump says the same"


def test_a_running_pod_waits_for_nothing() -> None:
    answer = explain(cluster(allocated(), pod("node-1", phase="Running")))
    assert (answer.verdict, answer.causes) == (Verdict.HAS_DEVICES, ())
    assert answer.claims[0].devices == (f"{DRIVER}/node-1/gpu/gpu-0",)


def test_a_claim_that_no_container_uses_is_a_warning_until_its_pod_is_deleted() -> None:
    [warning] = explain(cluster(allocated(), pod("node-1", phase="Running"))).warnings
    assert "no container uses claim gpu" in warning
    going = pod("node-1", phase="Running")
    metadata = msgspec.structs.replace(going.metadata, deletion_timestamp="2026-11-21T07:59:00Z")
    assert not explain(cluster(allocated(), msgspec.structs.replace(going, metadata=metadata))).warnings


def test_right_parameters_and_those_of_other_vendors_are_no_cause() -> None:
    for reference in (PARAMETERS, OTHERS):
        now = cluster(claim(reference), parameters={"GpuClaimParameters": (RIGHT,)})
        assert [cause.code for cause in explain(now).causes] == ["scheduler"]


def test_parameters_that_may_not_be_read_are_not_called_missing() -> None:
    now = replace(cluster(claim(PARAMETERS)), forbidden_lists={"gpuclaimparameters": "forbidden"})
    assert [cause.code for cause in explain(now).causes] == ["scheduler"]


def test_opaque_parameters_of_1_31_are_judged_with_their_path() -> None:
    wrong = {"apiVersion": "kerf.dev/v1alpha1", "kind": "GpuClaimParameters", "spec": {"profil": "1g"}}
    request = ClassicRequest(name="r", class_name="gpu", parameters=(wrong,))
    held = replace(claim(), spec=ClassicClaimSpec(requests=(request,), controller=DRIVER))
    [cause] = explain(cluster(held)).causes
    assert cause.code == "parameters-refused"
    assert "spec.devices.config.opaque.parameters.spec.profil: unknown field" in cause.message


def test_what_a_controller_said_long_ago_no_longer_counts() -> None:
    now = cluster(contexts=(context("node-1", BOTH, ()),), events=(says("class gpu does not exist", at="07:30:00"),))
    answer = explain(now)
    assert (answer.verdict, answer.causes[0].is_fault) == (Verdict.WAITING, False)


def test_another_vendors_plugin_is_not_missed_for_want_of_an_inventory() -> None:
    assert explain(cluster(allocated(), pod("node-1"), inventories=())).verdict is Verdict.STARTING


def test_until_1_27_the_name_of_a_claim_follows_from_its_pod() -> None:
    entry = PodResourceClaim(name="gpu", source=ClaimSource(resource_claim_template_name="t"))
    made = replace(pod(), spec=PodSpec(resource_claims=(entry,)))
    held = replace(claim(), metadata=replace(claim().metadata, name="p-gpu"))
    assert [state.name for state in explain(cluster(held, made)).claims] == ["p-gpu"]
    template = ClassicTemplate(
        metadata=ObjectMeta(name="t", namespace="default"), spec=ClassicTemplateSpec(spec=claim().spec)
    )
    for templates, code in (((), "template-missing"), ((template,), "claim-not-created")):
        now = cluster(None, made, claims=(), templates=templates)
        assert [cause.code for cause in explain(now).causes] == [code]


def test_a_claim_is_explained_by_itself() -> None:
    def ask(held: ClassicClaim, *events: Event) -> WhyReport:
        now = replace(cluster(held, events=events), pods=())
        return explain_claim(ClusterIndex(now), ObjectRef("default", "c"))

    assert ask(allocated()).verdict is Verdict.HAS_DEVICES
    assert [cause.code for cause in ask(claim()).causes] == ["no-pod"]
    waited_for = explain_claim(ClusterIndex(cluster(contexts=(context("node-1", BOTH, ()),))), claim().ref)
    assert [cause.code for cause in waited_for.causes] == ["allocation-pending"]
    immediate = replace(claim(), spec=replace(claim().spec, immediate=True))
    refused = ask(immediate, says("no node has free devices for the claim", "uid-c"))
    assert [(cause.code, cause.is_fault) for cause in refused.causes] == [("allocation-pending", True)]
    deleted = replace(allocated(), metadata=replace(claim().metadata, deletion_timestamp="T"))
    assert [cause.code for cause in ask(deleted).causes] == ["claim-in-use"]
    with pytest.raises(QueryError, match="there is no ResourceClaim default/d; there is default/c"):
        explain_claim(ClusterIndex(cluster()), ObjectRef("default", "d"))


def test_nothing_is_said_of_remedies_that_nobody_could_try(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    dump = tmp_path / "dump.json"
    dump.write_bytes(encode_dump(cluster(contexts=(context(potential=BOTH, unsuitable=BOTH),))))
    assert main(["why", "pod/p", "--from", str(dump)]) == 1
    out = capsys.readouterr().out
    assert "its driver reports every node as unsuitable" in out
    assert "if running claims ended" not in out


@pytest.mark.parametrize("arguments", [["frag"], ["plan", "-f", "FILE"]])
def test_plan_and_frag_say_that_they_need_the_schedulers_allocation(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str]
) -> None:
    dump, manifest = tmp_path / "dump.json", tmp_path / "pod.yaml"
    dump.write_bytes(encode_dump(cluster()))
    manifest.write_text("{apiVersion: v1, kind: Pod, metadata: {name: p}}")
    words = [str(manifest) if each == "FILE" else each for each in arguments]
    assert main([*words, "--from", str(dump)]) == 3
    assert "works from Kubernetes 1.32 on: this cluster has 1.30, where each driver's controller allocates" in (
        capsys.readouterr().err
    )
    assert main(["why", "pod/p", "--from", str(dump)]) == 0
