"""Each document of the files is converted, or named with the reason for which it is left."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.kubeletplugin.discovery_handlers.built_in_handlers import find_details_fault
from kerf_dra.driver.migration.classic import MigrationResult
from kerf_dra.driver.migration.documents import migrate_documents
from tests.api.kerf.documents import damaged_documents

NONE: Mapping[str, int] = MappingProxyType({})


def document(version: str, kind: str, name: str = "one", **fields: Any) -> JsonObject:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **fields}


def pod_spec(limits: Mapping[str, int] = NONE) -> JsonObject:
    return {"containers": [{"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": 1, **limits}}}]}


def workload(kind: str, name: str, namespace: str = "default", *, limits: Mapping[str, int] = NONE) -> JsonObject:
    spec = pod_spec(limits)
    return {
        "apiVersion": "v1" if kind == "Pod" else "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec if kind == "Pod" else {"template": {"spec": spec}},
    }


def left(*documents: JsonObject) -> list[str]:
    return [line for result in migrate(*documents) for line in result.left]


def migrate(*documents: JsonObject) -> list[MigrationResult]:
    return list(migrate_documents(documents, find_details_fault))


REQUEST = {"name": "a", "exactly": {"deviceClassName": "mig.nvidia.com"}}
LIMITS = {"limits": {"nvidia.com/gpu": 1}}


@pytest.mark.parametrize(
    ("given", "lines"),
    [
        (
            document(
                "resource.k8s.io/v1", "ResourceClaimTemplate", spec={"spec": {"devices": {"requests": [REQUEST]}}}
            ),
            ["left out: deviceClassName: mig.nvidia.com: is of NVIDIA's DRA driver"],
        ),
        (
            document("resource.k8s.io/v1beta1", "ResourceClaim", spec={"devices": {"requests": [REQUEST["exactly"]]}}),
            ["left out: deviceClassName: mig.nvidia.com: is of NVIDIA's DRA driver"],
        ),
        (
            document("resource.k8s.io/v1", "ResourceClaim", spec={"a": {"deviceClassName": "gpu.kerf.dev"}}),
            ["left out: it is a claim already (deviceClassName: gpu.kerf.dev)"],
        ),
        (
            document("resource.k8s.io/v1", "ResourceClaim", spec={"exactly": {"deviceClassName": "gpu.intel.com"}}),
            ["left out: deviceClassName: gpu.intel.com: is of Intel's DRA driver: `kerf claim gpu-intel`"],
        ),
        (
            document("resource.k8s.io/v1", "ResourceClaim", spec={"exactly": {"deviceClassName": "imex.nvidia.com"}}),
            ["left out: deviceClassName: imex.nvidia.com: is of NVIDIA's DRA driver, and Kerf has nothing like it"],
        ),
        (
            document("resource.k8s.io/v1", "ResourceClaim", spec={"capacity": {"requests": {"a.example.com/cpu": 1}}}),
            ["left out: it is a claim already: "],
        ),
        (document("resource.k8s.io/v1alpha2", "ResourceClaim"), ["left out: it belongs to classic DRA"]),
        (document("resource.k8s.io/v1", "DeviceClass"), ["left out: it selects devices of a driver"]),
        (document("resource.k8s.io/v1", "ResourceSlice"), ["left out: it requests no devices"]),
        (document("resource.k8s.io/v1alpha2", "ResourceClass"), ["left out: it belongs to classic DRA"]),
        (document("gpu.kerf.dev/v1alpha1", "GpuClaimParameters"), ["left out: it belongs to classic DRA"]),
        (document("kerf.dev/v1alpha1", "ResourceClass"), ["left out: it is an object of Kerf already"]),
        (document("resource.nvidia.com/v1beta1", "ComputeDomain"), ["left out: it configures NVIDIA's software"]),
        (document("nvidia.com/v1", "ClusterPolicy"), ["left out: it configures NVIDIA's software"]),
        (document("fpga.intel.com/v2", "AcceleratorFunction"), ["left out: it names a function or a region"]),
        (document("deviceplugin.intel.com/v1", "GpuDevicePlugin"), ["left out: it installs a device plugin of Intel"]),
        (document("v1", "Service"), ["left out: it requests no devices"]),
        (
            document("apps/v1", "Deployment", spec=None),
            ["left out: it has no pod where a Deployment of Kubernetes has it"],
        ),
        (
            document("v1", "ResourceQuota", spec={"hard": {"requests.nvidia.com/gpu": 4, "requests.storage": 1}}),
            ["spec.hard.requests.nvidia.com/gpu: left as it is: claims are counted by class", "left out: only"],
        ),
        (
            document("kubeflow.org/v1", "PyTorchJob", spec={"W": {"template": {"spec": pod_spec()}}}),
            [
                "spec.W.template.spec.containers[0].resources.limits.nvidia.com/gpu: left as it is: take the pod out",
                "left out: only pods of these kinds are converted: Pod, ",
            ],
        ),
        (
            document("batch.volcano.sh/v1alpha1", "Job", spec={"tasks": [LIMITS, {"limits": {"amd.com/gpu": 1}}]}),
            [
                "spec.tasks[0].limits.nvidia.com/gpu: left as it is: take the pod out",
                "spec.tasks[1].limits.amd.com/gpu: left as it is: Kerf has no backend for AMD's GPUs",
                "left out: it has no pod where a Job of Kubernetes has it",
            ],
        ),
        (
            document("v1", "Pod", spec={"containers": [], "resources": LIMITS, "resourceClaims": [{"name": "a"}]}),
            [
                "spec.resources.limits.nvidia.com/gpu: left as it is: ",
                "left out: none of its containers is converted, and it names claims already: a",
            ],
        ),
    ],
    ids=lambda value: f"{value.get('apiVersion')} {value.get('kind')}" if isinstance(value, dict) else "",
)
def test_a_document_that_is_left_is_named_with_its_fields_and_the_reason(given: JsonObject, lines: list[str]) -> None:
    """``kerf migrate`` printed nothing of such documents, and ended with 0."""
    [result, other] = migrate(given, workload("Pod", "other"))
    assert [each["kind"] for each in other.documents] == ["ResourceClass", "ResourceClaimTemplate", "Pod"]
    assert not result.documents
    subject = f"{given.get('kind', 'None')} one: "
    assert [line.startswith(f"{subject}{start}") for line, start in zip(result.left, lines, strict=True)] == (
        [True] * len(lines)
    ), result.left


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"apiVersion": "v1", "kind": "Policy"}, "Policy without name: left out: it requests no devices"),
        ({"version": "v1"}, "a document without kind, without name: left out: kind: is required"),
    ],
)
def test_a_document_without_a_name_or_a_kind_is_named_by_what_it_lacks(given: JsonObject, line: str) -> None:
    """Configurations of schedulers and device plugins: such lines began with "None : " ."""
    [found] = left(given)
    assert found.startswith(line)


def test_two_workloads_whose_templates_would_have_one_name_are_kept_apart() -> None:
    """The second template replaced the first when both were applied, and a pod got another one's devices."""
    one, two = workload("Deployment", "web"), workload("Pod", "web", limits={"nvidia.com/mig-1g.10gb": 1})
    elsewhere, same = workload("Pod", "web", "team", limits={"nvidia.com/mig-1g.10gb": 1}), workload("DaemonSet", "web")
    kinds = [[each["kind"] for each in result.documents][-1:] for result in migrate(one, two, elsewhere, same)]
    assert kinds == [["Deployment"], [], ["Pod"], ["DaemonSet"]]
    [line] = left(one, two, elsewhere, same)
    assert line.startswith("Pod web: left out: it needs a ResourceClaimTemplate web-main, and there is another one")


def test_a_class_of_the_files_with_the_name_of_one_that_would_be_made_is_kept() -> None:
    mine = document(
        "kerf.dev/v1alpha1", "ResourceClass", "gpu-whole", spec={"device": "gpu", "cut": "Whole", "nodes": {}}
    )
    result = migrate(mine, workload("Pod", "web"))[1]
    assert not result.documents
    assert "it needs a ResourceClass gpu-whole, and there is another one" in result.left[0]


@given(
    st.lists(
        damaged_documents(
            st.sampled_from(
                [
                    workload("Pod", "a", limits={"nvidia.com/gpumem": 1}),
                    workload("Deployment", "b"),
                    document("v1", "ResourceQuota", spec={"hard": {"requests.nvidia.com/gpu": 4}}),
                    document("resource.k8s.io/v1", "ResourceClaim", spec={"devices": {"requests": [REQUEST]}}),
                ]
            )
        ),
        max_size=3,
    )
)
def test_each_document_is_converted_or_left_with_a_line(documents: list[Any]) -> None:
    objects = [each for each in documents if isinstance(each, dict)]
    results = migrate(*objects)
    assert len(results) == len(objects)
    assert all(result.documents or result.left for result in results)
