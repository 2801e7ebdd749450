"""Why a pod does not start although its claims have their devices: each cause, its message and its next step."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from kerf_dra.api.core.v1 import (
    ContainerState,
    ContainerStateWaiting,
    ContainerStatus,
    Event,
    NodeStatus,
    PodExtendedResourceClaimStatus,
)
from kerf_dra.api.model.allocations import AllocatedDeviceStatus, DeviceRequestAllocationResult
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.devices import (
    Counter,
    Device,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintSelector,
    DeviceToleration,
)
from kerf_dra.api.model.metadata import Condition, ObjectMeta
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.dump import decode_dump, encode_dump, redact
from kerf_dra.driver.diagnostics.explain.report import CauseCode, Verdict, WhyReport
from kerf_dra.driver.diagnostics.explain.why import explain_claim, explain_pod
from tests.fakes.cluster_states import (
    REFUSED,
    allocate_claims,
    claim,
    gpu_cluster,
    node,
    owned,
    placed_pod,
    pod,
    prepare_failure,
    replace,
    slices,
)

DRIVER = slices("node-1")[0].spec.driver


def placed(nodes: int = 1, **status: Any) -> ClusterState:
    """Return a cluster where the pod ``p`` is on node-1 with the device of its claim ``p``."""
    now = allocate_claims(gpu_cluster(nodes), claim("p", "1g-10gb"), on="node-1")
    return replace(now, pods=(placed_pod("p", "p", **status),))


def explain(now: ClusterState, name: str = "p") -> WhyReport:
    return explain_pod(ClusterIndex(now), ObjectRef("default", name))


def change_results(held: ResourceClaim, **fields: object) -> ResourceClaim:
    """Return the claim with fields of its allocated devices changed."""
    allocation = held.status.allocation
    assert allocation is not None
    results = tuple(replace(each, **fields) for each in allocation.devices.results)
    allocation = replace(allocation, devices=replace(allocation.devices, results=results))
    return replace(held, status=replace(held.status, allocation=allocation))


def result_of(held: ResourceClaim) -> DeviceRequestAllocationResult:
    assert held.status.allocation is not None
    return held.status.allocation.devices.results[0]


def failing(message: str) -> Callable[[], ClusterState]:
    return lambda: replace(placed(), events=(prepare_failure("p", message),))


def not_ready() -> ClusterState:
    condition = Condition(type="Ready", status="Unknown", reason="NodeStatusUnknown", last_transition_time="T")
    return replace(placed(), nodes=(replace(node("node-1"), status=NodeStatus(conditions=(condition,))),))


def tainted_by_plugin(name: str) -> ClusterState:
    """The claim's device has a taint of the driver's own plugin."""
    taint = DeviceTaint(key=f"{DRIVER}/{name}", value="3g.40gb-at-0", effect="NoSchedule")
    now = placed()
    device = result_of(now.claims[0]).device
    tainted = [
        replace(
            each,
            spec=replace(
                each.spec,
                devices=tuple(
                    replace(one, taints=(taint,)) if one.name == device else one for one in each.spec.devices
                ),
            ),
        )
        for each in now.slices
    ]
    return replace(now, slices=tuple(tainted))


def taint_rule(effect: str) -> DeviceTaintRule:
    return DeviceTaintRule(
        metadata=ObjectMeta(name="ill"),
        spec=DeviceTaintRuleSpec(
            device_selector=DeviceTaintSelector(pool="node-1/gpu"),
            taint=DeviceTaint(key="ill", value="ecc", effect=effect, time_added="2026-11-21T07:00:00Z"),
        ),
    )


def device_gone() -> ClusterState:
    """The pool has a newer generation, with another card's devices."""
    newer = [
        replace(
            each, spec=replace(each.spec, pool=replace(each.spec.pool, generation=2), devices=each.spec.devices[:1])
        )
        for each in slices("node-1")
    ]
    now = placed()
    return replace(now, slices=tuple(newer), claims=(change_results(now.claims[0], device="gpu-7"),))


def not_reserved() -> ClusterState:
    now = placed()
    [held] = now.claims
    return replace(now, claims=(replace(held, status=replace(held.status, reserved_for=())),))


@dataclass(frozen=True)
class Case:
    now: Callable[[], ClusterState]
    code: str
    message: str
    step: str


