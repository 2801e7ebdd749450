"""Diagnostics of extended resources that classes back (KEP-5004)."""

from kerf_dra.api.core.v1 import Container, Pod, PodSpec, ResourceRequirements
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.explain.report import Verdict
from kerf_dra.driver.diagnostics.explain.why import explain_pod
from kerf_dra.driver.diagnostics.plan import plan_workloads
from tests.fakes.cluster_states import CLASSES, gpu_cluster, parse, replace


def pod_with_limits(limits: dict[str, int]) -> Pod:
    quantities = {name: Quantity(amount) for name, amount in limits.items()}
    container = Container(name="c", resources=ResourceRequirements(limits=quantities))
    return Pod(metadata=ObjectMeta(name="p", namespace="default"), spec=PodSpec(containers=(container,)))


def test_why_and_plan_know_them() -> None:
    whole = replace(CLASSES[-1], spec=replace(CLASSES[-1].spec, extended_resource_name="example.com/whole"))
    classes = (*CLASSES[:-1], whole)
    now = replace(gpu_cluster(), classes=classes, pods=(pod_with_limits({"example.com/whole": 2}),))
    answer = explain_pod(ClusterIndex(now), ObjectRef("default", "p"))
    assert (answer.verdict, answer.claims[0].name) == (Verdict.DOES_NOT_FIT, "p-extended-resources")
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "q"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"example.com/whole": "1"}}}]},
    }
    cluster = ClusterIndex(now)
    [placed] = plan_workloads(cluster, parse(cluster, manifest).workloads).placed
    assert [device.device for device in placed.devices] == ["gpu.kerf.dev/node-1/gpu/gpu-0"]
