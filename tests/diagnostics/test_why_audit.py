"""The audit of ``kerf why`` on real clusters (``tests/e2e``) finds pods that stay, and answers that say too little."""

from collections.abc import Mapping
from typing import Any, Final

import pytest

from kerf_dra.driver.diagnostics.explain.report import Verdict
from tests.e2e.why_audit import Stage, find_flaws, find_stays

CAUSE: Final = {"code": "preparing", "message": "no fault is found", "next_step": "wait some seconds"}


def pod(
    *, has_devices: bool = True, node: str = "", phase: str = "Pending", is_deleted: bool = False, waits: str = ""
) -> dict[str, Any]:
    """A pod; one that ``waits`` for a reason of its container has its devices."""
    return {
        "metadata": {"namespace": "n", "name": "p", "uid": "u", **({"deletionTimestamp": "now"} if is_deleted else {})},
        "spec": {
            **({"resourceClaims": [{"name": "gpu"}]} if has_devices else {}),
            **({"nodeName": node} if node else {}),
        },
        "status": {
            "phase": phase,
            "conditions": [{"type": "PodReadyToStartContainers", "status": str(bool(waits))}],
            **({"containerStatuses": [{"state": {"waiting": {"reason": waits}}}]} if waits else {}),
        },
    }


STAGES: Final[Mapping[str, tuple[dict[str, Any], Stage | None]]] = {
    "a pod without a node": (pod(), Stage.WAITING),
    "a pod on a node that has not started": (pod(node="node-1"), Stage.STARTING),
    "a pod whose container is being created": (pod(node="node-1", waits="ContainerCreating"), None),
    "a pod whose container has no image": (pod(node="node-1", waits="ErrImagePull"), Stage.STARTING),
    "a pod that runs": (pod(node="node-1", phase="Running"), None),
    "a pod of which a container has no CDI file any more": (
        pod(node="node-1", phase="Running", waits="CreateContainerError"),
        Stage.FAILING,
    ),
    "a pod that is being deleted": (pod(node="node-1", phase="Running", is_deleted=True), Stage.ENDING),
    "a pod that has ended": (pod(node="node-1", phase="Succeeded", is_deleted=True), None),
    "a pod without devices": (pod(has_devices=False), None),
}


@pytest.mark.parametrize(("document", "stage"), STAGES.values(), ids=STAGES.keys())
def test_pods_with_devices_that_wait_start_fail_or_end_are_found(document: dict[str, Any], stage: Stage | None) -> None:
    assert [stay.stage for stay in find_stays([document])] == ([stage] if stage else [])


FLAWS: Final[Mapping[str, tuple[list[dict[str, str]], bool, list[str]]]] = {
    # causes, whether the pod has stayed for long, flaws
    "no cause": ([], False, ["no reason"]),
    "a good cause": ([{**CAUSE, "code": "driver-absent"}], True, []),
    "an Obstacle of allocation": ([{**CAUSE, "code": "counters"}], True, []),
    "a code that no list has": (
        [{**CAUSE, "code": "Unknown"}],
        False,
        ["reason code 'Unknown', which is not in the list"],
    ),
    "no message": ([{**CAUSE, "message": " "}], False, ["preparing: no message"]),
    "no next step": ([{**CAUSE, "next_step": ""}], False, ["preparing: no next_step"]),
    "nothing found at first": ([CAUSE], False, []),
    "nothing found after long": ([CAUSE], True, ["no reason after 30 s but preparing"]),
}


@pytest.mark.parametrize(("causes", "is_long", "flaws"), FLAWS.values(), ids=FLAWS.keys())
def test_what_a_report_lacks_is_told(causes: list[dict[str, str]], is_long: bool, flaws: list[str]) -> None:
    assert [*find_flaws({"causes": causes}, is_long=is_long)] == flaws


@pytest.mark.parametrize("verdict", Verdict)
def test_of_a_pod_that_does_not_run_no_report_may_say_that_all_is_well(verdict: Verdict) -> None:
    good = {"verdict": verdict, "causes": [{**CAUSE, "code": "driver-absent"}]}
    flaws = ["all is well, of a pod that does not run"] if verdict is Verdict.HAS_DEVICES else []
    assert [*find_flaws(good, is_long=False)] == flaws
