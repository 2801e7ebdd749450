"""Claims, their templates and classes: defaults, limits and the rules of a claim's lifecycle.

Every cause below is what kube-apiserver 1.37 reported of the same document.
"""

from typing import Any

import pytest

from tests.local.apiserver.api_client import Api
from tests.local.apiserver.resources import CLAIMS, CLASSES, TEMPLATES, claim, request

LABEL = "resource.kubernetes.io/admin-access"


async def test_a_request_is_for_one_device_by_default(api: Api) -> None:
    body = await api.made(
        CLAIMS,
        claim(
            request(tolerations=[{"key": "a"}]),
            {
                "name": "f",
                "firstAvailable": [
                    {"name": "x", "deviceClassName": "gpu"},
                    {"name": "y", "deviceClassName": "gpu", "allocationMode": "All"},
                ],
            },
        ),
    )
    first, second = body["spec"]["devices"]["requests"]
    assert first["exactly"] == {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": 1,
        "tolerations": [{"key": "a", "operator": "Equal"}],
    }
    assert [(each["allocationMode"], each.get("count")) for each in second["firstAvailable"]] == [
        ("ExactCount", 1),
        ("All", None),
    ]


MANY = [request(f"r{number}") for number in range(33)]
REFERENCE = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (claim(request(deviceClassName="")), "spec.devices.requests[0].exactly.deviceClassName: Required value"),
        (claim(request("A_")), 'spec.devices.requests[0].name: Invalid value: "A_"'),
        (
            claim({"name": "r"}),
            "spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required",
        ),
        (claim({**request(), "firstAvailable": [{}]}), "is required, but multiple fields are set"),
        (claim(request(), request()), "spec.devices.requests[1]: Duplicate value"),
        (claim(*MANY), "spec.devices.requests: Too many: 33: must have at most 32 items"),
        (claim({"name": "r", "firstAvailable": [{}] * 9}), "firstAvailable: Too many: 9: must have at most 8 items"),
        (claim(request(allocationMode="Some")), 'Unsupported value: "Some": supported values: "All", "ExactCount"'),
        (claim(request(allocationMode="All", count=2)), "must not be specified when allocationMode is 'All'"),
        (
            claim(request(count=-1)),
            "spec.devices.requests[0].exactly.count: Invalid value: -1: must be greater than zero",
        ),
        (claim(request(tolerations=[{"operator": "Foo"}])), 'tolerations[0].operator: Unsupported value: "Foo"'),
        (claim(request(tolerations=[{"operator": "Exists", "value": "x"}])), "must be empty for operator `Exists`"),
        (
            claim(request(tolerations=[{"key": "a", "effect": "Bar"}])),
            'supported values: "NoExecute", "NoSchedule", "None"',
        ),
        (claim(request(selectors=[{}])), "spec.devices.requests[0].exactly.selectors[0].cel: Required value"),
        (
            claim(request(selectors=[{"cel": {"expression": "device.driver =="}}])),
            'selectors[0].cel.expression: Invalid value: "device.driver ==": compilation failed: ERROR: <input>:1:17',
        ),
        (
            claim(request(selectors=[{"cel": {"expression": "x" * 10_241}}])),
            "selectors[0].cel.expression: Too long: may not be more than 10240 bytes",
        ),
        (claim(request(), constraints=[{}]), "spec.devices.constraints[0]: Required value"),
        (claim(request(), constraints=[{"matchAttribute": "abc"}]), "a domain and a name separated by a slash"),
        (claim(request(), constraints=[{"requests": ["zz"], "matchAttribute": "a.b/c"}]), REFERENCE),
        (
            claim(request(), constraints=[{"requests": ["r", "r"], "matchAttribute": "a.b/c"}]),
            "requests[1]: Duplicate value",
        ),
        (claim(request(), config=[{}]), "spec.devices.config[0].opaque: Required value"),
        (claim(request(), config=[{"opaque": {"driver": "d"}}]), "config[0].opaque.parameters: Required value"),
        (claim(request(), config=[{"opaque": {"driver": "d", "parameters": [1]}}]), "must be a valid JSON object"),
        (
            claim(request(), config=[{"opaque": {"driver": "d", "parameters": {"x": "y" * 11_000}}}]),
            "spec.devices.config[0].opaque.parameters: Too long: may not be more than 10240 bytes",
        ),
        (claim(request(), config=[{"requests": ["r/x"], "opaque": {"driver": "d", "parameters": {}}}]), REFERENCE),
        (claim(request(adminAccess=True)), f"admin access to devices requires the `{LABEL}: true` label"),
    ],
)
async def test_a_bad_claim_is_refused_with_the_field(api: Api, body: dict[str, Any], cause: str) -> None:
    answer = await api.post(CLAIMS, body)
    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    assert any(cause in each for each in answer.causes), answer.causes


