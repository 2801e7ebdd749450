"""From claims to devices: which are of this driver, what they stand for, their configuration, conflicting claims."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as replace_struct

from kerf_dra.api.errors import InvalidDocumentError
from kerf_dra.api.kerf.v1alpha1 import FpgaConfig, GpuConfig
from kerf_dra.api.model.allocations import DeviceAllocationConfiguration
from kerf_dra.api.model.devices import Attribute
from kerf_dra.api.model.names import DriverName
from kerf_dra.api.model.prepared import PreparedDevice
from kerf_dra.driver.families.gpu import GPU as GPU_FAMILY
from kerf_dra.driver.kubeletplugin.claims.allocated_devices import (
    DeviceInUseError,
    NotAllocatedError,
    UnknownDeviceError,
    check_conflicts,
    decode_config,
    keep_handles,
    resolve_devices,
)
from kerf_dra.driver.kubeletplugin.inventory.devices import DeviceSet, PublishTarget, build_device_set
from kerf_dra.driver.kubeletplugin.inventory.state.health import DeviceHealthTracker
from kerf_dra.driver.partitions.geometry import Card
from kerf_dra.driver.partitions.slice_limits import SliceLayout
from tests.fakes.cards import fpga, gpu
from tests.fakes.claims import CONFIGURATIONS, DRIVER, NAMESPACE, NODE, VOCABULARIES, claim, config, result
from tests.kubeletplugin.records import device, record


def device_set(cards: dict[str, list[Card]]) -> DeviceSet:
    target = PublishTarget(driver=DriverName(DRIVER), node=NODE, layout=SliceLayout.SPLIT, vocabularies=VOCABULARIES)
    return build_device_set(target, cards, (), DeviceHealthTracker(driver=DRIVER, now=lambda: 0), DeviceSet())


NODE_DEVICES = device_set({"fake": [gpu(0), gpu(1)], "other": [fpga(0)]})
GPU = "gpu-0-1g-1gb-at-2"
FPGA = "fpga-0-slot-1"


def gpu_config(interval: str) -> dict[str, Any]:
    sharing = {"strategy": "TimeSlicing", "timeSlicing": {"interval": interval}}
    return {"apiVersion": "kerf.dev/v1alpha1", "kind": "GpuConfig", "sharing": sharing}


def fpga_config(function: str) -> dict[str, Any]:
    return {"apiVersion": "kerf.dev/v1alpha1", "kind": "FpgaConfig", "function": function}


def chosen(device: PreparedDevice) -> str | None:
    """What tells the configurations of these tests apart."""
    match decode_config(device, CONFIGURATIONS):
        case GpuConfig(sharing=sharing):
            return sharing.time_slicing.interval if sharing.time_slicing else None
        case FpgaConfig(function=function):
            return function
    return None


def test_devices_are_resolved_to_parts_of_cards_in_the_order_of_the_allocation() -> None:
    admin = result("gpu-1", request="monitor", admin=True)
    small = result(GPU, request="training/small")
    foreign = result("nic-0", driver="nic.example.com")
    devices = resolve_devices(claim("training", FPGA, foreign, small, admin), DRIVER, CONFIGURATIONS, NODE_DEVICES)
    assert [(d.share.id.device, d.backend, d.part.card_uuid, d.part.start, d.part.size) for d in devices] == [
        (FPGA, "other", "FPGA-0", 1, 1),
        (GPU, "fake", "GPU-0", 2, 1),
        ("gpu-1", "fake", "GPU-1", None, None),
    ]
    assert devices[2].admin_access
    assert devices[1].requests == ("training",), "containers refer to the request, not to the subrequest"


@pytest.mark.parametrize(
    ("held", "message"),
    [
        (claim("training"), "claim default/training is not allocated"),
        (
            claim("training", result("nic-0", driver="nic.example.com")),
            "claim default/training has devices of nic.example.com, none of gpu.kerf.dev",
        ),
    ],
)
def test_a_claim_without_devices_of_ours_is_an_error_that_says_whose_they_are(held: Any, message: str) -> None:
    with pytest.raises(NotAllocatedError, match=message):
        resolve_devices(held, DRIVER, CONFIGURATIONS, NODE_DEVICES)


def test_a_device_that_the_node_does_not_have_is_named() -> None:
    with pytest.raises(UnknownDeviceError, match=r"device gpu\.kerf\.dev/node-1/gpu/gpu-7 is allocated, but this node"):
        resolve_devices(claim("training", "gpu-7"), DRIVER, CONFIGURATIONS, NODE_DEVICES)


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        ([], None),
        ([config(gpu_config("Short"), source="FromClass")], "Short"),
        ([config(gpu_config("Short"), source="FromClass"), config(gpu_config("Long"))], "Long"),
        ([config(gpu_config("Long")), config(gpu_config("Short"), source="FromClass")], "Long"),
        ([config(gpu_config("Short")), config(gpu_config("Long"))], "Long"),
        ([config(gpu_config("Short"), requests=["accelerator"]), config(gpu_config("Long"))], "Long"),
        ([config(gpu_config("Short")), config(gpu_config("Long"), requests=["elsewhere"])], "Short"),
        ([config({"any": "thing"}, driver="nic.example.com")], None),
        ([config({"any": "thing"}, driver="nic.example.com"), config(gpu_config("Long"))], "Long"),
    ],
    ids=[
        "none",
        "class",
        "claim over class",
        "claim over class in any order",
        "later over earlier",
        "later for all over earlier for one",
        "other requests",
        "other drivers",
        "other drivers first: a GPU with a NIC",
    ],
)
def test_the_last_configuration_that_applies_wins_as_a_whole(
    configs: Sequence[DeviceAllocationConfiguration], expected: str | None
) -> None:
    (device,) = resolve_devices(claim("training", GPU, configs=configs), DRIVER, CONFIGURATIONS, NODE_DEVICES)
    assert chosen(device) == expected


@pytest.mark.parametrize("requests", [["accelerator"], ["accelerator/small"], ["other", "accelerator"]])
def test_a_configuration_for_a_request_applies_to_its_subrequests(requests: list[str]) -> None:
    held = claim(
        "training", result(GPU, request="accelerator/small"), configs=[config(gpu_config("Long"), requests=requests)]
    )
    (device,) = resolve_devices(held, DRIVER, CONFIGURATIONS, NODE_DEVICES)
    assert chosen(device) == "Long"


def test_what_a_device_cannot_do_is_refused_with_its_field_before_anything_is_recorded() -> None:
    cards = [replace(gpu(0), attributes={"timeSlicing": Attribute.of(True)}), gpu(1)]
    devices = device_set({"fake": cards, "other": []})
    mps = {"apiVersion": "kerf.dev/v1alpha1", "kind": "GpuConfig", "sharing": {"strategy": "Mps"}}
    held = claim(
        "training",
        result("gpu-0", request="a"),
        result("gpu-1", request="b"),
        configs=[config(gpu_config("Long"), requests=["b"]), config(mps)],
    )
    with pytest.raises(InvalidDocumentError) as raised:
        resolve_devices(held, DRIVER, CONFIGURATIONS, devices)
    (problem,) = raised.value.problems
    assert problem.path == "status.allocation.devices.config[1].opaque.parameters.sharing.strategy"
    assert problem.message == (
        "device gpu-0 cannot do this, its attribute mps is not true: omit it, or request devices that can by the "
        'selector device.attributes["gpu.kerf.dev"].mps'
    )
    sliced = claim("training", result("gpu-0"), configs=[config(gpu_config("Long"))])
    (device,) = resolve_devices(sliced, DRIVER, CONFIGURATIONS, devices)
    assert chosen(device) == "Long"


def limited(percentage: int, memory: str) -> dict[str, Any]:
    limits = {"activeThreadPercentage": percentage, "pinnedDeviceMemoryLimit": memory}
    sharing = {"strategy": "Mps", "mps": limits}
    return {"apiVersion": "kerf.dev/v1alpha1", "kind": "GpuConfig", "sharing": sharing}


def test_a_limit_beyond_the_device_or_the_share_is_refused_with_its_field_and_its_range() -> None:
    devices = device_set({"fake": [replace(gpu(0), attributes={"mps": Attribute.of(True)})]})
    amounts = {"memory": "512Mi", f"{DRIVER}/computePercent": "30"}
    share = result("gpu-0-1g-1gb-at-2-shared", share="1", consumed=amounts)
    configs = [config(limited(40, "1Gi"), requests=[share.request])]
    with pytest.raises(InvalidDocumentError) as raised:
        resolve_devices(claim("training", share, configs=configs), DRIVER, CONFIGURATIONS, devices)
    prefix = "status.allocation.devices.config[0].opaque.parameters.sharing.mps"
    assert {problem.path: problem.message for problem in raised.value.problems} == {
        f"{prefix}.pinnedDeviceMemoryLimit": "1Gi is out of range: at most 512Mi, the claim's share of device "
        "gpu-0-1g-1gb-at-2-shared",
        f"{prefix}.activeThreadPercentage": "40 is out of range: at most 30, the claim's share of device "
        "gpu-0-1g-1gb-at-2-shared",
    }
    exact = claim("training", share, configs=[config(limited(30, "512Mi"))])
    assert resolve_devices(exact, DRIVER, CONFIGURATIONS, devices)
    whole = claim("training", result("gpu-0"), configs=[config(limited(100, "5Ti"))])
    with pytest.raises(InvalidDocumentError, match=r"5Ti is out of range: .*, what is in device gpu-0") as raised:
        resolve_devices(whole, DRIVER, CONFIGURATIONS, devices)
    assert len(raised.value.problems) == 1


def test_a_share_that_names_no_percentage_has_all_of_it() -> None:
    devices = device_set({"fake": [replace(gpu(0), attributes={"mps": Attribute.of(True)})]})
    amounts = {"memory": "512Mi", "computePercent": "0"}
    share = result("gpu-0-1g-1gb-at-2-shared", share="1", consumed=amounts)
    assert resolve_devices(
        claim("training", share, configs=[config(limited(100, "512Mi"))]), DRIVER, CONFIGURATIONS, devices
    )


def test_a_configuration_for_another_subrequest_does_not_apply() -> None:
    held = claim(
        "training",
        result(GPU, request="accelerator/small"),
        configs=[config(gpu_config("Long"), requests=["accelerator/large"])],
    )
    (device,) = resolve_devices(held, DRIVER, CONFIGURATIONS, NODE_DEVICES)
    assert device.config is None


def test_a_configuration_of_another_family_is_an_error() -> None:
    held = claim("training", GPU, configs=[config(fpga_config("aes"))])
    with pytest.raises(InvalidDocumentError) as raised:
        resolve_devices(held, DRIVER, GPU_FAMILY.configurations, NODE_DEVICES)
    assert str(raised.value) == (
        "claim default/training: status.allocation.devices.config[0].opaque.parameters.kind: "
        '"FpgaConfig" is not one of GpuConfig'
    )


def test_all_problems_of_all_configurations_are_reported_with_their_paths() -> None:
    bad = {"apiVersion": "kerf.dev/v1alpha1", "kind": "GpuConfig", "shering": {}}
    worse = {"apiVersion": "kerf.dev/v1alpha1", "kind": "GpuConfig", "deviceMetadata": 0}
    held = claim("training", GPU, configs=[config(gpu_config("Long")), config(bad), config(worse)])
    with pytest.raises(InvalidDocumentError) as raised:
        resolve_devices(held, DRIVER, CONFIGURATIONS, NODE_DEVICES)
    prefix = "status.allocation.devices.config"
    assert [problem.path for problem in raised.value.problems] == [
        f"{prefix}[1].opaque.parameters.shering",
        f"{prefix}[2].opaque.parameters.deviceMetadata",
    ]


SHARE_1, SHARE_2 = "8f6c1f52-0000-4000-8000-000000000001", "8f6c1f52-0000-4000-8000-000000000002"


@pytest.mark.parametrize(
    ("wanted", "held", "conflict"),
    [
        (device(), device(), True),
        (device("gpu-0", start=None, size=None), device(), True),
        (device(), device("gpu-0", start=None, size=None), True),
        (device("gpu-0-2g-2gb-at-0", size=2), device("gpu-0-1g-1gb-at-1", start=1), True),
        (device("gpu-0-2g-2gb-at-2", start=2, size=2), device("gpu-0-1g-1gb-at-1", start=1), False),
        (device("gpu-1", card="GPU-1", start=None, size=None), device(), False),
        (device(admin=True), device(), False),
        (device(), device(admin=True), False),
        (device(share=SHARE_1), device(share=SHARE_2), False),
        (device(share=SHARE_1), device(share=SHARE_1), True),
        (device(share=SHARE_1), device(), True),
        (device(share=SHARE_1), device("gpu-0", start=None, size=None, share=SHARE_2), True),
    ],
    ids=[
        "same device",
        "whole card over partition",
        "partition of a whole card in use",
        "overlapping partitions",
        "disjoint partitions",
        "other card",
        "admin access wanted",
        "admin access held",
        "two shares of one device",
        "one share twice",
        "share of a device held exclusively",
        "share of another device on the same units",
    ],
)
def test_who_is_in_the_way(wanted: PreparedDevice, held: PreparedDevice, conflict: bool) -> None:
    other = record("other", held)
    if not conflict:
        check_conflicts([wanted], [other], NAMESPACE)
        return
    with pytest.raises(DeviceInUseError, match="two claims for one exclusive device") as raised:
        check_conflicts([wanted], [other], NAMESPACE)
    assert raised.value.holders == (other.claim,)
    assert "held by claim default/other," in str(raised.value)


def test_a_container_that_has_the_device_as_an_extended_resource_is_named_by_the_resource() -> None:
    other = replace_struct(record("x", device()), resource="kerf.dev/small")
    with pytest.raises(DeviceInUseError, match=r"a container as kerf\.dev/small"):
        check_conflicts([device()], [other], NAMESPACE)


def test_any_device_of_a_claim_conflicts_with_any_device_of_any_other() -> None:
    wanted = [device("gpu-0-1g-1gb-at-0"), device("gpu-1-1g-1gb-at-0", card="GPU-1")]
    beside = device("gpu-0-1g-1gb-at-2", start=2), device("gpu-1-1g-1gb-at-2", card="GPU-1", start=2)
    check_conflicts(wanted, [record("beside", *beside)], NAMESPACE)
    for one in wanted:
        others = [record("beside", *beside[:1]), record("other", beside[1], one)]
        with pytest.raises(DeviceInUseError) as raised:
            check_conflicts(wanted, others, NAMESPACE)
        assert raised.value.holders == (others[1].claim,)
        assert str(one.share.id) in str(raised.value)


def test_what_is_ready_keeps_its_handle_where_the_claim_wants_just_that() -> None:
    ready = replace_struct(device(), handle={"serial": 1}, description=None, cdi_ids=("a/b=c",))
    other = device("gpu-0-1g-1gb-at-1", start=1)
    assert [each.handle for each in keep_handles([other, device()], [ready])] == [None, {"serial": 1}]
    assert [each.handle for each in keep_handles([device(share=SHARE_1)], [ready])] == [None]
