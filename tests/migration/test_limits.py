"""Pods that count devices become pods with claims, and what has no equivalent is said."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.api.kerf.decoder import decode_resource_class
from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.migration.akri import migrate_akri_objects
from kerf_dra.driver.migration.limits import find_offered, migrate_workload
from tests.api.kerf.documents import damaged_documents
from tests.fakes.cluster_states import gpu_cluster, parse


def pod(limits: dict[str, Any], *, init: dict[str, Any] | None = None, **annotations: str) -> JsonObject:
    containers: list[JsonObject] = [
        {"name": "main", "resources": {"limits": {"cpu": "2", **limits}, "requests": {"cpu": "1", **limits}}},
        {"name": "side", "resources": {"limits": {"memory": "1Gi"}}},
    ]
    metadata: JsonObject = {"name": "p", "namespace": "team"}
    if annotations:
        metadata["annotations"] = {name.replace("_", "-"): value for name, value in annotations.items()}
    spec: JsonObject = {"containers": containers}
    if init is not None:
        spec["initContainers"] = [{"name": "first", "resources": {"limits": init}}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def converted(document: JsonObject, **offered: str) -> dict[str, list[Any]]:
    result = migrate_workload(document, offered)
    assert result is not None
    found: dict[str, list[Any]] = {"remarks": [*result.remarks]}
    for each in result.documents:
        found.setdefault(str(each["kind"]), []).append(each)
    return found


@pytest.mark.parametrize(
    ("limits", "class_spec", "exactly"),
    [
        (
            {"nvidia.com/gpu": 2},
            {"device": "gpu", "cut": "Whole"},
            {"deviceClassName": "gpu-whole", "count": 2},
        ),
        (
            {"nvidia.com/mig-1g.10gb": "1"},
            {"device": "gpu", "profile": "1g.10gb"},
            {"deviceClassName": "gpu-1g-10gb"},
        ),
        (
            {"gpu.intel.com/i915": "1"},
            {"device": "gpu-intel", "cut": "Whole"},
            {"deviceClassName": "intel-card"},
        ),
        (
            {"gpu.intel.com/xe": 1, "gpu.intel.com/tiles": 2},
            {"device": "gpu-intel", "profile": "1t"},
            {"deviceClassName": "intel-tile", "count": 2},
        ),
        (
            {"gpu.intel.com/i915": "2", "gpu.intel.com/memory.max": "8Gi", "gpu.intel.com/millicores": "501"},
            {"device": "gpu-intel", "cut": "Whole", "allocation": "Shared"},
            {
                "deviceClassName": "intel-share",
                "count": 2,
                "capacity": {"requests": {"memory": "4Gi", "millicores": "251"}},
            },
        ),
    ],
    ids=["cards", "MIG", "Intel's cards", "tiles", "GS-07: a sum is divided by the cards"],
)
def test_limits_of_device_plugins_become_a_class_a_template_and_a_claim(
    limits: dict[str, Any], class_spec: JsonObject, exactly: JsonObject
) -> None:
    document = pod(limits)
    found = converted(document)
    assert document == pod(limits), "the input stays"
    [made] = found["ResourceClass"]
    assert made["spec"] == class_spec
    decode_resource_class(made)
    [template] = found["ResourceClaimTemplate"]
    assert template["metadata"] == {"name": "p-main", "namespace": "team"}
    assert template["spec"]["spec"]["devices"]["requests"] == [{"name": "device", "exactly": exactly}]
    [workload] = found["Pod"]
    main, side = workload["spec"]["containers"]
    assert main["resources"] == {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}, "claims": [{"name": "main"}]}
    assert side["resources"] == {"limits": {"memory": "1Gi"}}
    assert workload["spec"]["resourceClaims"] == [{"name": "main", "resourceClaimTemplateName": "p-main"}]


def test_what_was_converted_can_be_planned() -> None:
    result = migrate_workload(pod({"nvidia.com/mig-1g.10gb": 2}), {})
    assert result is not None
    cluster = ClusterIndex(gpu_cluster())
    [workload] = parse(cluster, *result.documents).workloads
    assert [request.exactly.count for request in workload.claims[0].claim.spec.devices.requests if request.exactly] == [
        2
    ]


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "Job", "ReplicaSet", "CronJob"])
def test_workloads_are_converted_in_their_templates(kind: str) -> None:
    template = pod({"nvidia.com/gpu": 1}, init={"nvidia.com/gpu": 1})
    inner: JsonObject = {"template": {"metadata": {}, "spec": template["spec"]}}
    spec = {"jobTemplate": {"spec": inner}} if kind == "CronJob" else inner
    found = converted({"apiVersion": "x/v1", "kind": kind, "metadata": {"name": "w"}, "spec": spec})
    assert [each["metadata"]["name"] for each in found["ResourceClaimTemplate"]] == ["w-first", "w-main"]
    assert len(found["ResourceClass"]) == 1
    made = found[kind][0]["spec"]
    made = made["jobTemplate"]["spec"] if kind == "CronJob" else made
    assert [each["name"] for each in made["template"]["spec"]["resourceClaims"]] == ["first", "main"]


def test_a_resource_of_kerfs_own_class_becomes_a_claim_of_it() -> None:
    class_ = {
        "kind": "ResourceClass",
        "metadata": {"name": "small"},
        "spec": {"device": "gpu", "devicePlugin": {"resource": "kerf.dev/small", "perNode": 2}},
    }
    offered = find_offered([class_, pod({})])
    assert offered == {"kerf.dev/small": "small"}
    result = migrate_workload(pod({"kerf.dev/small": 1}), offered)
    assert result is not None
    template, workload = result.documents
    assert template["spec"]["spec"]["devices"]["requests"][0]["exactly"] == {"deviceClassName": "small"}
    assert workload["kind"] == "Pod"
    assert "remove devicePlugin from ResourceClass small" in result.remarks[0]


def test_what_the_extender_decided_is_dropped_and_what_a_user_told_it_is_a_remark() -> None:
    """RM-08, GS-02 to GS-04."""
    found = converted(
        pod(
            {"gpu.intel.com/xe": 1},
            gas_ts="1700000000",
            gas_container_cards="card0",
            gas_container_tiles="card0:gt1",
            gas_same_gpu="main,side",
            gas_deny="card2",
            gas_unheard="of",
        )
    )
    assert "annotations" not in found["Pod"][0]["metadata"]
    assert [remark.split(": left out: ")[0] for remark in found["remarks"]] == [
        "Pod p: annotation gas-deny: card2",
        "Pod p: annotation gas-same-gpu: main,side",
        "Pod p: annotation gas-unheard: of",
    ]
    assert "let the containers use one claim" in found["remarks"][1]
    assert "no equivalent that is known" in found["remarks"][2]


def test_what_asks_for_no_device_is_left_alone() -> None:
    assert migrate_workload(pod({}), {}) is None
    assert migrate_workload(pod({"example.com/licence": 1}), {}) is None
    assert migrate_workload({"kind": "Service", "metadata": {"name": "s"}, "spec": {}}, {}) is None
    assert migrate_workload({"kind": "Deployment", "metadata": {"name": "d"}, "spec": None}, {}) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"spec": {"containers": 5}}, "Expected `array | null`, got `int` - at `$.spec.containers`"),
        ({"spec": {"containers": [{"image": "a"}]}}, "missing required field `name` - at `$.spec.containers[0]`"),
        ({"spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "x"}}}]}}, "container c: "),
        ({"metadata": [1]}, "Expected `object`, got `array`"),
    ],
    ids=["containers are a number", "a container without a name", "no quantity", "metadata is a list"],
)
def test_a_workload_that_cannot_be_read_is_left_out_with_the_place(change: JsonObject, said: str) -> None:
    """A fault of Kerf was told, or all that was to be converted was lost for one amount."""
    result = migrate_workload({**pod({"nvidia.com/gpu": 1}), **change}, {})
    assert result is not None
    assert not result.documents
    [remark] = result.remarks
    assert remark.startswith("Pod ")
    assert "left out: " in remark
    assert said in remark


@given(damaged_documents(st.builds(pod, st.just({"nvidia.com/gpu": 1, "akri.sh/cameras": "2", "gpu.intel.com/xe": 1}))))
def test_whatever_a_workload_is_it_is_converted_or_left_out(document: Any) -> None:
    if isinstance(document, dict):
        find_offered([document])
        migrate_workload(document, {})
        list(migrate_akri_objects([{**document, "apiVersion": "akri.sh/v0", "kind": "Configuration"}], lambda *_: None))


def test_a_monitoring_resource_is_a_remark() -> None:
    found = converted(pod({"gpu.intel.com/xe_monitoring": 1, "nvidia.com/gpu": 1}))
    assert "cut: Monitor" in found["remarks"][0]
