"""Pods that count devices become pods with claims, and what has no equivalent is said."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.api.kerf.decoder import decode_resource_class
from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.migration.akri import migrate_akri_objects
from kerf_dra.driver.migration.limits import find_offered, find_offered_by_dra, migrate_workload
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
    found: dict[str, list[Any]] = {"remarks": [*result.remarks], "left": [*result.left]}
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
    assert [remark.split(": left out: ")[0] for remark in found["left"]] == [
        "Pod p: annotation gas-deny: card2",
        "Pod p: annotation gas-same-gpu: main,side",
        "Pod p: annotation gas-unheard: of",
    ]
    assert "let the containers use one claim" in found["left"][1]
    assert "no equivalent that is known" in found["left"][2]


def test_what_asks_for_no_device_is_left_with_that_reason() -> None:
    [line] = converted(pod({}))["left"]
    assert line == "Pod p: left out: its containers have no limits of devices"
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
    assert all(line.startswith("Pod ") for line in result.left)
    assert ": left out: " in result.left[-1]
    assert said in "".join(result.left)


@given(damaged_documents(st.builds(pod, st.just({"nvidia.com/gpu": 1, "akri.sh/cameras": "2", "gpu.intel.com/xe": 1}))))
def test_whatever_a_workload_is_it_is_converted_or_left_out(document: Any) -> None:
    if isinstance(document, dict):
        find_offered([document])
        migrate_workload(document, {})
        list(migrate_akri_objects([{**document, "apiVersion": "akri.sh/v0", "kind": "Configuration"}], lambda *_: None))


@pytest.mark.parametrize(
    ("resource", "reason"),
    [
        ("fpga.intel.com/arria10.dcp1.2-nlb3-orchestrated", "Intel's FPGA plugin"),
        ("fpga.intel.com/region-d8424dc4a4a3c413f89e433683f9040b", "Intel's FPGA plugin"),
        ("amd.com/xilinx_u250_gen3x16_xdma_shell_4_1-0", "AMD's FPGA plugin"),
        ("xilinx.com/fpga-xilinx_u200_xdma_201830_2-1535712995", "AMD's FPGA plugin"),
        ("nvidia.com/gpu.shared", "lends to several pods"),
        ("nvidia.com/mig-1g.10gb.shared", "lends to several pods"),
        ("nvidia.com/mig-4c.7g.80gb", "compute instance"),
        ("nvidia.com/mig-1c.3g.40gb.me", "compute instance"),
        ("nvidia.com/mig-5g.50gb", "no GPU model that Kerf knows has the profile 5g.50gb"),
        ("nvidia.com/gpumem", "HAMi counts"),
        ("nvidia.com/gpucores", "HAMi counts"),
        ("nvidia.com/gpu-10gb", "a part of a card that another project counts"),
        ("volcano.sh/vgpu-memory", "a part of a card that another project counts"),
        ("aliyun.com/gpu-mem", "a part of a card that another project counts"),
        ("example.com/gpumem", "a part of a card that another project counts"),
        ("nvidia.com/GA102GL_A10", "that Kerf knows"),
        ("amd.com/gpu", "no backend for AMD's GPUs"),
        ("gpu.intel.com/xe_monitoring", "cut: Monitor"),
        ("gpu.intel.com/sriov-gpudevice", "Intel's GPU plugin"),
        ("kerf.dev/small", "the ResourceClass that has it as devicePlugin.resource"),
        ("habana.ai/gaudi", "a vendor for whose cards Kerf has no backend"),
        ("mthreads.com/vgpu", "a vendor for whose cards Kerf has no backend"),
        ("example.com/licence", "Kerf serves no such devices"),
    ],
)
def test_a_container_with_a_resource_that_is_not_converted_stays_as_it_is_with_the_reason(
    resource: str, reason: str
) -> None:
    """A pod got a whole card for itself, and kept limits that no program serves."""
    document = pod({"nvidia.com/gpu": 1, resource: 1}, init={"nvidia.com/mig-1g.10gb": 1})
    found = converted(document)
    [template], [workload] = found["ResourceClaimTemplate"], found["Pod"]
    assert template["metadata"]["name"] == "p-first"
    assert workload["spec"]["containers"] == document["spec"]["containers"]
    with_it, itself = found["left"]
    assert with_it == (
        "Pod p, container main: resources.limits.nvidia.com/gpu: left as it is: a container is converted as a whole, "
        f"and {resource} is not"
    )
    assert itself.startswith(f"Pod p, container main: resources.limits.{resource}: left as it is: ")
    assert reason in itself
    alone = converted(pod({resource: 1}))
    assert [*alone] == ["remarks", "left"], "no document"
    assert alone["left"][-1] == "Pod p: left out: none of its containers is converted"


@pytest.mark.parametrize("resource", ["rdma/hca_shared_devices_a", "vpc.amazonaws.com/efa", "smarter-devices/fuse"])
def test_a_resource_that_has_nothing_to_do_with_cards_stays_beside_the_claim(resource: str) -> None:
    found = converted(pod({"nvidia.com/gpu": 8, resource: 1}))
    main = found["Pod"][0]["spec"]["containers"][0]
    assert main["resources"]["limits"] == {"cpu": "2", resource: 1}
    assert main["resources"]["claims"] == [{"name": "main"}]
    [line] = found["left"]
    assert line.startswith(f"Pod p, container main: resources.limits.{resource}: left as it is: is no GPU or FPGA")


@pytest.mark.parametrize(
    ("amount", "reason"),
    [("0", "is no number of devices"), (0.5, "is no number of devices"), ("1500m", "is no number of devices")],
)
def test_an_amount_that_is_no_number_of_devices_is_left(amount: Any, reason: str) -> None:
    """Half of a device became none, and the claim was refused by the API server."""
    found = converted(pod({"nvidia.com/gpu": amount}))
    assert "Pod" not in found
    assert f"resources.limits.nvidia.com/gpu: left as it is: {amount} {reason}" in found["left"][0]


def test_a_resource_in_requests_alone_is_left() -> None:
    document = pod({})
    document["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = 1
    assert "requests has it, and limits does not" in converted(document)["left"][0]


def test_a_resource_for_which_kubernetes_makes_a_claim_stays() -> None:
    spec = {"device": "gpu", "profile": "1g.10gb", "extendedResourceName": "nvidia.com/gpu"}
    class_ = {"kind": "ResourceClass", "metadata": {"name": "small"}, "spec": spec}
    result = migrate_workload(pod({"nvidia.com/gpu": 1}), {}, frozenset(), find_offered_by_dra([class_]))
    assert result is not None
    assert not result.documents
    assert "by extendedResourceName of ResourceClass small" in result.left[0]


def test_a_pod_that_names_claims_keeps_them_and_gets_one_of_another_name() -> None:
    """Two claims of the pod had one name, and the API server refused it."""
    document = pod({"nvidia.com/gpu": 1}, init={"nvidia.com/gpu": 1})
    document["spec"]["resourceClaims"] = [{"name": "main", "resourceClaimName": "other"}]
    [workload] = converted(document)["Pod"]
    assert [each["name"] for each in workload["spec"]["resourceClaims"]] == ["main", "first", "main-device"]
    assert workload["spec"]["containers"][0]["resources"]["claims"] == [{"name": "main-device"}]


def test_what_else_keeps_a_pod_from_its_claim_or_gives_it_more_is_a_remark() -> None:
    document = pod({"nvidia.com/gpu": 1})
    document["spec"] |= {
        "schedulerName": "hami-scheduler",
        "nodeSelector": {"nvidia.com/gpu.product": "A30", "a/b": ""},
    }
    document["spec"]["containers"][0]["env"] = [{"name": "A"}, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    found = converted(document)
    assert [remark.split(": ")[1:3] for remark in found["remarks"]] == [
        ["schedulerName", "hami-scheduler"],
        ["nodeSelector", "nvidia.com/gpu.product"],
        ["container main", "env NVIDIA_VISIBLE_DEVICES"],
    ]
    assert not found["left"]


@pytest.mark.parametrize(
    "name", ["nvidia.com/use-gputype", "hami.io/gpu-scheduler-policy", "gpu-fraction", "gpu-memory"]
)
def test_an_annotation_for_the_scheduler_of_another_project_is_named(name: str) -> None:
    document = pod({"nvidia.com/gpu": 1})
    document["metadata"]["annotations"] = {name: "x", "team": "y"}
    found = converted(document)
    assert found["Pod"][0]["metadata"]["annotations"] == {name: "x", "team": "y"}
    [line] = found["left"]
    assert line.startswith(f"Pod p: annotation {name}: x: left as it is: ")


@pytest.mark.parametrize(
    ("resource", "profile"),
    [
        ("nvidia.com/mig-1g.24gb.gfx", "1g.24gb+gfx"),
        ("nvidia.com/mig-1g.24gb.me.all", "1g.24gb+me.all"),
        ("nvidia.com/mig-1g.24gb-me", "1g.24gb-me"),
        ("nvidia.com/mig-1g.10gb.me", "1g.10gb+me"),
    ],
)
def test_the_resource_of_a_profile_with_a_suffix_becomes_a_class_of_this_profile(resource: str, profile: str) -> None:
    [made] = converted(pod({resource: 1}))["ResourceClass"]
    decode_resource_class(made)
    assert made["spec"]["profile"] == profile
