"""Monitor devices in reports: their taint says for whom they are, and is no fault of a card."""

import pytest

from kerf_dra.api.model.device_attributes import monitor_taint_key
from kerf_dra.api.model.devices import DeviceToleration
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.explain.report import Verdict, WhyReport
from kerf_dra.driver.diagnostics.explain.why import explain_claim, explain_pod
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.partitions.pool_compiler import build_monitor_slices
from tests.fakes.cluster_states import (
    allocate_claims,
    card,
    claim,
    device_class,
    gpu_cluster,
    placed_pod,
    replace,
    request,
)

TOLERATION = DeviceToleration(key=monitor_taint_key(GPU.driver), operator="Exists")
PLAIN = device_class("plain", f'device.driver == "{GPU.driver}"')
MONITOR = device_class("monitor", f'device.attributes["{GPU.driver}"].cut == "monitor"')


def with_monitors() -> ClusterState:
    """Return a cluster of one node, whose card is taken whole and has a monitor device."""
    now = gpu_cluster()
    (content,) = build_monitor_slices([card(0)], "node-1", GPU.vocabulary, GPU.driver)
    last = now.slices[-1]
    monitors = replace(
        last,
        metadata=replace(last.metadata, name="node-1-monitors"),
        spec=replace(last.spec, devices=content.devices, shared_counters=()),
    )
    count = len(now.slices) + 1
    slices = tuple(
        replace(each, spec=replace(each.spec, pool=replace(each.spec.pool, resource_slice_count=count)))
        for each in (*now.slices, monitors)
    )
    return allocate_claims(
        replace(now, slices=slices, classes=(*now.classes, PLAIN, MONITOR)), claim("training", "whole")
    )


def explain(of_class: str, *, admin: bool) -> WhyReport:
    asking = claim("c", request("r", of_class, admin_access=admin or None))
    now = with_monitors()
    return explain_claim(ClusterIndex(replace(now, claims=(*now.claims, asking))), ObjectRef("default", "c"))


@pytest.mark.parametrize("admin", [True, False])
def test_who_does_not_tolerate_the_taint_is_told_for_whom_monitor_devices_are(admin: bool) -> None:
    [cause] = explain("monitor", admin=admin).causes
    assert cause.code == "tainted"
    assert cause.message.endswith("1 device matches, but is tainted: gpu.kerf.dev/monitor=:NoSchedule")
    assert cause.next_step.startswith("a monitor device is for requests with adminAccess: true and a toleration")


def test_a_claim_on_any_device_waits_for_those_in_use_not_for_a_monitor_device() -> None:
    [cause] = explain("plain", admin=False).causes
    assert cause.code == "counters"
    assert cause.next_step.startswith("wait until default/training on node-1 ends")


def test_the_taint_of_an_allocated_monitor_device_is_no_fault() -> None:
    looking = claim("looking", request("r", "monitor", admin_access=True, tolerations=(TOLERATION,)))
    now = allocate_claims(with_monitors(), looking)
    answer = explain_pod(
        ClusterIndex(replace(now, pods=(placed_pod("looking", "looking"),))), ObjectRef("default", "looking")
    )
    assert answer.verdict is Verdict.STARTING
    assert "device-tainted" not in [cause.code for cause in answer.causes]