CASES = {
    "the driver refuses": Case(
        failing("NodePrepareResources failed for claim p: nvmlDeviceCreateGpuInstance: Insufficient Resources"),
        "prepare-failed",
        "claim default/p cannot be prepared on node-1: NodePrepareResources failed for claim p: nvmlDevice",
        "kubectl delete pod p -n default",
    ),
    "the driver does not answer in time": Case(
        failing("rpc error: code = DeadlineExceeded desc = context deadline exceeded"),
        "prepare-slow",
        "DeadlineExceeded",
        "the driver goes on meanwhile",
    ),
    "the claim lacks admin access": Case(
        failing(
            "device x/p/gpu-0-monitor only monitors a card that others may use: the claim's request needs adminAccess"
        ),
        "parameters-refused",
        "needs adminAccess",
        "correct the field in the claim's template",
    ),
    "the kubelet does not know the driver": Case(
        failing("DRA driver x.example.com is not registered"),
        "driver-absent",
        "is not registered",
        "start the driver's",
    ),
    "somebody else has the hardware": Case(
        failing("gpu-0: in use outside of Kerf: 3g.40gb at 0"), "hardware-held", "3g.40gb at 0", "end what holds"
    ),
    "the configuration is refused": Case(
        failing("claim default/p: status.allocation.devices.config[0].opaque.parameters.sharing: unknown field"),
        "parameters-refused",
        "opaque.parameters.sharing: unknown field",
        "correct the field in the claim's template or in the class",
    ),
    "the plugin sees two claims": Case(
        failing("two claims for one exclusive device: a is taken by b of claim default/q"),
        "double-allocation",
        "two claims for one exclusive device",
        "run one scheduler only",
    ),
    "the node is gone": Case(
        lambda: replace(placed(), nodes=()), "node-missing", "node node-1 does not exist", "--force --grace-period=0"
    ),
    "the kubelet is silent": Case(
        not_ready, "node-not-ready", "is not ready (NodeStatusUnknown, since T)", "node.kubernetes.io/out-of-service"
    ),
    "the plugin is away": Case(
        lambda: replace(placed(), slices=()),
        "driver-absent",
        f"driver {DRIVER} publishes no device on node-1: its plugin does not run there, and claim default/p",
        "kubectl get pods -A --field-selector spec.nodeName=node-1",
    ),
    "the device is gone": Case(
        device_gone, "device-gone", "claim default/p has gpu-7, which is no longer published: generation 2", "card is"
    ),
    "the device is tainted": Case(
        lambda: replace(placed(), taint_rules=(taint_rule("NoExecute"),)),
        "device-tainted",
        "is tainted ill=ecc:NoExecute since 2026-11-21T07:00:00Z, which the claim does not tolerate",
        "its pod is evicted",
    ),
    "somebody else holds the device": Case(
        lambda: tainted_by_plugin("held"), "device-tainted", "/held=3g.40gb-at-0", "the events of node node-1 name it"
    ),
    "the card is in quarantine": Case(
        lambda: tainted_by_plugin("quarantined"), "device-tainted", "/quarantined", "CardInQuarantine"
    ),
    "the hardware refuses the device": Case(
        lambda: tainted_by_plugin("refused"), "device-tainted", "/refused", "a new pod gets other devices"
    ),
    "the claim is not reserved": Case(
        not_reserved,
        "not-reserved",
        "is reserved for no pod (status.reservedFor)",
        "the controller manager reserves it",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_each_fault_that_keeps_a_pod_from_starting_has_a_code_a_message_and_a_next_step(case: Case) -> None:
    answer = explain(case.now())
    assert answer.verdict is Verdict.CANNOT_START
    cause = answer.causes[0]
    assert (cause.code, cause.is_fault) == (case.code, True)
    assert case.message in cause.message
    assert case.step in cause.next_step


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_dump_without_secrets_tells_the_same_causes(case: Case) -> None:
    now = case.now()
    again = decode_dump(encode_dump(redact(now)), "dump.json")
    assert explain(again).causes == explain(now).causes


def test_a_message_that_is_repeated_is_told_once_with_its_count() -> None:
    refused = prepare_failure("p", REFUSED, count=9)
    answer = explain(replace(placed(), events=(refused, refused)))
    [cause] = answer.causes
    assert f", 9 times in 30 s: {REFUSED}" in cause.message


def test_events_about_an_earlier_pod_of_the_name_do_not_count() -> None:
    event = prepare_failure("p", "old")
    other = replace(event, involved_object=replace(event.involved_object, uid="another"))
    [cause] = explain(replace(placed(), events=(other,))).causes
    assert cause.code == "preparing"


def test_what_the_kubelet_says_completes_what_the_slices_show() -> None:
    now = replace(placed(), slices=(), events=(prepare_failure("p", f"DRA driver {DRIVER} is not registered"),))
    [cause] = explain(now).causes
    assert cause.code == "driver-absent"
    assert "publishes no device on node-1" in cause.message
    assert "is not registered" in cause.message


def test_without_a_fault_the_report_says_what_was_looked_at() -> None:
    answer = explain(placed())
    assert answer.verdict is Verdict.STARTING
    [cause] = answer.causes
    assert (cause.code, cause.is_fault) == ("preparing", False)
    assert f"node node-1 is ready, the plugin of {DRIVER} is there" in cause.message
    assert "no event reports a failed prepare" in cause.message


def test_events_that_could_not_be_read_are_no_proof_of_anything() -> None:
    [cause] = explain(replace(placed(), forbidden_lists={"events": "forbidden"})).causes
    assert "events could not be read" in cause.message


def test_a_pod_that_cannot_start_is_told_where_a_new_one_would() -> None:
    now = replace(placed(nodes=3), events=(prepare_failure("p", REFUSED),))
    now = replace(now, pods=(owned(now.pods[0], "ReplicaSet", "web"),))
    answer = explain(now)
    assert answer.fitting_nodes == ("node-2", "node-3")
    assert (
        "kubectl delete pod p -n default (its ReplicaSet makes a new one; devices for it are free on node-2, node-3)"
        in answer.causes[0].next_step
    )


def test_no_other_node_is_proposed_to_a_pod_that_shares_its_claim() -> None:
    now = replace(placed(nodes=2), events=(prepare_failure("p", REFUSED),))
    [held] = now.claims
    [user] = held.status.reserved_for
    shared = replace(held, status=replace(held.status, reserved_for=(user, replace(user, name="q", uid="uid-q"))))
    answer = explain(replace(now, claims=(shared,)))
    assert answer.fitting_nodes == ()
    assert "nothing makes a new one" in answer.causes[0].next_step


WAITING = ContainerStatus(name="main", state=ContainerState(waiting=ContainerStateWaiting(reason="ImagePullBackOff")))
RUNNING = ContainerStatus(name="main", state=ContainerState(running={}))
SANDBOX = Condition(type="PodReadyToStartContainers", status="True")


@pytest.mark.parametrize(
    "status", [{"phase": "Running"}, {"container_statuses": (RUNNING,)}, {"conditions": (SANDBOX,)}], ids=str
)
def test_a_pod_that_has_started_waits_for_nothing_whatever_events_say(status: dict[str, Any]) -> None:
    now = replace(placed(**status), events=(prepare_failure("p", "an earlier try"),))
    answer = explain(now)
    assert (answer.verdict, answer.causes) == (Verdict.HAS_DEVICES, ())


def test_a_container_that_waits_for_its_image_is_not_blamed_on_devices() -> None:
    answer = explain(placed(conditions=(SANDBOX,), container_statuses=(WAITING,)))
    assert answer.verdict is Verdict.STARTING
    [cause] = answer.causes
    assert cause.code == "container-waiting"
    assert "container main waits: ImagePullBackOff" in cause.message


def test_a_claim_that_the_kubelet_may_not_read_yet_is_told_as_no_fault() -> None:
    """The node authorizer follows the pods' nodes by a watch of its own, which may be later than the kubelet."""
    user = 'User "system:node:node-1" cannot get resource "resourceclaims" in API group "resource.k8s.io"'
    answer = explain(failing(f'fetch ResourceClaim p: resourceclaims.resource.k8s.io "p" is forbidden: {user}')())
    assert answer.verdict is Verdict.STARTING
    assert [cause.code for cause in answer.causes] == [CauseCode.CLAIM_NOT_VISIBLE]
    assert "the kubelet tries again" in answer.causes[0].next_step


def test_a_taint_that_the_claim_tolerates_is_told_as_no_fault() -> None:
    now = replace(placed(), taint_rules=(taint_rule("NoExecute"),))
    tolerant = DeviceToleration(key="ill", operator="Exists", toleration_seconds=60)
    now = replace(now, claims=(change_results(now.claims[0], tolerations=(tolerant,)),))
    answer = explain(now)
    assert answer.verdict is Verdict.STARTING
    told = {cause.code: cause for cause in answer.causes}
    assert "which the claim tolerates for 60 s" in told[CauseCode.DEVICE_TAINTED].message
    assert "evicted when that time is over" in told[CauseCode.DEVICE_TAINTED].next_step


def test_a_running_pod_on_a_tainted_device_is_told_of_it() -> None:
    answer = explain(replace(placed(phase="Running"), taint_rules=(taint_rule("NoSchedule"),)))
    assert answer.verdict is Verdict.HAS_DEVICES
    assert [cause.code for cause in answer.causes] == ["device-tainted"]


def test_a_taint_that_only_informs_is_no_cause() -> None:
    answer = explain(replace(placed(), taint_rules=(taint_rule("None"),)))
    assert [cause.code for cause in answer.causes] == ["preparing"]


def test_a_pool_that_is_being_updated_proves_nothing_about_its_devices() -> None:
    now = placed()
    half = [
        replace(each, spec=replace(each.spec, pool=replace(each.spec.pool, generation=2, resource_slice_count=9)))
        for each in now.slices[:1]
    ]
    assert [cause.code for cause in explain(replace(now, slices=(*now.slices, *half))).causes] == ["preparing"]


def with_binding(now: ClusterState, *conditions: Condition, since: str = "2026-11-21T07:59:30Z") -> ClusterState:
    """Return ``now`` with an unbound pod, whose device waits for the condition Loaded."""
    held = change_results(now.claims[0], binding_conditions=("Loaded",), binding_failure_conditions=("Broken",))
    result = result_of(held)
    said = AllocatedDeviceStatus(driver=result.driver, pool=result.pool, device=result.device, conditions=conditions)
    allocation = held.status.allocation
    assert allocation is not None
    status = replace(held.status, allocation=replace(allocation, allocation_timestamp=since), devices=(said,))
    return replace(now, claims=(replace(held, status=status),), pods=(pod("p", "p"),))


def test_a_load_in_progress_is_told_with_its_time() -> None:
    answer = explain(with_binding(placed()))
    assert answer.verdict is Verdict.STARTING
    [cause] = answer.causes
    assert (cause.code, cause.is_fault) == ("device-loading", False)
    assert (
        "is being made ready for 30 s: the pod is bound once status.devices has the condition Loaded" in cause.message
    )
    assert "the scheduler gives up after 10 min" in cause.next_step


def test_a_load_that_takes_longer_than_the_scheduler_waits_is_a_fault() -> None:
    answer = explain(with_binding(placed(), since="2026-11-21T07:00:00Z"))
    assert answer.verdict is Verdict.CANNOT_START
    assert f"check that the plugin of {DRIVER} runs" in answer.causes[0].next_step


def test_a_device_that_reports_its_failure_is_told_with_its_words() -> None:
    broken = Condition(type="Broken", status="True", reason="BadImage", message="the image is damaged")
    now = with_binding(placed(), broken)
    for state in (now, redact(now)):
        answer = explain(state)
        assert answer.verdict is Verdict.CANNOT_START
        [cause] = answer.causes
        assert cause.code == "device-failed"
        assert cause.message.endswith("cannot be made ready: Broken: the image is damaged")


def test_once_the_device_is_ready_the_pod_waits_for_its_binding() -> None:
    answer = explain(with_binding(placed(), Condition(type="Loaded", status="True")))
    assert answer.verdict is Verdict.FITS
    assert [cause.code for cause in answer.causes] == ["not-bound"]


def twice(second: str = "q", *, started: str = "") -> ClusterState:
    """Return a cluster where the claims ``p`` and ``second`` have one device; the claim ``p`` was created first."""
    now = placed()
    [held] = now.claims
    other = replace(
        claim(second, "1g-10gb"),
        status=replace(
            held.status, reserved_for=(replace(held.status.reserved_for[0], name=second, uid=f"uid-{second}"),)
        ),
    )
    both = [
        replace(each, metadata=replace(each.metadata, creation_timestamp=f"2026-11-21T07:0{minute}:00Z"))
        for minute, each in enumerate((held, other))
    ]
    pods = [placed_pod(name, name, phase="Running" if name == started else "Pending") for name in ("p", second)]
    return replace(now, claims=tuple(both), pods=tuple(pods))


@pytest.mark.parametrize(("started", "deleted", "stays"), [("", "q", "p"), ("p", "q", "p"), ("q", "p", "q")])
def test_of_two_claims_on_one_device_the_later_one_goes_unless_its_pod_runs(
    started: str, deleted: str, stays: str
) -> None:
    now = twice(started=started)
    waiting = "p" if started == "q" else "q"
    answer = explain(now, waiting)
    cause = answer.causes[0]
    assert cause.code == "double-allocation"
    assert f"device {DRIVER}/node-1/gpu/{result_of(now.claims[0]).device}" in cause.message
    assert {"claim default/p", "claim default/q"} <= set(cause.objects)
    assert cause.next_step.startswith(f"kubectl delete pod {deleted} -n default: claim default/{stays}, ")


def test_partitions_that_overlap_are_one_hardware_given_twice() -> None:
    now = placed()
    [held] = now.claims
    whole = allocate_claims(gpu_cluster(), claim("q", "7g-80gb")).claims[0]
    answer = explain(replace(now, claims=(held, whole)))
    assert answer.causes[0].code == "double-allocation"
    assert "claim default/p and claim default/q have the same hardware: memory of gpu-0 " in answer.causes[0].message


def test_partitions_that_do_not_overlap_are_nobodys_concern() -> None:
    now = allocate_claims(placed(), claim("q", "1g-10gb"), claim("r", "3g-40gb"))
    assert [cause.code for cause in explain(now).causes] == ["preparing"]


def test_a_device_that_takes_nothing_of_an_overdrawn_counter_is_not_to_blame() -> None:
    """The counters of the third claim's device name every slice, and are 0 where it has none."""
    now = allocate_claims(placed(), claim("r", "1g-10gb"))
    whole = allocate_claims(gpu_cluster(), claim("q", "7g-80gb")).claims[0]
    idle = result_of(now.claims[1]).device

    def spread(device: Device) -> Device:
        if device.name != idle:
            return device
        [consumption] = device.consumes_counters
        return replace(
            device,
            consumes_counters=(
                replace(consumption, counters={f"memory-slice-{n}": Counter(value=Quantity(0)) for n in range(8)}),
            ),
        )

    changed = [
        replace(each, spec=replace(each.spec, devices=tuple(map(spread, each.spec.devices)))) for each in now.slices
    ]
    causes = explain(replace(now, slices=tuple(changed), claims=(*now.claims, whole))).causes
    assert causes[0].code == "double-allocation"
    assert "claim default/r" not in causes[0].objects


def test_admin_access_shares_a_device_without_having_it() -> None:
    now = twice()
    held, other = now.claims
    now = replace(now, claims=(held, change_results(other, admin_access=True)))
    assert [cause.code for cause in explain(now).causes] == ["preparing"]


@pytest.mark.parametrize(("amount", "codes"), [("40Gi", ["preparing"]), ("70Gi", ["double-allocation"])])
def test_shares_may_sum_up_to_the_capacity_and_no_further(amount: str, codes: list[str]) -> None:
    now = placed()
    device = next(each for slice_ in now.slices for each in slice_.spec.devices if each.name == "gpu-0")
    shares = [
        change_results(
            replace(each, status=replace(now.claims[0].status)),
            device=device.name,
            share_id=f"share-{number}",
            consumed_capacity={"memory": Quantity("30Gi" if number else amount)},
        )
        for number, each in enumerate((now.claims[0], claim("q", "whole")))
    ]
    assert [cause.code for cause in explain(replace(now, claims=tuple(shares))).causes] == codes


def test_a_claim_is_explained_by_the_pod_that_uses_it_and_cannot_start() -> None:
    now = replace(placed(), events=(prepare_failure("p", REFUSED),))
    answer = explain_claim(ClusterIndex(now), ObjectRef("default", "p"))
    assert (answer.subject.kind, answer.verdict) == ("ResourceClaim", Verdict.CANNOT_START)
    assert answer.causes[0].code == "prepare-failed"


def test_a_few_messages_are_told_the_newest_first() -> None:
    def at(second: int) -> Event:
        return replace(
            prepare_failure("p", f"NodePrepareResources: message {second}"),
            last_timestamp=f"2026-11-21T07:59:0{second}Z",
        )

    answer = explain(replace(placed(), events=tuple(map(at, range(6)))))
    [cause] = answer.causes
    assert [number for number in range(6) if f"message {number}" in cause.message] == [3, 4, 5]
    assert cause.message.index("message 5") < cause.message.index("message 4")


def test_a_plugin_that_is_away_from_one_node_is_one_cause() -> None:
    now = placed(nodes=2)
    elsewhere = tuple(each for each in now.slices if each.spec.node_name != "node-1")
    assert [cause.code for cause in explain(replace(now, slices=elsewhere)).causes] == ["driver-absent"]


def test_the_claim_for_extended_resources_is_explained_like_any_other() -> None:
    now = placed()
    status = PodExtendedResourceClaimStatus(resource_claim_name="p")
    pod_of_limits = placed_pod("p", extended_resource_claim_status=status)
    now = replace(now, pods=(pod_of_limits,), events=(prepare_failure("p", REFUSED),))
    answer = explain(now)
    assert [each.name for each in answer.claims] == ["p"]
    assert answer.causes[0].message.startswith("claim default/p cannot be prepared on node-1")


def test_a_claim_that_has_some_of_a_card_that_is_kept_out_has_no_fault() -> None:
    assert "device-tainted" not in [cause.code for cause in explain(tainted_by_plugin("kept-out")).causes]
    assert "device-tainted" in [cause.code for cause in explain(tainted_by_plugin("held")).causes]