async def test_a_template_is_checked_like_its_claim(api: Api) -> None:
    spec = claim(request(deviceClassName=""))["spec"]
    answer = await api.post(TEMPLATES, {"metadata": {"name": "t"}, "spec": {"spec": spec}})
    assert answer.causes == ["spec.spec.devices.requests[0].exactly.deviceClassName: Required value"]


@pytest.mark.parametrize(
    ("path", "body", "change"),
    [
        (CLAIMS, claim(request()), {"spec": {"devices": {"requests": [request("other")]}}}),
        (TEMPLATES, {"metadata": {"name": "c"}, "spec": {"spec": {}}}, {"spec": {"metadata": {"labels": {"a": "b"}}}}),
    ],
)
async def test_a_spec_that_was_asked_for_stays(api: Api, path: str, body: Any, change: Any) -> None:
    await api.made(path, body)
    assert (await api.merge(f"{path}/c", change)).causes == ["spec: Invalid value: null: field is immutable"]
    assert (await api.merge(f"{path}/c", {"metadata": {"labels": {"a": "b"}}})).status == 200


async def test_administrative_access_needs_the_namespaces_label(api: Api) -> None:
    await api.merge("/api/v1/namespaces/default", {"metadata": {"labels": {LABEL: "true"}}})
    await api.made(CLAIMS, claim(request(adminAccess=True)))
    await api.merge("/api/v1/namespaces/default", {"metadata": {"labels": {LABEL: None}}})
    answer = await api.merge(f"{CLAIMS}/c/status", allocated(adminAccess=True))
    assert answer.causes[0].startswith("status.allocation.devices.results[0].adminAccess: Forbidden")


def allocated(device: str = "d1", **result: Any) -> dict[str, Any]:
    results = [{"request": "r", "driver": "d.example.com", "pool": "n1", "device": device, **result}]
    return {"status": {"allocation": {"devices": {"results": results}}}}


def reserved(*uids: str) -> dict[str, Any]:
    return {"status": {"reservedFor": [{"resource": "pods", "name": uid, "uid": uid} for uid in uids]}}


async def test_a_claim_is_allocated_reserved_released_and_deallocated(api: Api) -> None:
    await api.made(CLAIMS, claim(request()))
    status = f"{CLAIMS}/c/status"
    early = await api.merge(status, reserved("u"))
    assert early.causes == ["status.reservedFor: Forbidden: may not be specified when `allocated` is not set"]
    assert (await api.merge(status, allocated())).status == 200
    other = await api.merge(status, allocated("d2"))
    assert other.causes == ["status.allocation: Invalid value: null: field cannot be modified once set"]
    assert (await api.merge(status, reserved("u"))).status == 200
    in_use = await api.merge(status, {"status": {"allocation": None}})
    assert in_use.causes == ["status.reservedFor: Forbidden: may not be specified when `allocated` is not set"]
    assert (await api.merge(status, reserved())).status == 200
    assert (await api.merge(status, {"status": {"allocation": None}})).body["status"] == {"reservedFor": []}


