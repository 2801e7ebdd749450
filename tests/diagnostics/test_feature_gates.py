"""The features of a cluster: the defaults of its version, and those that its objects use."""

import dataclasses
from typing import Any

import msgspec
import pytest

from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.devices import Device
from kerf_dra.api.wire import dec_hook
from kerf_dra.driver.allocation import Features
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.explain.report import Verdict
from kerf_dra.driver.diagnostics.feature_gates import detect_features, find_unsupported
from kerf_dra.driver.diagnostics.plan import plan_workloads
from tests.diagnostics.test_plan import template
from tests.fakes.cluster_states import gpu_cluster, parse, replace

FIELDS = [field.name for field in dataclasses.fields(Features)]
NEWEST = {field for field in FIELDS if getattr(Features(), field)}


def enabled_features(state: ClusterState) -> set[str]:
    features = detect_features(state)
    return {field for field in FIELDS if getattr(features, field)}


@pytest.mark.parametrize(
    ("version", "features"),
    [
        ("1.32", set()),
        ("1.34", {"admin_access", "prioritized_list"}),
        ("1.36", NEWEST - {"fractional_capacity_range"}),
        ("1.37", NEWEST),
        ("1.40", NEWEST),
        ("", NEWEST),
    ],
)
def test_an_empty_cluster_has_what_its_version_has_by_default(version: str, features: set[str]) -> None:
    assert enabled_features(ClusterState(kubernetes=version)) == features


DEVICES: dict[str, dict[str, Any]] = {
    "partitionable_devices": {"consumesCounters": [{"counterSet": "s", "counters": {}}]},
    "device_taints": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
    "device_binding_and_status": {"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]},
    "consumable_capacity": {"allowMultipleAllocations": True},
    "list_type_attributes": {"attributes": {"tags": {"strings": ["a"]}}},
}
REQUESTS: dict[str, dict[str, Any]] = {
    "admin_access": {"exactly": {"deviceClassName": "c", "adminAccess": True}},
    "prioritized_list": {"firstAvailable": [{"name": "s", "deviceClassName": "c"}]},
    "consumable_capacity": {"exactly": {"deviceClassName": "c", "capacity": {"requests": {"memory": "1"}}}},
    "device_taints": {"exactly": {"deviceClassName": "c", "tolerations": [{"operator": "Exists"}]}},
    "derived_attributes": {
        "exactly": {"deviceClassName": "c", "derivedAttributes": [{"name": "a", "expression": "true"}]}
    },
}


def claim_with_request(request: dict[str, Any]) -> ResourceClaim:
    spec = {"devices": {"requests": [{"name": "r", **request}]}}
    return msgspec.convert(
        {"metadata": {"name": "c", "namespace": "n"}, "spec": spec}, ResourceClaim, dec_hook=dec_hook
    )


@pytest.mark.parametrize("feature", DEVICES)
def test_what_a_device_has_is_on_whatever_the_version(feature: str) -> None:
    device = msgspec.convert({"name": "d", **DEVICES[feature]}, Device, dec_hook=dec_hook)
    published = gpu_cluster().slices[-1]
    published = replace(published, spec=replace(published.spec, devices=(device,), shared_counters=()))
    assert enabled_features(ClusterState(kubernetes="1.32", slices=(published,))) == {feature}


@pytest.mark.parametrize("feature", REQUESTS)
def test_what_a_claim_has_is_on_and_what_a_document_has_besides_is_told(feature: str) -> None:
    claim = claim_with_request(REQUESTS[feature])
    state = ClusterState(kubernetes="1.32", claims=(claim,))
    assert enabled_features(state) == {feature}
    assert len(find_unsupported([claim], detect_features(ClusterState(kubernetes="1.32")))) == 1
    assert not find_unsupported([claim], detect_features(state))


def test_a_plan_for_an_older_cluster_says_what_would_be_dropped() -> None:
    """It was planned as if the cluster were of the newest version."""
    document = template("t", "1g-10gb")
    request = document["spec"]["spec"]["devices"]["requests"][0]["exactly"]
    request["capacity"] = {"requests": {"memory": "1Gi"}}
    cluster = ClusterIndex(replace(gpu_cluster(), kubernetes="1.34"))
    answer = plan_workloads(cluster, parse(cluster, document).workloads)
    assert answer.unheeded == ("capacity requests (DRAConsumableCapacity)",)
    assert answer.unplaced[0].why.verdict is Verdict.INVALID
    newest = ClusterIndex(replace(gpu_cluster(), kubernetes="1.37"))
    assert not plan_workloads(newest, parse(newest, document).workloads).unheeded
