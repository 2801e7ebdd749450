"""``python -m tests.conformance allocator FILE.jsonl``: the allocator against recorded answers of kube-scheduler's.

One case a line: ``features``, ``classes``, ``slices``, ``node``, ``claims`` and ``allocated`` as input, ``expect`` as
the answer of ``k8s.io/dynamic-resource-allocation/structured``; or ``fits`` instead, where only that is known. Results
are compared device by device in their order, quantities by value, share ids not at all; errors by presence and kind.
"""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kerf_dra.api.model.allocations import AllocationResult
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.claims import DeviceClass, ResourceClaim
from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.api.model.names import DeviceId, ShareId
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.api.wire import dec_hook
from kerf_dra.driver.allocation import (
    AllocatedState,
    Budget,
    DoesNotFit,
    Failed,
    Features,
    Fits,
    NodeView,
    Outcome,
    PoolIndex,
    allocate,
)

INTENDED: Final[Mapping[str, str]] = {}
"""Cases in which we mean to differ: name, and why. They count as passed when we differ, as failed when we do not."""

BUDGET: Final = Budget(seconds=10.0, clock=time.thread_time)
"""The time that kube-scheduler gives a node (gate DRASchedulerFilterTimeout), here without that of other processes."""

SHARE: Final = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"
"""Stands for every random share id."""

FLAGS: Final = {
    "AdminAccess": "admin_access",
    "CompatibilityGroups": "compatibility_groups",
    "ConsumableCapacity": "consumable_capacity",
    "DerivedAttributes": "derived_attributes",
    "DeviceBindingAndStatus": "device_binding_and_status",
    "DeviceTaints": "device_taints",
    "FractionalCapacityRange": "fractional_capacity_range",
    "ListTypeAttributes": "list_type_attributes",
    "OptionalNodeOperations": "optional_node_operations",
    "PartitionableDevices": "partitionable_devices",
    "PrioritizedList": "prioritized_list",
}


def run(path: Path, arguments: Sequence[str]) -> tuple[int, int]:
    """Judge every case of ``path``; prints each disagreement. ``--timing`` also prints each case's time.

    Returns how many passed and how many failed.
    """
    passed = failed = 0
    for line in path.read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        started = time.perf_counter()
        outcome = answer(case)
        took_s = time.perf_counter() - started
        disagreement = compare(case, outcome)
        intended = case["name"] in INTENDED
        if "--timing" in arguments:
            print(f"{case['name']}: {took_s * 1000:.1f} ms, {describe(outcome)}")
        if (disagreement is None) != intended:
            passed += 1
            continue
        failed += 1
        print(f"{case['name']}: {disagreement or 'agrees, but was meant to differ: ' + INTENDED[case['name']]}")
    return passed, failed


def answer(case: JsonObject) -> Outcome:
    """What our allocator says to a case."""
    flags = case["features"]
    node = case["node"]
    classes = [_convert(each, DeviceClass) for each in case["classes"]]
    return allocate(
        PoolIndex.build(_convert(each, ResourceSlice) for each in case["slices"]),
        [_convert(each, ResourceClaim) for each in case["claims"]],
        NodeView(
            name=node["metadata"]["name"],
            labels=node["metadata"].get("labels", {}),
            declared_features=frozenset(node.get("status", {}).get("declaredFeatures", ())),
        ),
        {each.metadata.name: each for each in classes},
        _allocated(case["allocated"]),
        Features(**{field: bool(flags.get(flag, False)) for flag, field in FLAGS.items()}),
        share_id=lambda: SHARE,
        budget=BUDGET,
    )


def compare(case: JsonObject, outcome: Outcome) -> str | None:
    """How our answer differs from the recorded one; None: it does not."""
    if "expect" not in case:
        wanted = "fits" if case["fits"] else "does not fit"
        return (
            None if isinstance(outcome, Fits if case["fits"] else DoesNotFit) else f"{wanted}, not {describe(outcome)}"
        )
    expect = case["expect"]
    if expect["error"] is not None:
        is_same = isinstance(outcome, Failed) and outcome.kind == expect["errorKind"]
        return None if is_same else f"fails ({expect['errorKind']}: {expect['error']}), not {describe(outcome)}"
    if expect["results"] is None:
        return None if isinstance(outcome, DoesNotFit) else f"does not fit, not {describe(outcome)}"
    wanted_results = tuple(_convert(result, AllocationResult) for result in expect["results"])
    if isinstance(outcome, Fits) and _comparable(outcome.results) == _comparable(wanted_results):
        return None
    return f"{describe(Fits(wanted_results))}, not {describe(outcome)}"


def describe(outcome: Outcome) -> str:
    match outcome:
        case Fits(results):
            return "fits: " + msgspec.json.encode(results, enc_hook=str).decode()
        case DoesNotFit(reasons):
            return f"does not fit: {'; '.join(map(str, reasons))}"
        case Failed(kind, message):
            return f"fails ({kind}: {message})"
        case undecided:
            return str(undecided)


def _comparable(results: Sequence[AllocationResult]) -> list[AllocationResult]:
    """The results with the same share id everywhere."""
    return [
        replace(
            result,
            devices=replace(
                result.devices,
                results=tuple(replace(device, share_id=device.share_id and SHARE) for device in result.devices.results),
            ),
        )
        for result in results
    ]


def _allocated(allocated: JsonObject) -> AllocatedState:
    shares = {ShareId(_id(each), each["shareID"]) for each in allocated["sharedDevices"]}
    return AllocatedState(
        exclusive=frozenset(_id(each) for each in allocated["devices"]),
        shares=frozenset(shares),
        consumed={
            _id(each): {name: Quantity(amount) for name, amount in each["capacity"].items()}
            for each in allocated["consumedCapacity"]
        },
    )


def _id(each: JsonObject) -> DeviceId:
    return DeviceId(each["driver"], each["pool"], each["device"])


def _convert(value: object, type_: Any) -> Any:
    return msgspec.convert(value, type_, dec_hook=dec_hook)
