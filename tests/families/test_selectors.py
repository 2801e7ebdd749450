"""The CEL of families: each family's own DeviceClass, and conditions over its words."""

from pathlib import Path

import pytest

from kerf_dra.api.model.devices import Device
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.cel.compile import compile_selector
from kerf_dra.driver.families import selectors
from kerf_dra.driver.families.base import Family
from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.families.registry import BUILT_IN
from kerf_dra.driver.partitions.geometry import Card
from kerf_dra.driver.partitions.pool_compiler import build_monitor_slices, compile_pool
from kerf_dra.driver.partitions.publish_order import publish_order
from kerf_dra.driver.partitions.shared_devices import order_shared_partitions
from kerf_dra.driver.partitions.slice_limits import SliceLayout
from tests.partitions.cards import fpga, gpu
from tools.generate import device_classes

NODE = "node-1"


def published(card: Card, family: Family) -> dict[str, Device]:
    """Return all devices that a node may publish for ``card``, with shares and a monitor device."""
    order = publish_order([card], ())
    shared = order_shared_partitions([card], order.partitions, frozenset(p.profile for p in order.partitions), ())
    pool = compile_pool(
        "pool", NODE, [card], vocabulary=family.vocabulary, layout=SliceLayout.SPLIT, order=order, shared=shared
    ).pool
    slices = (*pool.slices, *build_monitor_slices([card], NODE, family.vocabulary, family.driver))
    return {device.name: device for content in slices for device in content.devices}


def matches(family: Family, device: Device, *expressions: str) -> bool:
    return all(compile_selector(expression).matches(family.driver, device) for expression in expressions)


@pytest.mark.parametrize(("card", "family"), [(gpu(), GPU), (fpga(), FPGA)], ids=["gpu", "fpga"])
def test_a_familys_own_class_has_every_device_but_shares_and_monitors(card: Card, family: Family) -> None:
    device_class = selectors.build_device_class(family)
    assert device_class.metadata.name == family.driver
    expressions = [each.cel.expression for each in device_class.spec.selectors if each.cel]
    devices = published(card, family)
    kept = {name for name, device in devices.items() if matches(family, device, *expressions)}
    assert {*devices} - kept == {name for name in devices if name.endswith(("-shared", "-monitor"))} != set()


def test_of_two_families_each_class_has_its_own_devices_only() -> None:
    gpu_device = next(iter(published(gpu(), GPU).values()))
    condition = selectors.of_driver(FPGA)
    assert not compile_selector(condition).matches(GPU.driver, gpu_device)


@pytest.mark.parametrize(
    ("condition", "is_met"),
    [
        (selectors.capacity_at_least(GPU, "memory", Quantity("18Gi")), True),
        (selectors.capacity_at_least(GPU, "memory", Quantity("41Gi")), False),
        (selectors.attribute_is(GPU, "profile", "3g.40gb"), True),
        (selectors.attribute_is_not(GPU, "profile", "3g.40gb"), False),
        (selectors.attribute_is(GPU, "shared", False), True),
        (selectors.attribute_is(GPU, "productName", 'a "quoted" \\ name'), False),
        (selectors.attribute_is(GPU, "resource.kubernetes.io/pciBusID", "0000:ff:00.0"), False),
        (selectors.version_at_least(GPU, "cudaComputeCapability", "9.0.0"), True),
        (selectors.version_at_least(GPU, "cudaComputeCapability", "10.0.0"), False),
    ],
)
def test_conditions_are_met_by_the_devices_that_they_describe(condition: str, is_met: bool) -> None:
    device = next(each for each in published(gpu("h100-80gb-sxm"), GPU).values() if "-3g-40gb-" in each.name)
    assert matches(GPU, device, condition) is is_met


def test_the_manifest_is_what_the_command_prints_for_kerfs_own_families(tmp_path: Path) -> None:
    (path,) = device_classes.generate(tmp_path)
    text = (tmp_path / path).read_text()
    assert (device_classes.ROOT / path).read_text() == text, "run `make generate`"
    assert text.count("kind: DeviceClass") == len(BUILT_IN)
