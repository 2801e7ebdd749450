"""Which devices one claim may have together: those of every combination that a card can have, and no other.

What is refused is refused by ``tests/attack/test_contradictory_allocations.py``, through the plugin.
"""

from itertools import combinations

import pytest
from msgspec.structs import replace

from kerf_dra.api.model.allocations import DeviceRequestAllocationResult
from kerf_dra.api.model.claims import DeviceRequest, ExactDeviceRequest
from kerf_dra.api.model.names import DriverName
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.families.fpga.geometry import fpga_geometry
from kerf_dra.driver.families.gpu.catalog import gpu_model
from kerf_dra.driver.families.gpu.geometry import gpu_geometry
from kerf_dra.driver.families.shared.family import CAPACITY_USERS, SHARED
from kerf_dra.driver.kubeletplugin.claims.validation import find_contradictions
from kerf_dra.driver.kubeletplugin.inventory.devices import DeviceSet, PublishTarget, build_device_set
from kerf_dra.driver.kubeletplugin.inventory.state.health import DeviceHealthTracker
from kerf_dra.driver.partitions.geometry import Card, Geometry, PartitionSpec
from kerf_dra.driver.partitions.slice_limits import SliceLayout
from tests.fakes.cards import fpga, gpu
from tests.fakes.claims import DRIVER, NODE, VOCABULARIES, claim, config, result
from tests.partitions.oracle import may_coexist
from tests.partitions.test_layouts import EVERY_WAY

EVERY = {"apiVersion": "kerf.dev/v1alpha1", "kind": "GpuConfig"}
SHARE = "gpu-0-1g-1gb-at-0-shared"


def devices_of(*cards: Card, is_network_attached: bool = False) -> DeviceSet:
    place = PublishTarget(
        driver=DriverName(DRIVER),
        node=NODE,
        layout=SliceLayout.SPLIT,
        vocabularies={**VOCABULARIES, SHARED.name: SHARED.vocabulary},
        is_network_attached=is_network_attached,
    )
    return build_device_set(place, {"fake": cards}, (), DeviceHealthTracker(driver=DRIVER, now=lambda: 0), DeviceSet())


NODE_DEVICES = devices_of(gpu(0), gpu(1), fpga(0))


HALF = {"memory": "512Mi"}
LEGAL: dict[str, list[DeviceRequestAllocationResult]] = {
    "neighbors on a card": [result("gpu-0-1g-1gb-at-0"), result("gpu-0-1g-1gb-at-1")],
    "many on several cards": [
        *(result("gpu-0-2g-2gb-at-0"), result("gpu-0-2g-2gb-at-2"), result("gpu-1"), result("fpga-0-aes-at-0"))
    ],
    "all cards": [result("gpu-0"), result("gpu-1"), result("fpga-0")],
    "two shares of a device": [result(SHARE, share="one"), result(SHARE, share="other")],
    "all of a shared device": [result(SHARE, share=name, consumed=HALF) for name in ("one", "other")],
    "amounts of nothing that limit nothing": [
        result(SHARE, share="one", consumed={"memory": "1Gi", "clients": "1", "decoders": "0", "computePercent": "0"})
    ],
    "the driver's full name": [
        *(result(SHARE, share="one", consumed={f"{DRIVER}/memory": "1Gi"}), result("gpu-0-1g-1gb-at-1"))
    ],
    "one share ID for two devices": [result(SHARE, share="one"), result("gpu-0-2g-2gb-at-2-shared", share="one")],
    "monitors beside a user": [
        result("gpu-0"),
        *(result(f"gpu-{card}-monitor", request="all", admin=True) for card in (0, 1)),
    ],
    "an admin's card beside users": [
        *(result("gpu-0", request="all", admin=True), result("gpu-0-1g-1gb-at-0"), result("gpu-0-1g-1gb-at-1"))
    ],
    "an admin's share": [result(SHARE, share="one", admin=True, request="all", consumed={}), result("gpu-0")],
    "an admin's shares of everything": [
        result(SHARE, share=name, admin=True, request="all", consumed={"memory": "1Gi"}) for name in ("one", "other")
    ],
    "an alternative": [result("gpu-0", request="a/large"), result("gpu-1", request="b")],
    "devices of another driver": [
        *(result("gpu-0"), result("gpu-0", driver="x.example.com"), result("nic", driver="x.example.com", share="x"))
    ],
}


