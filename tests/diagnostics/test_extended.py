"""Extended resources that classes stand for (KEP-5004)."""

import pytest

from api.core.v1 import Container, Pod, PodSpec, ResourceRequirements
from api.model.claims import DeviceClass
from api.model.metadata import ObjectMeta
from api.model.names import ObjectRef
from api.model.quantity import Quantity
from driver.diagnostics.cluster_index import Cluster
from driver.diagnostics.explain.report import Verdict
from driver.diagnostics.explain.why import why_pod
from driver.diagnostics.extended import extended_claim
from driver.diagnostics.plan import plan
from driver.diagnostics.workload import read_demands
from tests.diagnostics.clusters import CLASSES, device_class, gpus, replace


def named(class_: DeviceClass, resource: str, created: str | None = None) -> DeviceClass:
    metadata = replace(class_.metadata, creation_timestamp=created)
    return replace(class_, metadata=metadata, spec=replace(class_.spec, extended_resource_name=resource))


def asking(*limits: dict[str, int], init: dict[str, int] | None = None) -> Pod:
    def container(amounts: dict[str, int]) -> Container:
        quantities = {name: Quantity(amount) for name, amount in amounts.items()}
        return Container(name="c", resources=ResourceRequirements(limits=quantities))

    spec = PodSpec(
        containers=tuple(map(container, limits)), init_containers=(container(init),) if init is not None else ()
    )
    return Pod(metadata=ObjectMeta(name="p", namespace="default"), spec=spec)


def asked(pod: Pod, *classes: DeviceClass) -> list[tuple[str, str, int | None]]:
    claim = extended_claim(pod, classes)
    requests = claim.spec.devices.requests if claim else ()
    return [(each.name, each.exactly.device_class_name, each.exactly.count) for each in requests if each.exactly]


GPU = named(device_class("gpu"), "example.com/gpu")
NIC = named(device_class("nic"), "example.com/nic")


def test_each_container_and_resource_has_a_request_of_its_own() -> None:
    pod = asking({"example.com/nic": 1, "example.com/gpu": 2, "cpu": 4}, {"example.com/gpu": 1}, init={"memory": 1})
    assert asked(pod, NIC, GPU) == [
        ("container-1-request-0", "gpu", 2),
        ("container-1-request-1", "nic", 1),
        ("container-2-request-0", "gpu", 1),
    ]


def test_every_class_has_an_implicit_resource() -> None:
    pod = asking({"deviceclass.resource.kubernetes.io/plain": 1})
    assert asked(pod, device_class("plain")) == [("container-0-request-0", "plain", 1)]


@pytest.mark.parametrize("pod", [asking({"cpu": 1}), asking({"example.com/fpga": 1}), asking({"example.com/gpu": 0})])
def test_what_no_class_stands_for_is_no_claim(pod: Pod) -> None:
    assert extended_claim(pod, [GPU]) is None


def test_of_several_classes_the_newest_counts_then_the_first_by_name() -> None:
    old, new = (
        named(device_class(name), "example.com/gpu", f"2026-11-{day}T00:00:00Z") for name, day in (("a", 1), ("b", 20))
    )
    pod = asking({"example.com/gpu": 1})
    assert asked(pod, new, old) == [("container-0-request-0", "b", 1)]
    twin = replace(new, metadata=replace(new.metadata, name="c"))
    assert asked(pod, twin, new, old) == [("container-0-request-0", "b", 1)]


def test_why_and_plan_know_them() -> None:
    classes = (*CLASSES[:-1], named(CLASSES[-1], "example.com/whole"))
    now = replace(gpus(), classes=classes, pods=(asking({"example.com/whole": 2}),))
    answer = why_pod(Cluster(now), ObjectRef("default", "p"))
    assert (answer.verdict, answer.claims[0].name) == (Verdict.DOES_NOT_FIT, "p-extended-resources")
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "q"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"example.com/whole": "1"}}}]},
    }
    cluster = Cluster(now)
    [placed] = plan(cluster, read_demands(cluster, [manifest], namespace="default").demands).placed
    assert [device.device for device in placed.devices] == ["kerf.dev/node-1/gpu/gpu-0"]