async def test_consumers_are_added_one_by_one(api: Api) -> None:
    await api.made(CLAIMS, claim(request()))
    await api.merge(f"{CLAIMS}/c/status", allocated())
    for uid in ("u1", "u2"):
        assert (await api.strategic(f"{CLAIMS}/c/status", reserved(uid))).status == 200
    consumers = (await api.get(f"{CLAIMS}/c")).body["status"]["reservedFor"]
    assert {each["uid"] for each in consumers} == {"u1", "u2"}


async def test_a_deleted_claim_gets_no_new_consumers(api: Api) -> None:
    await api.made(CLAIMS, {**claim(request()), "metadata": {"name": "c", "finalizers": ["a.b/c"]}})
    await api.merge(f"{CLAIMS}/c/status", allocated())
    await api.merge(f"{CLAIMS}/c/status", reserved("u1", "u2"))
    await api.delete(f"{CLAIMS}/c")
    answer = await api.merge(f"{CLAIMS}/c/status", reserved("u1", "u3"))
    (cause,) = answer.causes
    assert cause == (
        "status.reservedFor: Forbidden: "
        "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
    )
    assert (await api.merge(f"{CLAIMS}/c/status", reserved("u1"))).status == 200


async def test_drivers_report_on_allocated_devices_only(api: Api) -> None:
    await api.made(CLAIMS, claim(request()))
    await api.merge(f"{CLAIMS}/c/status", allocated())

    def report(device: str, **more: Any) -> dict[str, Any]:
        entry = {"driver": "d.example.com", "pool": "n1", "device": device, **more}
        return {"status": {"devices": [entry]}}

    good = {"type": "Ready", "status": "True", "reason": "Ok", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    assert (await api.merge(f"{CLAIMS}/c/status", report("d1", conditions=[good], data={"a": 1}))).status == 200
    answer = await api.merge(
        f"{CLAIMS}/c/status", report("dx", conditions=[{"status": "Maybe", "reason": "1 2"}], data=[1])
    )
    assert [cause.partition(":")[0] for cause in answer.causes] == [
        "status.devices[0]",
        "status.devices[0].conditions[0].type",
        "status.devices[0].conditions[0].status",
        "status.devices[0].conditions[0].lastTransitionTime",
        "status.devices[0].conditions[0].reason",
        "status.devices[0].data",
    ]
    body = (await api.merge(f"{CLAIMS}/c/status", {"status": {"allocation": None}})).body
    assert body["status"] == {}, "what was said of deallocated devices goes with the allocation"


@pytest.mark.parametrize(
    ("result", "cause"),
    [
        ({"request": "zz"}, f'results[0].request: Invalid value: "zz": {REFERENCE}'),
        ({"driver": ""}, "results[0].driver: Required value"),
        ({"pool": "a b"}, 'results[0].pool: Invalid value: "a b": segment 0: a lowercase RFC 1123 subdomain'),
        ({"device": "A"}, "results[0].device: Invalid value"),
        ({"shareID": "x"}, 'results[0].shareID: Invalid value: "x": must be a lowercase UUID in 8-4-4-4-12 format'),
        ({"bindingConditions": ["a"]}, "bindingFailureConditions are required to use bindingConditions"),
        ({"tolerations": [{"operator": "X"}]}, 'results[0].tolerations[0].operator: Unsupported value: "X"'),
    ],
)
async def test_a_bad_result_is_refused_with_the_field(api: Api, result: dict[str, Any], cause: str) -> None:
    await api.made(CLAIMS, claim(request()))
    answer = await api.merge(f"{CLAIMS}/c/status", allocated(**result))
    assert any(cause in each for each in answer.causes), answer.causes


OPAQUE = {"opaque": {"driver": "d", "parameters": {}}}


@pytest.mark.parametrize(
    ("allocation", "cause"),
    [
        ({"devices": {"config": [OPAQUE]}}, "devices.config[0].source: Required value"),
        (
            {"devices": {"config": [{"source": "X", **OPAQUE}]}},
            'devices.config[0].source: Unsupported value: "X": supported values: "FromClaim", "FromClass"',
        ),
        (
            {"devices": {"config": [{"source": "FromClass", "requests": ["q"], **OPAQUE}]}},
            f'devices.config[0].requests[0]: Invalid value: "q": {REFERENCE}',
        ),
        ({"nodeSelector": {"nodeSelectorTerms": []}}, "nodeSelector.nodeSelectorTerms: Required value"),
    ],
)
async def test_a_bad_allocation_is_refused_with_the_field(api: Api, allocation: dict[str, Any], cause: str) -> None:
    await api.made(CLAIMS, claim(request()))
    answer = await api.merge(f"{CLAIMS}/c/status", {"status": {"allocation": allocation}})
    assert any(cause in each for each in answer.causes), answer.causes


async def test_an_allocation_is_about_requests_of_its_claim(api: Api) -> None:
    subrequest = {"name": "x", "deviceClassName": "gpu"}
    await api.made(CLAIMS, claim({"name": "f", "firstAvailable": [subrequest]}))
    wrong = await api.merge(f"{CLAIMS}/c/status", allocated(request="f/y"))
    assert wrong.causes == [f'status.allocation.devices.results[0].request: Invalid value: "f/y": {REFERENCE}']
    assert (await api.merge(f"{CLAIMS}/c/status", allocated(request="f/x"))).status == 200


async def test_consumers_are_named_and_differ(api: Api) -> None:
    await api.made(CLAIMS, claim(request()))
    await api.merge(f"{CLAIMS}/c/status", allocated())
    unnamed = await api.merge(f"{CLAIMS}/c/status", {"status": {"reservedFor": [{}]}})
    assert unnamed.causes == [f"status.reservedFor[0].{field}: Required value" for field in ("resource", "name", "uid")]
    twice = await api.merge(f"{CLAIMS}/c/status", reserved("u", "u"))
    assert [cause.partition(":")[0] for cause in twice.causes] == ["status.reservedFor[1]"]


async def test_shares_of_a_device_are_reported_one_by_one(api: Api) -> None:
    share = "11111111-1111-4111-8111-111111111111"
    await api.made(CLAIMS, claim(request()))
    await api.merge(f"{CLAIMS}/c/status", allocated(shareID=share))
    device = {"driver": "d.example.com", "pool": "n1", "device": "d1"}
    whole = await api.merge(f"{CLAIMS}/c/status", {"status": {"devices": [device]}})
    assert [cause.partition(":")[0] for cause in whole.causes] == ["status.devices[0]"]
    shared = {"status": {"devices": [{**device, "shareID": share}]}}
    assert (await api.merge(f"{CLAIMS}/c/status", shared)).status == 200


@pytest.mark.parametrize(
    ("spec", "cause"),
    [
        ({"selectors": [{"cel": {"expression": "(("}}]}, "spec.selectors[0].cel.expression: Invalid value"),
        ({"config": [{}]}, "spec.config[0].opaque: Required value"),
        ({"extendedResourceName": "gpu"}, "a name must be a domain-prefixed path, such as 'example.com/my-prop'"),
        ({"extendedResourceName": "kubernetes.io/gpu"}, 'must not have "kubernetes.io/" domain'),
        ({"extendedResourceName": "requests.a/b"}, 'must not have "requests." prefix'),
    ],
)
async def test_a_bad_class_is_refused_with_the_field(api: Api, spec: dict[str, Any], cause: str) -> None:
    answer = await api.post(CLASSES, {"metadata": {"name": "k"}, "spec": spec})
    assert any(cause in each for each in answer.causes), answer.causes
