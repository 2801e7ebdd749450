"""The policy of ``deploy/graded-placement``: which requests become a list of alternatives, and what else stays."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.local.apiserver.api_client import Api
from tests.local.apiserver.resources import CLAIMS, CLASSES, TEMPLATES, claim, request

POLICY: Final = Path(__file__).parents[3] / "deploy" / "graded-placement" / "policy.yaml"
ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
PLURALS: Final = {
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
}
RANK: Final = 'device.attributes["gpu.kerf.dev"].lossRank'
ONE: Final[dict[str, Any]] = {"allocationMode": "ExactCount", "count": 1}
PACKED: Final = ("small", "large")
AS_CHOSEN: Final = ("spread", "unlabeled")


async def prepare(api: Api) -> None:
    """Put the policy into force, beside two classes that ask for it and two that do not."""
    for document in yaml.safe_load_all(POLICY.read_text()):
        await api.made(f"{ADMISSION}/{PLURALS[document['kind']]}", document)
    labels = {**dict.fromkeys(PACKED, "Packed"), "spread": "Spread"}
    for name in (*PACKED, *AS_CHOSEN):
        own = {"labels": {"kerf.dev/placement": labels[name]}} if name in labels else {}
        await api.made(CLASSES, {"metadata": {"name": name, **own}, "spec": {}})


def graded(name: str, **exactly: Any) -> dict[str, Any]:
    """What the policy makes of a request."""
    selectors = exactly.pop("selectors", [])
    asked = {**ONE, **exactly}
    levels: Sequence[tuple[str, Sequence[Mapping[str, Any]]]] = (
        ("rank-0", [*selectors, cel(f"has({RANK}) && {RANK} == 0")]),
        ("rank-2", [*selectors, cel(f"has({RANK}) && {RANK} <= 2")]),
        ("any", selectors),
    )
    return {
        "name": name,
        "firstAvailable": [{"name": level, **asked, **({"selectors": own} if own else {})} for level, own in levels],
    }


def cel(expression: str) -> dict[str, Any]:
    return {"cel": {"expression": expression}}


async def requests_of(api: Api, body: dict[str, Any]) -> list[dict[str, Any]]:
    made = await api.made(CLAIMS, body)
    found: list[dict[str, Any]] = made["spec"]["devices"]["requests"]
    return found


async def test_requests_of_classes_that_ask_for_it_become_alternatives_by_rank(api: Api) -> None:
    await prepare(api)
    whole = {"selectors": [cel("true"), cel("device.driver == 'd'")], "count": 2}
    capacity = {"requests": {"memory": "1Gi"}}
    tolerations = [{"key": "a", "operator": "Exists"}]
    found = await requests_of(
        api,
        claim(
            request("a", deviceClassName="small"),
            request("b", deviceClassName="spread"),
            request("c", deviceClassName="large", capacity=capacity, tolerations=tolerations, **whole),
            request("d", deviceClassName="unlabeled"),
        ),
    )
    assert found == [
        graded("a", deviceClassName="small"),
        request("b", deviceClassName="spread", **ONE),
        graded("c", deviceClassName="large", capacity=capacity, tolerations=tolerations, **whole),
        request("d", deviceClassName="unlabeled", **ONE),
    ]
    found = await requests_of(api, claim(request(deviceClassName="small", adminAccess=False), name="no-admin"))
    assert found == [graded("r", deviceClassName="small")]


async def test_constraints_and_configurations_stay_with_their_requests(api: Api) -> None:
    """Those of a request hold for each of its alternatives (KEP-4816)."""
    await prepare(api)
    constraints = [{"requests": ["a", "b"], "matchAttribute": "gpu.kerf.dev/uuid"}]
    config = [{"requests": ["a"], "opaque": {"driver": "gpu.kerf.dev", "parameters": {"kind": "GpuConfig"}}}]
    made = await api.made(
        CLAIMS,
        claim(
            request("a", deviceClassName="small"),
            request("b", deviceClassName="large"),
            constraints=constraints,
            config=config,
        ),
    )
    devices = made["spec"]["devices"]
    assert devices["requests"] == [graded("a", deviceClassName="small"), graded("b", deviceClassName="large")]
    assert (devices["constraints"], devices["config"]) == (constraints, config)


LEFT_ALONE: dict[str, dict[str, Any]] = {
    "all devices": request(deviceClassName="small", allocationMode="All"),
    "as many selectors as there may be": request(deviceClassName="small", selectors=[cel("true")] * 32, **ONE),
    "alternatives of its own": {
        "name": "r",
        "firstAvailable": [{"name": "x", "deviceClassName": "small", **ONE}],
    },
}


@pytest.mark.parametrize("left_alone", LEFT_ALONE)
async def test_a_request_that_cannot_be_graded_stays_as_it_was_beside_one_that_can(api: Api, left_alone: str) -> None:
    await prepare(api)
    asked = LEFT_ALONE[left_alone]
    found = await requests_of(api, claim(asked, request("other", deviceClassName="small")))
    assert found == [asked, graded("other", deviceClassName="small")]


@pytest.mark.parametrize(
    ("classes", "levels"),
    [
        (["small", "small"], [3, 3]),
        (["small", "large"], [3, 3]),
        (["small", "small", "small"], [0, 0, 0]),
        (["small", "spread", "small", "spread"], [3, 0, 3, 0]),
        (["small", "large", "large"], [0, 3, 3]),
        (["", "small", "large"], [1, 0, 3]),
    ],
    ids=str,
)
async def test_at_most_two_requests_of_a_claim_have_alternatives(
    api: Api, classes: list[str], levels: list[int]
) -> None:
    """Each multiplies the time that the scheduler takes on a node where the claim does not fit. The embedded API
    server takes classes in the order of their names, so ``large`` first; a real one takes them in any order."""
    await prepare(api)
    own = {"firstAvailable": [{"name": "x", "deviceClassName": "unlabeled"}]}
    asked = [
        request(f"r{number}", deviceClassName=name) if name else {"name": f"r{number}", **own}
        for number, name in enumerate(classes)
    ]
    found = await requests_of(api, claim(*asked))
    assert [len(each.get("firstAvailable", ())) for each in found] == levels


async def test_a_request_with_admin_access_stays_as_it_was(api: Api) -> None:
    await prepare(api)
    labels = {"labels": {"resource.kubernetes.io/admin-access": "true"}}
    await api.merge("/api/v1/namespaces/default", {"metadata": labels})
    asked = request(deviceClassName="small", adminAccess=True, **ONE)
    assert await requests_of(api, claim(asked)) == [asked]


async def test_a_claim_that_the_scheduler_makes_for_an_extended_resource_stays_as_it_was(api: Api) -> None:
    """It compares what it has allocated with the requests by their names, of which it knows no alternatives."""
    await prepare(api)
    asked = claim(request(deviceClassName="small", **ONE))
    asked["metadata"]["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
    assert await requests_of(api, asked) == asked["spec"]["devices"]["requests"]
    asked = claim(request(deviceClassName="small"), name="of-a-user")
    asked["metadata"]["annotations"] = {"resource.kubernetes.io/pod-claim-name": "gpu"}
    assert await requests_of(api, asked) == [graded("r", deviceClassName="small")]


async def test_a_template_and_a_claim_that_exists_are_never_changed(api: Api) -> None:
    await api.made(CLAIMS, claim(request(deviceClassName="small")))
    await prepare(api)
    spec = claim(request(deviceClassName="small"))["spec"]
    made = await api.made(TEMPLATES, {"metadata": {"name": "t"}, "spec": {"spec": spec}})
    assert made["spec"]["spec"]["devices"]["requests"] == [request(deviceClassName="small", **ONE)]
    updated = await api.merge(f"{CLAIMS}/c", {"metadata": {"labels": {"a": "b"}}})
    assert updated.body["spec"]["devices"]["requests"] == [request(deviceClassName="small", **ONE)]
    generated = {"metadata": {"generateName": "pod-gpu-"}, "spec": made["spec"]["spec"]}
    assert await requests_of(api, generated) == [graded("r", deviceClassName="small")], "it has no name at that moment"


async def test_a_claim_without_requests_and_one_of_no_class_pass(api: Api) -> None:
    await prepare(api)
    assert (await api.made(CLAIMS, {"metadata": {"name": "empty"}, "spec": {}}))["spec"] == {}
    asked = request(deviceClassName="not-there", **ONE)
    assert await requests_of(api, claim(asked)) == [asked]
