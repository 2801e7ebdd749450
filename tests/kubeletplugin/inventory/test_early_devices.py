"""The devices of classes with ``prepare: BeforeBinding`` are published with binding conditions, and no others."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kerf_dra.api.errors import InvalidDocumentError
from kerf_dra.api.kerf.decoder import decode_resource_class
from kerf_dra.api.kerf.v1alpha1 import ResourceClassObject
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.cel.compile import compile_selector
from kerf_dra.driver.controller.device_types import UnsatisfiableError, known_device_types
from kerf_dra.driver.controller.structured.class_compiler import compile_class
from kerf_dra.driver.families.registry import BUILT_IN_BY_NAME
from kerf_dra.driver.kubeletplugin.inventory.binding_conditions import BindingConditions
from kerf_dra.driver.kubeletplugin.inventory.devices import DeviceSet, PublishTarget, build_device_set
from kerf_dra.driver.kubeletplugin.inventory.optional_devices import OptionalDevices, find_optional_devices
from kerf_dra.driver.kubeletplugin.inventory.state.health import DeviceHealthTracker
from kerf_dra.driver.partitions.geometry import Partition, Placement
from tests.fakes.cards import fpga, gpu
from tests.fakes.claims import DRIVER
from tests.fakes.cluster import FakeCluster
from tests.fakes.published_slices import fpgas, gpus, slices

TARGET = FakeCluster().target
HEALTHY = DeviceHealthTracker(driver=DRIVER, now=lambda: 0)
REAL = [
    (one.spec.pool.name.rpartition("/")[2], device)
    for cards in (gpus("h100-80gb-sxm", sharing=["Mps"]), gpus("a30-24gb", driver_version="535.1"), fpgas("quad"))
    for one in slices("n1", cards)
    for device in one.spec.devices
]
"""Devices of real models, each with its kind."""


def early(**spec: object) -> OptionalDevices:
    document = {"device": "gpu", "prepare": "BeforeBinding", **spec}
    family = BUILT_IN_BY_NAME[str(document["device"])]
    return find_optional_devices([ResourceClassObject(metadata=ObjectMeta(name="early"), spec=document)], family)


def conditional(target: PublishTarget) -> set[str]:
    devices = build_device_set(target, {"one": [gpu(0), fpga(0)]}, (), HEALTHY, DeviceSet())
    all_devices = [device for pool in devices.pools for content in pool.slices for device in content.devices]
    assert {device.binding_conditions for device in all_devices} <= {(), (CONDITIONS.loaded,)}
    return {device.name for device in all_devices if device.binding_conditions}


CONDITIONS = BindingConditions.of_driver(TARGET.driver)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"profile": "2g.2gb"}, {"gpu-0-2g-2gb-at-0", "gpu-0-2g-2gb-at-2"}),
        ({"minimum": {"memory": "2Gi"}}, {"gpu-0-2g-2gb-at-0", "gpu-0-2g-2gb-at-2", "gpu-0-4g-4gb-at-0"}),
        ({"cut": "Whole"}, {"gpu-0"}),
        ({"minimum": {"computeSlices": 4}, "orWhole": True}, {"gpu-0-4g-4gb-at-0", "gpu-0"}),
        ({"cut": "Whole", "minimumDriverVersion": "1.0"}, {"gpu-0"}),
        ({"cut": "Whole", "minimumDriverVersion": "1.0.1"}, set()),
        ({"cut": "Whole", "models": ["toy-4gb"]}, {"gpu-0"}),
        ({"cut": "Whole", "models": ["h100-80gb-sxm"]}, set()),
        ({"device": "fpga", "function": "aes"}, {"fpga-0-aes-at-0", "fpga-0-aes-at-1"}),
        ({"device": "fpga", "minimum": {"slots": 2}}, {"fpga-0-slots-0-1"}),
        ({"cut": "Monitor"}, set()),
        ({"profile": "2g.2gb", "allocation": "Shared"}, {"gpu-0-2g-2gb-at-0-shared", "gpu-0-2g-2gb-at-2-shared"}),
        ({"profile": "2g.2gb", "prepare": "AtStart"}, set()),
        ({"profile": "2g.2gb", "misspelt": True}, set()),
    ],
)
def test_the_devices_that_a_class_selects_get_conditions(spec: dict[str, object], expected: set[str]) -> None:
    target = replace(TARGET, optional_devices=early(**spec), sets_conditions=True)
    assert conditional(target) == expected


def test_conditions_need_somebody_who_meets_them_and_an_api_server_that_keeps_them() -> None:
    wanted = early(profile="2g.2gb")
    assert conditional(replace(TARGET, optional_devices=wanted)) == set()
    dropping = replace(TARGET, optional_devices=wanted, sets_conditions=True, keeps_conditions=False)
    assert conditional(dropping) == set()


def test_a_node_without_such_devices_needs_no_early_preparation() -> None:
    devices = build_device_set(TARGET, {"one": [gpu(0)]}, (), HEALTHY, DeviceSet())
    assert devices.has_early_devices(early(profile="2g.2gb"))
    assert not devices.has_early_devices(early(profile="3g.40gb"))
    assert not devices.has_early_devices(OptionalDevices())


def test_a_partition_that_could_not_be_made_keeps_only_its_placement_from_claims() -> None:
    tracker = DeviceHealthTracker(driver=DRIVER, now=lambda: 0)
    first, second = (
        Partition(kind="gpu", card_uuid="GPU-0", profile="2g.2gb", placement=Placement(start, 2)) for start in (0, 2)
    )
    tracker.record_load_failure(first, "busy", 300)
    assert [bool(tracker.build_taints(part)) for part in (first, second)] == [True, False]


_SPECS = st.fixed_dictionaries(
    {"device": st.just("gpu")},
    optional={
        "cut": st.sampled_from(["Whole", "Partition"]),
        "orWhole": st.booleans(),
        "minimumDriverVersion": st.sampled_from(["535.104.6", "580.65.6"]),
        "sharing": st.sampled_from(["Exclusive", "Mps"]).map(lambda strategy: {"strategy": strategy}),
        "models": st.lists(st.sampled_from(["h100-80gb-sxm", "a30-24gb"]), max_size=2),
        "profile": st.sampled_from(["1g.10gb", "3g.40gb", "2g.12gb"]),
        "minimum": st.fixed_dictionaries(
            {}, optional={"memory": st.sampled_from(["1", "9984Mi", "40G"]), "computeSlices": st.integers(1, 7)}
        ),
    },
) | st.fixed_dictionaries(
    {"device": st.just("fpga")},
    optional={
        "cut": st.sampled_from(["Whole", "Partition"]),
        "function": st.sampled_from(["aes-gcm", "fft-large"]),
        "minimum": st.fixed_dictionaries({}, optional={"slots": st.integers(1, 4), "lut": st.integers(1, 300_000)}),
    },
)


@given(_SPECS)
def test_a_node_selects_as_the_compiled_class_does(spec: dict[str, Any]) -> None:
    document = {
        "apiVersion": "kerf.dev/v1alpha1",
        "kind": "ResourceClass",
        "metadata": {"name": "early", "uid": "uid-1"},
        "spec": {**spec, "prepare": "BeforeBinding"},
    }
    try:
        resource_class = decode_resource_class(document)
        compiled = compile_class(resource_class, families=BUILT_IN_BY_NAME, nodes=(), device_types=known_device_types())
    except (InvalidDocumentError, UnsatisfiableError):
        assume(False)
        raise
    matches = compile_selector(compiled.expression).matches
    found = early(**spec)
    for kind, device in REAL:
        assert found.is_early(kind, device) is matches(BUILT_IN_BY_NAME[kind].driver, device), device.name
