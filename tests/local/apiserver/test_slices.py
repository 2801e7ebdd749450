"""Slices and taint rules: what a driver may publish.

Every cause below is what kube-apiserver 1.37 reported of the same document.
"""

from typing import Any

import pytest

from tests.local.apiserver.api_client import Api
from tests.local.apiserver.resources import RULES, SLICES, TAINTED, device, slice_of

COUNTERS: dict[str, Any] = {"m": {"value": "1"}}
SHAREABLE: dict[str, Any] = {"allowMultipleAllocations": True}


def policy(**policy: Any) -> dict[str, Any]:
    return device(**SHAREABLE, capacity={"c": {"value": "10", "requestPolicy": policy}})


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (slice_of(driver=""), "spec.driver: Required value"),
        (slice_of(driver="A_b"), 'spec.driver: Invalid value: "A_b"'),
        (slice_of(pool={"name": "a//b", "resourceSliceCount": 1}), "spec.pool.name: Invalid value"),
        (
            slice_of(pool={"name": "a", "generation": -1}),
            "spec.pool.generation: Invalid value: -1: must be greater than or equal to zero",
        ),
        (slice_of(pool={"name": "a"}), "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero"),
        (slice_of(nodeName=...), "spec: Required value: exactly one of `nodeName`, `nodeSelector`, `allNodes`"),
        (slice_of(allNodes=True), 'spec: Invalid value: "{`nodeName`, `allNodes`}"'),
        (slice_of(nodeName=""), 'spec.nodeName: Invalid value: "": must be either unset or set to a non-empty string'),
        (slice_of(allNodes=False), "spec.allNodes: Invalid value: false: must be either unset or set to true"),
        (
            slice_of(nodeName=..., nodeSelector={"nodeSelectorTerms": [{}, {}]}),
            "must have exactly one node selector term",
        ),
        (slice_of(device(), sharedCounters=[]), "only one of `sharedCounters` or `devices` is allowed"),
        (slice_of(*(device(f"d{n}") for n in range(129))), "spec.devices: Too many: 129: must have at most 128 items"),
        (
            slice_of(*(device(f"d{n}", **TAINTED) for n in range(65))),
            "spec.devices: Too many: 65: must have at most 64 items",
        ),
        (slice_of(device(), device()), 'spec.devices[1]: Duplicate value: "d"'),
        (slice_of(device("A_")), 'spec.devices[0].name: Invalid value: "A_"'),
        (slice_of(device(attributes={f"a{n}": {"int": 1} for n in range(33)})), "must not exceed 32"),
        (
            slice_of(device(attributes={"a": {"string": "x" * 65}})),
            "attributes[a].string: Too long: may not be more than 64 bytes",
        ),
        (
            slice_of(device(attributes={"a": {"version": "1.x"}})),
            "must be a string compatible with semver.org spec 2.0.0",
        ),
        (slice_of(device(attributes={"a": {}})), "must specify one of: `int`, `bool`, `string`, `version`"),
        (
            slice_of(device(attributes={"a": {"int": 1, "bool": True}})),
            'Invalid value: "{int, bool}": must specify exactly one of',
        ),
        (slice_of(device(attributes={"1a": {"int": 1}})), "a valid C identifier must start with alphabetic character"),
        (slice_of(device(attributes={"/a": {"int": 1}})), "the domain must not be empty"),
        (slice_of(device(attributes={"a.b/": {"int": 1}})), "the name must not be empty"),
        (
            slice_of(device(taints=[{"key": "k", "effect": "X"}])),
            'spec.devices[0].taints[0].effect: Unsupported value: "X"',
        ),
        (
            slice_of(device(taints=[{"key": "k", "effect": "None"}] * 17)),
            "taints: Too many: 17: must have at most 16 items",
        ),
        (
            slice_of(device(consumesCounters=[{"counterSet": f"c{n}", "counters": COUNTERS} for n in range(3)])),
            "consumesCounters: Too many: 3: must have at most 2 items",
        ),
        (slice_of(device(consumesCounters=[{}])), "spec.devices[0].consumesCounters[0].counters: Required value"),
        (
            slice_of(device(bindingConditions=["a"], bindingFailureConditions=["a"])),
            "must not overlap with bindingConditions",
        ),
        (slice_of(device(nodeName="n")), "can only be set if `perDeviceNodeSelection` is set to true"),
        (
            slice_of(device(), nodeName=..., perDeviceNodeSelection=True),
            "spec.devices[0]: Required value: exactly one of",
        ),
        (
            slice_of(sharedCounters=[{"name": f"c{n}", "counters": COUNTERS} for n in range(9)]),
            "spec.sharedCounters: Too many: 9: must have at most 8 items",
        ),
        (
            slice_of(sharedCounters=[{"name": "c", "counters": {f"m{n}": {"value": "1"} for n in range(33)}}]),
            "spec.sharedCounters[0].counters: Too many: 33: must have at most 32 items",
        ),
        (
            slice_of(sharedCounters=[{"name": "c", "counters": {"A": {"value": "1"}}}]),
            "spec.sharedCounters[0].counters: Invalid value",
        ),
        (
            slice_of(device(capacity={"c": {"value": "1", "requestPolicy": {}}})),
            "allowMultipleAllocations must be true",
        ),
        (slice_of(policy(validValues=["1"])), "default: Required value: required when validValues is defined"),
        (slice_of(policy(default="3", validValues=["2", "1"])), "values must be sorted in ascending order"),
        (slice_of(policy(default="1", validValues=["1", "11"])), "option is larger than capacity value: 10"),
        (slice_of(policy(default="1", validValues=["1", "1"])), 'Duplicate value: "1"'),
        (slice_of(policy(default="3", validValues=["1"])), "default value is not valid according to the requestPolicy"),
        (
            slice_of(policy(default="3", validRange={})),
            "validRange.min: Required value: required when validRange is defined",
        ),
        (slice_of(policy(default="3", validRange={"min": "4"})), "default is less than min: 4"),
        (slice_of(policy(default="3", validRange={"min": "1", "max": "2"})), "default is more than max: 2"),
        (slice_of(policy(default="3", validRange={"min": "1", "max": "11"})), "max is larger than capacity value: 10"),
        (
            slice_of(policy(default="3", validRange={"min": "1", "step": "0"})),
            'validRange.step: Invalid value: "0": must be greater than zero',
        ),
        (
            slice_of(policy(default="3", validRange={"min": "1", "step": "4"})),
            "value is not a multiple of a given step (4) from (1)",
        ),
        (
            slice_of(policy(default="1", validRange={"min": "1"}, validValues=["1"])),
            "exactly one policy can be specified",
        ),
        (slice_of(policy(default="1", validValues=[f"{n}" for n in range(1, 12)])), "must have at most 10 items"),
        (slice_of(policy(validRange={"min": "1"})), "default: Required value: required when validRange is defined"),
        (slice_of(policy(default="3", validRange={"min": "11"})), "min is larger than capacity value: 10"),
        (slice_of(policy(default="3", validRange={"min": "3", "max": "2"})), "min is larger than max: 2"),
        (
            slice_of(policy(default="3", validRange={"min": "3", "step": "8"})),
            "one step 11 is larger than capacity value: 10",
        ),
        (slice_of(nodeName="A_"), 'spec.nodeName: Invalid value: "A_"'),
        (
            slice_of(device(nodeName="A_"), nodeName=..., perDeviceNodeSelection=True),
            'spec.devices[0].nodeName: Invalid value: "A_"',
        ),
        (
            slice_of(device(nodeName=""), nodeName=..., perDeviceNodeSelection=True),
            'spec.devices[0].nodeName: Invalid value: "": must not be empty',
        ),
        (
            slice_of(device(allNodes=False), nodeName=..., perDeviceNodeSelection=True),
            "spec.devices[0].allNodes: Invalid value: false: must be either unset or set to true",
        ),
        (
            slice_of(device(nodeName="n", allNodes=True), nodeName=..., perDeviceNodeSelection=True),
            'spec.devices[0]: Invalid value: "{`nodeName`, `allNodes`}": exactly one of',
        ),
        (
            slice_of(device(nodeSelector={"nodeSelectorTerms": []}), nodeName=..., perDeviceNodeSelection=True),
            "spec.devices[0].nodeSelector.nodeSelectorTerms: Required value",
        ),
    ],
)
async def test_a_bad_slice_is_refused_with_the_field(api: Api, body: dict[str, Any], cause: str) -> None:
    answer = await api.post(SLICES, body)
    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    assert any(cause in each for each in answer.causes), answer.causes


