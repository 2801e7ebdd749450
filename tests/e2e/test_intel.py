"""Intel's GPUs on a real kubelet: what containers see of cards, tiles and shares (rows RM- and GS- of the reference).

The cards are files of a stand-in machine; the mask is compared with what the rows say, worked out of the container's
own devices: ``position x tiles + tile`` by default, ``position.tile`` for the composite hierarchy, where positions
count the cards that the container sees by their PCI addresses.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.e2e import pods
from tests.e2e.container_log import ContainerReport
from tests.e2e.namespace import Namespace
from tests.e2e.test_examples import read, wait_compiled
from tests.e2e.wait import eventually
from tools.realcluster.kerf import Hardware

HARDWARE = Hardware(cards=[], options={}, intel_tiles=(2, 2))
EARLY_LOADING = True
"""For the extended resource."""
TILES = 2
DRIVER = "gpu-intel.kerf.dev"
CARD_NODES = re.compile(r"/dev/dri/(card|renderD)\d+")


def find_devices(report: ContainerReport) -> list[tuple[str, int | None]]:
    """The PCI address and the tile of each device of a container; None: all tiles."""
    words = sorted(value.split() for value in report.kerf_devices.values())
    return [(each[0], int(each[2]) if len(each) > 1 else None) for each in words]


def expect_mask(devices: Sequence[tuple[str, int | None]], *, is_composite: bool = False) -> str:
    """The mask that the reference says a container with these devices has."""
    cards = sorted({address for address, _ in devices})
    found = sorted(
        (cards.index(address), each)
        for address, tile in devices
        for each in (range(TILES) if tile is None else (tile,))
    )
    return ",".join(f"{card}.{tile}" if is_composite else str(card * TILES + tile) for card, tile in found)


def list_nodes(report: ContainerReport) -> set[str]:
    return {path for path in report.device_nodes if CARD_NODES.fullmatch(path)}


async def tile_class(namespace: Namespace, name: str = "tile", **spec: Any) -> str:
    return await namespace.resource_class(name, device="gpu-intel", profile="1t", **spec)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("hierarchy", ["Flat", "Composite"])
async def test_rm_05_a_container_sees_the_mask_of_its_tiles(namespace: Namespace, count: int, hierarchy: str) -> None:
    tile = await tile_class(namespace)
    config = [
        {
            "requests": ["tiles"],
            "opaque": {
                "driver": DRIVER,
                "parameters": {
                    "apiVersion": "kerf.dev/v1alpha1",
                    "kind": "IntelGpuConfig",
                    "hierarchy": hierarchy,
                },
            },
        }
    ]
    await namespace.template("tiles", pods.exactly("tiles", tile, count=count), config=config)
    await namespace.create_pods("tiles", "p")
    told = (await namespace.wait_running("p")).main
    devices = find_devices(told)
    assert len(devices) == count
    assert told.environment["ZE_AFFINITY_MASK"] == expect_mask(devices, is_composite=hierarchy == "Composite")
    assert told.environment["ZE_FLAT_DEVICE_HIERARCHY"] == hierarchy.upper()
    assert len(list_nodes(told)) == 2 * len({address for address, _ in devices}), "RM-03: no other card"


async def test_rm_06_a_whole_card_has_no_mask_and_rm_03_two_cards_have_both_nodes(namespace: Namespace) -> None:
    card = await namespace.resource_class("card", device="gpu-intel", cut="Whole")
    await namespace.template("cards", pods.exactly("cards", card, count=2))
    await namespace.create_pods("cards", "p")
    told = (await namespace.wait_running("p")).main
    assert "ZE_AFFINITY_MASK" not in told.environment
    assert list_nodes(told) == {"/dev/dri/card0", "/dev/dri/card1", "/dev/dri/renderD128", "/dev/dri/renderD129"}
    assert [tile for _, tile in find_devices(told)] == [None, None]


async def test_rm_04_each_container_has_its_own_cards_and_one_without_a_claim_has_none(namespace: Namespace) -> None:
    tile = await tile_class(namespace)
    for name in ("first", "second"):
        await namespace.claim(name, pods.exactly("tile", tile))
    document = pods.pod(
        "p",
        {"a": pods.by_name("first"), "b": pods.by_name("second")},
        containers=("one", "none", "two"),
    )
    for container, claims in zip(document["spec"]["containers"], (["a"], [], ["b"]), strict=True):
        container["resources"] = {"claims": [{"name": each} for each in claims]}
    await namespace.apply(document)
    told = (await namespace.wait_running("p")).containers
    masks: Mapping[str, str | None] = {name: one.environment.get("ZE_AFFINITY_MASK") for name, one in told.items()}
    assert masks == {
        "one": expect_mask(find_devices(told["one"])),
        "none": None,
        "two": expect_mask(find_devices(told["two"])),
    }
    assert find_devices(told["one"]) != find_devices(told["two"])
    assert list_nodes(told["none"]) == set()


async def test_two_claims_with_tiles_in_one_container_are_refused_with_the_reason(namespace: Namespace) -> None:
    """The runtime would keep the later mask without a word."""
    tile = await tile_class(namespace)
    for name in ("first", "second"):
        await namespace.claim(name, pods.exactly("tile", tile))
    await namespace.apply(pods.pod("p", {"a": pods.by_name("first"), "b": pods.by_name("second")}))
    message = await namespace.wait_event("p", "FailedPrepareDynamicResources", saying="ZE_AFFINITY_MASK")
    assert f"container main of pod {namespace.name}/p uses the claims first and second" in message
    assert "make one claim with one request of several devices" in message


async def test_rm_01_and_rm_02_shares_of_a_card_fit_as_long_as_their_sums_do(namespace: Namespace) -> None:
    """GS-01: two halves of two cards each, and no third half of any, although a fifth of both together is free."""
    share = await namespace.resource_class("share", device="gpu-intel", cut="Whole", allocation="Shared")
    half = {"requests": {"memory": "8Gi", "millicores": "400"}}
    await namespace.template("share", pods.exactly("share", share, capacity=half))
    names = [f"p{number}" for number in range(4)]
    await namespace.create_pods("share", *names, "late")
    ran: set[str] = set()

    async def four_run() -> bool:
        for name in (*names, "late"):
            if name not in ran and await namespace.find_running(name) is not None:
                ran.add(name)
        return len(ran) == 4

    await eventually("four of five pods run", four_run, but=lambda: namespace.describe_pod("late"))
    [waiting] = {*names, "late"} - ran
    await namespace.wait_event(waiting, "FailedScheduling")
    assert await namespace.find_running(waiting) is None
    told = (await namespace.wait_running(min(ran))).main
    limits = {name: value for name, value in told.environment.items() if name.startswith("KERF_M")}
    assert sorted(limits.values()) == sorted([str(8 * 2**30), "400"])
    await namespace.delete_pod(min(ran))
    await namespace.wait_running(waiting)


async def test_a_pod_with_limits_for_two_tiles_has_one_mask_for_both(namespace: Namespace) -> None:
    resource = f"kerf.dev/{namespace.name}"
    await tile_class(namespace, devicePlugin={"resource": resource, "perNode": 2})

    async def is_listed() -> bool:
        node = await namespace.api.get("v1", "Node", namespace.node.name)
        return bool(node["status"]["allocatable"].get(resource) == "2")

    await eventually("two tiles are allocatable", is_listed)
    await namespace.apply(pods.pod("p", limits={resource: "2"}))
    told = (await namespace.wait_running("p")).main
    devices = find_devices(told)
    assert len(devices) == 2
    assert told.environment["ZE_AFFINITY_MASK"] == expect_mask(devices)


async def test_the_example_gives_two_tiles_and_two_shares(namespace: Namespace) -> None:
    documents = read("intel-fractions", reports=True)
    [share] = (one for one in documents if one["metadata"]["name"] == "intel-share" and "Template" in one["kind"])
    [request] = share["spec"]["spec"]["devices"]["requests"]
    request["exactly"]["capacity"]["requests"]["memory"] = "40Gi"  # two of them fit on a card of 96 GiB
    classes = [one for one in documents if one["kind"] == "ResourceClass"]
    for document in classes:
        await namespace.api.apply(document)
        await wait_compiled(namespace.api, document["metadata"]["name"])
    await namespace.apply(*(one for one in documents if one["kind"] != "ResourceClass"))
    names = ("intel-tile-1", "intel-tile-2", "intel-share-1", "intel-share-2")
    running = {name: await namespace.wait_running(name) for name in names}
    told = {name: one.main for name, one in running.items()}
    assert {told[name].environment["ZE_AFFINITY_MASK"] for name in names[:2]} <= {"0", "1"}
    places = {name: (one.pod["spec"]["nodeName"], find_devices(one.main)[0][0]) for name, one in running.items()}
    tiles, shares = {places[name] for name in names[:2]}, {places[name] for name in names[2:]}
    assert tiles.isdisjoint(shares), "a card is cut into tiles, or shared"
    for name in names[2:]:
        assert "ZE_AFFINITY_MASK" not in told[name].environment
        assert "500" in told[name].environment.values()
    for name in names:
        await namespace.delete_pod(name)
    for document in classes:
        await namespace.api.delete(document["apiVersion"], document["kind"], document["metadata"]["name"])
