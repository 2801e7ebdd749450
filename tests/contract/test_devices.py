"""What the API server refuses of slices, claims and classes, in its own words (KEP-4381, 4815, 5055, 5075, 5007)."""

from typing import Final

import pytest

from tests.contract.documents import RESOURCE, claim, device_class, exactly, slice_of
from tools.realcluster.api import Api, Document, StatusError

DEVICE: Final = {"name": "d"}
COUNTERS: Final = [{"name": "set", "counters": {"memory": {"value": "8"}}}]
ONE_OF_EIGHT = "`int`, `bool`, `string`, `version`, `ints`, `bools`, `strings`, `versions`"
ONE_PLACE = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
POLICY: Final = {"default": "9", "validRange": {"min": "1", "max": "8"}}


def using(set_: str, name: str = "d") -> Document:
    """A device that takes one of a counter."""
    return {"name": name, "consumesCounters": [{"counterSet": set_, "counters": {"memory": {"value": "1"}}}]}


def counters_of(*sets: Document) -> Document:
    document = slice_of("x", "n1", [], sharedCounters=list(sets))
    del document["spec"]["devices"]
    return document


def of(*devices: Document, **spec: object) -> Document:
    return slice_of("x", "n1", devices, **spec)


def asks(*requests: Document, **devices: object) -> Document:
    return claim("x", "default", *requests, **devices)


def numbered(count: int, **fields: object) -> list[Document]:
    return [{"name": f"d{number}", **fields} for number in range(count)]


SLICES: Final[list[tuple[str, Document, str]]] = [
    (
        "devices and counters in one slice",
        of(DEVICE, sharedCounters=COUNTERS),
        'spec: Invalid value: "": only one of `sharedCounters` or `devices` is allowed',
    ),
    ("129 devices", of(*numbered(129)), "spec.devices: Too many: 129: must have at most 128 items"),
    (
        "65 devices with counters",
        of(*(using("set", f"d{number}") for number in range(65))),
        "spec.devices: Too many: 65: must have at most 64 items",
    ),
    ("a device twice", of(DEVICE, DEVICE), 'spec.devices[1]: Duplicate value: "d"'),
    (
        "a pool without slices",
        of(DEVICE, pool={"name": "n1", "generation": 1, "resourceSliceCount": 0}),
        "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero",
    ),
    ("devices of nowhere", of(DEVICE, nodeName=None), f"spec: Required value: {ONE_PLACE}"),
    (
        "devices of two places",
        of(DEVICE, allNodes=True),
        f'spec: Invalid value: "{{`nodeName`, `allNodes`}}": {ONE_PLACE}, but multiple fields are set',
    ),
    (
        "an attribute of two types",
        of({"name": "d", "attributes": {"a": {"int": 1, "string": "x"}}}),
        f'spec.devices[0].attributes[a]: Invalid value: "{{int, string}}": must specify exactly one of: {ONE_OF_EIGHT}',
    ),
    (
        "33 attributes",
        of({"name": "d", "attributes": {f"a{number}": {"int": 1} for number in range(33)}}),
        "spec.devices[0]: Invalid value: 33: the total number of attributes and capacities must not exceed 32",
    ),
    (
        "a long attribute",
        of({"name": "d", "attributes": {"a": {"string": "x" * 65}}}),
        "spec.devices[0].attributes[a].string: Too long: may not be more than 64 bytes",
    ),
    (
        "a version that is none",
        of({"name": "d", "attributes": {"a": {"version": "1"}}}),
        (
            'spec.devices[0].attributes[a].version: Invalid value: "1": '
            "must be a string compatible with semver.org spec 2.0.0"
        ),
    ),
    (
        "counters of three sets",
        of({"name": "d", "consumesCounters": [using(f"s{number}")["consumesCounters"][0] for number in range(3)]}),
        "spec.devices[0].consumesCounters: Too many: 3: must have at most 2 items",
    ),
    (
        "nine counter sets",
        counters_of(*({**COUNTERS[0], "name": f"s{number}"} for number in range(9))),
        "spec.sharedCounters: Too many: 9: must have at most 8 items",
    ),
    (
        "33 counters in a set",
        counters_of({"name": "s", "counters": {f"m{number}": {"value": "1"} for number in range(33)}}),
        "spec.sharedCounters[0].counters: Too many: 33: must have at most 32 items",
    ),
    (
        "a taint with an effect that is none",
        of({"name": "d", "taints": [{"key": "a/b", "effect": "Never"}]}),
        (
            'spec.devices[0].taints[0].effect: Unsupported value: "Never": '
            'supported values: "NoExecute", "NoSchedule", "None"'
        ),
    ),
    (
        "17 taints",
        of({"name": "d", "taints": [{"key": f"a/b{number}", "effect": "NoSchedule"} for number in range(17)]}),
        "spec.devices[0].taints: Too many: 17: must have at most 16 items",
    ),
    (
        "a request policy for an exclusive device",
        of({"name": "d", "capacity": {"m": {"value": "8", "requestPolicy": POLICY}}}),
        "spec.devices[0].capacity[m].requestPolicy: Forbidden: allowMultipleAllocations must be true",
    ),
    (
        "a default beyond the policy's range",
        of({"name": "d", "allowMultipleAllocations": True, "capacity": {"m": {"value": "8", "requestPolicy": POLICY}}}),
        'spec.devices[0].capacity[m].requestPolicy.validRange.default: Invalid value: "9": default is more than max: 8',
    ),
    (
        "binding conditions that cannot fail",
        of({"name": "d", "bindingConditions": ["ready"]}),
        (
            "spec.devices[0].bindingFailureConditions: Invalid value: null: "
            "bindingFailureConditions are required to use bindingConditions"
        ),
    ),
]

