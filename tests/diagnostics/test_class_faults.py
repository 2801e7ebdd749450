"""Classes that claims name and that are missing, not compiled, or without devices; and other causes of waiting."""

import re
from pathlib import Path

import pytest

from kerf_dra.api.kerf.v1alpha1 import ResourceClassObject, ResourceClassStatus
from kerf_dra.api.model.metadata import Condition, ObjectMeta
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.allocation import Obstacle
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.explain.next_steps import _STEPS, misfit_causes
from kerf_dra.driver.diagnostics.explain.report import CODES, CauseCode, NodeGroup, NodeReason, Verdict, WhyReport
from kerf_dra.driver.diagnostics.explain.why import explain_claim, explain_pod
from tests.fakes.cluster_states import allocate_claims, claim, gpu_cluster, pod, replace, request


def resource_class(name: str, *conditions: Condition, generation: int = 1, observed: int = 1) -> ResourceClassObject:
    return ResourceClassObject(
        metadata=ObjectMeta(name=name, generation=generation),
        status=ResourceClassStatus(observed_generation=observed, conditions=conditions),
    )


def explain(class_name: str, *classes: ResourceClassObject) -> WhyReport:
    now = replace(gpu_cluster(), claims=(claim("c", class_name),), pods=(pod("p", "c"),), resource_classes=classes)
    return explain_pod(ClusterIndex(now), ObjectRef("default", "p"))


REFUSED = Condition(type="Accepted", status="False", reason="InvalidSpec", message="spec.profil: unknown field")
NOT_ACCEPTED = Condition(type="Ready", status="False", reason="NotAccepted", message="the spec is not accepted")
TAKEN = Condition(type="Ready", status="False", reason="NameTaken", message="somebody else's DeviceClass has the name")
ACCEPTED = Condition(type="Accepted", status="True")


@pytest.mark.parametrize(
    ("given", "message", "step"),
    [
        (
            resource_class("big", REFUSED, NOT_ACCEPTED),
            "condition Accepted is False, InvalidSpec: spec.profil: unknown field",
            "kubectl edit resourceclass big",
        ),
        (resource_class("big", ACCEPTED, TAKEN), "condition Ready is False, NameTaken: somebody else's", "describe"),
        (
            resource_class("big", generation=1, observed=0),
            "has not looked at generation 1",
            "check that Kerf's controller runs",
        ),
        (
            resource_class("big", REFUSED, generation=2),
            "has not looked at generation 2",
            "check that Kerf's controller runs",
        ),
        (resource_class("big", ACCEPTED, observed=1), "it was deleted", "creates it again"),
    ],
    ids=["refused", "name taken", "new", "changed", "deleted"],
)
def test_a_class_that_is_there_but_not_compiled_is_told_with_the_reason(
    given: ResourceClassObject, message: str, step: str
) -> None:
    answer = explain("big", given)
    assert answer.verdict is Verdict.BLOCKED
    [cause] = answer.causes
    assert cause.code == "class-not-compiled"
    assert cause.message.startswith(
        "claim default/c, spec.devices.requests[0].exactly.deviceClassName: ResourceClass big"
    )
    assert message in cause.message
    assert step in cause.next_step


def test_a_class_that_does_not_exist_is_told_with_names_like_it() -> None:
    answer = explain("1g-10g")
    assert answer.verdict is Verdict.INVALID
    [cause] = answer.causes
    assert cause.code == "class-missing"
    assert "device class 1g-10g does not exist; there is 1g-10gb" in cause.message


def test_what_the_controller_says_of_a_class_without_devices_is_told_with_the_obstacle() -> None:
    matching = Condition(type="Matching", status="False", reason="NothingMatches", message="spec.models: no such card")
    now = replace(
        gpu_cluster(),
        claims=(claim("c", request("r", "7g-80gb", 'device.driver == "x"')),),
        resource_classes=(resource_class("7g-80gb", ACCEPTED, matching),),
    )
    answer = explain_claim(ClusterIndex(now), ObjectRef("default", "c"))
    assert [cause.code for cause in answer.causes] == ["selector", "class-matches-nothing"]
    assert answer.causes[1].message == "ResourceClass 7g-80gb: spec.models: no such card"


def test_every_obstacle_has_a_next_step() -> None:
    assert set(_STEPS) == {
        *Obstacle,
        CauseCode.NODE_FILTER,
        CauseCode.EXTENDED_RESOURCE,
        CauseCode.INSUFFICIENT_RESOURCE,
        CauseCode.NODE_TOO_SMALL,
        CauseCode.RESOURCE_NOT_OFFERED,
        CauseCode.DISCOVERED_DEVICE_UNSEEN,
        CauseCode.DISCOVERED_DEVICE_FULL,
        CauseCode.DISCOVERED_DEVICE_UNLISTED,
        CauseCode.NODE_ERROR,
        CauseCode.UNDECIDED,
    }


def test_nobody_is_told_to_tolerate_what_a_plugin_of_kerf_has_tainted() -> None:
    reason = NodeReason(
        claim="default/c",
        request="r0",
        obstacle=Obstacle.TAINTED,
        message="m",
        taints=("x.example/held=mode:NoSchedule",),
    )
    groups = (NodeGroup(nodes=("node-1",), reasons=(reason,), in_the_way=()),)
    [cause] = misfit_causes(groups, (), {"x.example"})
    assert "end what holds the hardware on node-1" in cause.next_step
    [other] = misfit_causes(groups, (), {"another.example"})
    assert "add a toleration" in other.next_step


def test_the_cause_of_a_misfit_names_nodes_and_what_would_make_room() -> None:
    now = allocate_claims(gpu_cluster(2), claim("a", "7g-80gb"), claim("b", "7g-80gb"))
    now = replace(now, claims=(*now.claims, claim("c", "7g-80gb")))
    [cause] = explain_claim(ClusterIndex(now), ObjectRef("default", "c")).causes
    assert cause.message == "on node-1, node-2: claim default/c, request r0: 1 device matches, but is in use"
    assert cause.next_step == "wait until default/a on node-1 ends, or delete its pod; or add a node"


def test_a_claim_that_fits_waits_for_a_pod_that_names_it() -> None:
    now = replace(gpu_cluster(), claims=(claim("c", "7g-80gb"),))
    answer = explain_claim(ClusterIndex(now), ObjectRef("default", "c"))
    assert (answer.verdict, [cause.code for cause in answer.causes]) == (Verdict.FITS, ["no-pod"])


def test_the_documentation_has_every_code_and_every_verdict() -> None:
    page = (Path(__file__).parents[2] / "docs" / "diagnostics.md").read_text()
    page_of_codes = re.sub(r"^\| in a drawing \|.*?\n\n", "", page, flags=re.MULTILINE | re.DOTALL)
    cells = re.findall(r"^\|((?: `[a-z-]+`,?)+) \|", page_of_codes, re.MULTILINE)
    assert {code for cell in cells for code in re.findall("[a-z-]+", cell)} == CODES
    assert all(str(verdict) in page for verdict in Verdict)