async def test_an_amount_is_stored_in_its_canonical_form(api: Api) -> None:
    capacity = {"a": {"value": "1024Mi"}, "b": {"value": 0.5}, "c": {"value": 3000}, "d": {"value": "80Gi"}}
    body = await api.made(SLICES, slice_of(device(capacity=capacity)))
    stored = body["spec"]["devices"][0]["capacity"]
    assert {name: entry["value"] for name, entry in stored.items()} == {"a": "1Gi", "b": "500m", "c": "3k", "d": "80Gi"}


async def test_what_is_no_amount_cannot_be_decoded(api: Api) -> None:
    answer = await api.post(SLICES, slice_of(device(capacity={"a": {"value": "x"}})))
    assert answer.status == 400
    assert answer.body["message"].startswith(
        'ResourceSlice in version "v1" cannot be handled as a ResourceSlice: quantities must match'
    )


async def test_a_full_slice_is_accepted(api: Api) -> None:
    attributes = {
        "a": {"string": "x" * 64},
        "d.example.com/b": {"int": -1},
        "c": {"bool": False},
        "v": {"version": "1.2.3-rc.1"},
    }
    devices = [device(f"d{n}", attributes=attributes, capacity={"memory": {"value": "80Gi"}}) for n in range(128)]
    assert (await api.made(SLICES, slice_of(*devices)))["metadata"]["generation"] == 1