CLAIMS: Final[list[tuple[str, Document, str]]] = [
    (
        "a request for nothing",
        asks({"name": "r"}),
        "spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required",
    ),
    (
        "no class",
        asks(exactly("r", "")),
        "spec.devices.requests[0].exactly.deviceClassName: Required value",
    ),
    (
        "a count below one",
        asks(exactly("r", "c", count=-1)),
        "spec.devices.requests[0].exactly.count: Invalid value: -1: must be greater than zero",
    ),
    (
        "a count of all",
        asks(exactly("r", "c", allocationMode="All", count=2)),
        "spec.devices.requests[0].exactly.count: Invalid value: 2: must not be specified when allocationMode is 'All'",
    ),
    (
        "nine alternatives",
        asks({"name": "r", "firstAvailable": [{**one, "deviceClassName": "c"} for one in numbered(9)]}),
        "spec.devices.requests[0].firstAvailable: Too many: 9: must have at most 8 items",
    ),
    (
        "a constraint on a request that is not there",
        asks(exactly("r", "c"), constraints=[{"requests": ["q"], "matchAttribute": "a/b"}]),
        (
            'spec.devices.constraints[0].requests[0]: Invalid value: "q": must be the name of a request '
            "in the claim or the name of a request and a subrequest separated by '/'"
        ),
    ),
    (
        "a constraint on an attribute of nobody",
        asks(exactly("r", "c"), constraints=[{"requests": ["r"], "matchAttribute": "b"}]),
        (
            'spec.devices.constraints[0].matchAttribute: Invalid value: "b": '
            "a fully qualified name must be a domain and a name separated by a slash"
        ),
    ),
    (
        "admin access without the namespace's label",
        asks(exactly("r", "c", adminAccess=True)),
        (
            "spec.devices.requests[0].adminAccess: Forbidden: admin access to devices requires the "
            "`resource.kubernetes.io/admin-access: true` label on the containing namespace"
        ),
    ),
    (
        "parameters that are no object",
        asks(exactly("r", "c"), config=[{"requests": ["r"], "opaque": {"driver": "d", "parameters": "text"}}]),
        'spec.devices.config[0].opaque.parameters: Invalid value: "<value omitted>": must be a valid JSON object',
    ),
    (
        "an operator that is none",
        asks(exactly("r", "c", tolerations=[{"key": "a", "operator": "Maybe"}])),
        (
            'spec.devices.requests[0].exactly.tolerations[0].operator: Unsupported value: "Maybe": '
            'supported values: "Equal", "Exists"'
        ),
    ),
    (
        "CEL that is none",
        asks(exactly("r", "c", selectors=[{"cel": {"expression": "device."}}])),
        (
            'spec.devices.requests[0].exactly.selectors[0].cel.expression: Invalid value: "device.": '
            "compilation failed: ERROR: <input>:1:8: Syntax error: no viable alternative at input '.'\n"
            " | device.\n"
            " | .......^"
        ),
    ),
    (
        "CEL that may cost too much",
        asks(exactly("r", "c", selectors=[{"cel": {"expression": '["a", "b"].max() == "b"'}}])),
        ("spec.devices.requests[0].exactly.selectors[0].cel.expression: Forbidden: too complex, exceeds cost limit"),
    ),
]