@pytest.mark.parametrize("results", LEGAL.values(), ids=LEGAL)
def test_what_kube_scheduler_may_allocate_contradicts_nothing(results: list[DeviceRequestAllocationResult]) -> None:
    configs = [config(EVERY), config(EVERY, requests=[results[-1].request]), config(EVERY, requests=["?"], driver="x")]
    requests = claim("training", *results).spec.devices.requests
    allocated = claim("training", *results, configs=configs, requests=requests)
    assert find_contradictions(allocated, DRIVER, NODE_DEVICES) == ()


@pytest.mark.parametrize(
    ("geometry", "largest"),
    [
        (gpu_geometry(gpu_model("h100-80gb-sxm")), 2),
        (gpu_geometry(gpu_model("a30-24gb")), 3),
        (fpga_geometry(EVERY_WAY), 3),
    ],
    ids=["engines", "a small card", "layouts"],
)
def test_a_claim_may_have_what_a_card_can_have_at_once_and_nothing_else(geometry: Geometry, largest: int) -> None:
    card = Card(uuid="CARD-0", index=0, geometry=geometry)
    node_devices = devices_of(card)
    (published,) = node_devices.published.values()
    judged = set[bool]()
    for chosen in combinations(published.devices.items(), largest):
        allocated = claim("training", *(result(device.device) for device, _ in chosen))
        may_be = may_coexist(card, [device.partition for _, device in chosen])
        assert (not find_contradictions(allocated, DRIVER, node_devices)) == may_be, [each for each, _ in chosen]
        judged.add(may_be)
    assert judged == {True, False}


@pytest.mark.parametrize(
    ("one", "is_refused"),
    [
        (result("camera", consumed={}), False),
        (result("camera", share="one", consumed={"users": "1"}), False),
        (result("camera", consumed={"users": "1"}), True),
        (result("camera", share="one", consumed={"users": "3"}), True),
        (result("camera", share="one", consumed={"memory": "1Gi"}), True),
    ],
    ids=[
        "where shares are off",
        "a share",
        "an amount without a share",
        "more users than it has",
        "a foreign capacity",
    ],
)
def test_a_device_that_nodes_share_may_be_had_as_a_whole_where_the_api_server_has_no_shares(
    one: DeviceRequestAllocationResult, is_refused: bool
) -> None:
    users = ((CAPACITY_USERS, Quantity(2)),)
    whole = PartitionSpec(kind=SHARED.name, mask=1, size=(1,), weight=1, capacity=users)
    geometry = Geometry(kind=SHARED.name, model="cameras", unit="device", units=1, specs=(whole,))
    card = Card(uuid="camera", index=0, geometry=geometry)
    node_devices = devices_of(card, is_network_attached=True)
    allocated = claim("training", replace(one, pool="camera"))
    assert bool(find_contradictions(allocated, DRIVER, node_devices)) is is_refused


def test_a_request_of_a_form_that_is_not_known_may_have_any_access_and_alternative() -> None:
    """Classic claims say neither, and a later version of the API may say it elsewhere."""
    results = [result("gpu-0", request="a/b"), result("gpu-1", request="a", admin=True)]
    allocated = claim("training", *results, requests=[DeviceRequest(name="a")])
    assert find_contradictions(allocated, DRIVER, NODE_DEVICES) == ()


def test_a_claim_without_an_allocation_contradicts_nothing() -> None:
    asked = [DeviceRequest(name="a", exactly=ExactDeviceRequest(device_class_name="gpu"))]
    assert find_contradictions(claim("training", requests=asked), DRIVER, NODE_DEVICES) == ()


def test_what_another_driver_has_is_not_judged() -> None:
    own = result("gpu-0")
    theirs = [result(f"nic-{number}", driver="x.example.com", request="?", admin=bool(number)) for number in range(2)]
    requests = claim("training", own).spec.devices.requests
    assert find_contradictions(claim("training", *theirs, own, requests=requests), DRIVER, NODE_DEVICES) == ()
    own_too = replace(own, request="?")
    [problem] = find_contradictions(claim("training", *theirs, own_too, requests=requests), DRIVER, NODE_DEVICES)
    assert problem.path == "status.allocation.devices.results[2].request"