async def test_a_slices_identity_never_changes(api: Api) -> None:
    await api.made(SLICES, slice_of(device()))
    answer = await api.merge(f"{SLICES}/s", {"spec": {"driver": "e", "nodeName": "n2", "pool": {"name": "n2"}}})
    assert [cause.partition(":")[0] for cause in answer.causes] == ["spec.pool.name", "spec.driver", "spec.nodeName"]


async def test_taints_are_dated_when_they_are_not(api: Api) -> None:
    body = await api.made(SLICES, slice_of(device(**TAINTED)))
    assert body["spec"]["devices"][0]["taints"][0]["timeAdded"] == "2026-01-01T12:00:00Z"


async def test_a_taint_rules_new_effect_counts_from_its_change(api: Api) -> None:
    rule = {"metadata": {"name": "r"}, "spec": {"taint": {"key": "a/b", "effect": "NoSchedule"}}}
    assert (await api.made(RULES, rule))["spec"]["taint"]["timeAdded"] == "2026-01-01T12:00:00Z"
    api.clock.advance(60)
    body = (await api.merge(f"{RULES}/r", {"spec": {"taint": {"effect": "NoExecute"}}})).body
    assert body["spec"]["taint"]["timeAdded"] == "2026-01-01T12:01:00Z"
    assert body["metadata"]["generation"] == 2


async def test_a_bad_taint_rule_is_refused(api: Api) -> None:
    spec = {"deviceSelector": {"driver": "A_", "pool": "", "device": "B"}, "taint": {"effect": "X"}}
    answer = await api.post(RULES, {"metadata": {"name": "r"}, "spec": spec})
    assert {cause.partition(":")[0] for cause in answer.causes} == {
        "spec.deviceSelector.driver",
        "spec.deviceSelector.pool",
        "spec.deviceSelector.device",
        "spec.taint.key",
        "spec.taint.effect",
    }