def _cases() -> list[object]:
    cases = [("ResourceSlice", case) for case in SLICES] + [("ResourceClaim", case) for case in CLAIMS]
    return [pytest.param(kind, document, said, id=name) for kind, (name, document, said) in cases]


@pytest.mark.parametrize(("kind", "document", "said"), _cases())
async def test_it_refuses(server: Api, kind: str, document: Document, said: str) -> None:
    with pytest.raises(StatusError) as info:
        await server.create(document, dryRun="All")
    assert (info.value.code, info.value.reason) == (422, "Invalid")
    assert info.value.message == f'{kind}.resource.k8s.io "x" is invalid: {said}'


@pytest.mark.parametrize(
    ("expression", "said"), [("1", r"must evaluate to bool.*, not int"), ("device.nothing", "nothing|reference")]
)
async def test_an_expression_must_have_the_right_type(server: Api, expression: str, said: str) -> None:
    with pytest.raises(StatusError, match=said) as info:
        await server.create(asks(exactly("r", "c", selectors=[{"cel": {"expression": expression}}])), dryRun="All")
    assert info.value.code == 422


async def test_a_quantity_is_checked_before_anything_else(server: Api) -> None:
    with pytest.raises(StatusError, match="quantities must match the regular expression") as info:
        await server.create(of({"name": "d", "capacity": {"m": {"value": "1 GB"}}}), dryRun="All")
    assert info.value.code == 400


async def test_the_place_of_a_slice_is_for_ever(server: Api) -> None:
    await server.create(of(DEVICE))
    for change, path in [
        ({"nodeName": "n2"}, "spec.nodeName"),
        ({"driver": "other.example.com"}, "spec.driver"),
        ({"pool": {"name": "other"}}, "spec.pool.name"),
    ]:
        with pytest.raises(StatusError, match=f'{path}: Invalid value: ".*": field is immutable') as info:
            await server.patch(RESOURCE, "ResourceSlice", "x", {"spec": change})
        assert info.value.code == 422
    await server.delete(RESOURCE, "ResourceSlice", "x")


async def test_what_a_claim_asks_for_is_for_ever(server: Api, space: str) -> None:
    await server.create(claim("c", space, exactly("r", "a")))
    other = {"spec": {"devices": {"requests": [exactly("r", "b")]}}}
    with pytest.raises(StatusError, match=r"spec: Invalid value: .*: field is immutable") as info:
        await server.patch(RESOURCE, "ResourceClaim", "c", other, space)
    assert info.value.code == 422


async def test_defaults_are_filled_in(server: Api, space: str) -> None:
    made = await server.create(claim("c", space, exactly("r", "a")))
    assert made["spec"]["devices"]["requests"][0]["exactly"] == {
        "deviceClassName": "a",
        "allocationMode": "ExactCount",
        "count": 1,
    }


async def test_a_taint_gets_the_time_of_the_write(server: Api) -> None:
    made = await server.create(of({"name": "d", "taints": [{"key": "a/b", "effect": "NoSchedule"}]}))
    await server.delete(RESOURCE, "ResourceSlice", "x")
    assert made["spec"]["devices"][0]["taints"][0]["timeAdded"]


async def test_a_class_may_not_take_the_name_of_a_resource_of_kubernetes(server: Api) -> None:
    document = device_class("x")
    document["spec"]["extendedResourceName"] = "cpu"
    with pytest.raises(StatusError, match="a name must be a domain-prefixed path") as info:
        await server.create(document, dryRun="All")
    assert info.value.code == 422
