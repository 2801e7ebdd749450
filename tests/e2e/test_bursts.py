"""Pods that come at once, and several devices for one pod, are packed on few cards, so that the others stay whole."""

import pytest

from tests.e2e import pods
from tests.e2e.namespace import Namespace
from tools.realcluster.kerf import Hardware

HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "h100-80gb-sxm", "count": 8}], options={})

SMALL = {"device": "gpu", "profile": "1g.10gb"}
CARD_HOLDS = 7
"""1g.10gb partitions of an H100: it has seven compute slices."""


def broken_cards(namespace: Namespace) -> set[str]:
    return {card for card, _, _ in namespace.node.gpu_partitions}


@pytest.mark.parametrize(("count", "cards"), [(CARD_HOLDS, 1), (CARD_HOLDS + 1, 2)])
async def test_pods_at_once_fill_one_card_before_the_next(namespace: Namespace, count: int, cards: int) -> None:
    small = await namespace.resource_class("small", **SMALL)
    await namespace.template("small", pods.exactly("gpu", small))
    names = [f"p{number}" for number in range(count)]
    await namespace.create_pods("small", *names)
    for name in names:
        await namespace.wait_running(name)
    assert [profile for _, profile, _ in namespace.node.gpu_partitions] == ["1g.10gb"] * count
    assert len(broken_cards(namespace)) == cards


async def test_pods_of_several_sizes_at_once_share_cards(namespace: Namespace) -> None:
    small = await namespace.resource_class("small", **SMALL)
    half = await namespace.resource_class("half", device="gpu", profile="3g.40gb")
    await namespace.template("small", pods.exactly("gpu", small))
    await namespace.template("half", pods.exactly("gpu", half))
    await namespace.create_pods("small", "s0", "s1")
    await namespace.create_pods("half", "h0")
    for name in ("s0", "s1", "h0"):
        await namespace.wait_running(name)
    assert len(broken_cards(namespace)) == 1


async def test_two_devices_of_one_request_share_a_card(namespace: Namespace) -> None:
    small = await namespace.resource_class("small", **SMALL)
    await namespace.template("pair", pods.exactly("gpus", small, count=2))
    await namespace.create_pods("pair", "p")
    told = (await namespace.wait_running("p")).main
    assert len(told.kerf_devices) == 2
    assert len(namespace.node.gpu_partitions) == 2
    assert len(broken_cards(namespace)) == 1


async def test_an_extended_resource_in_limits_is_met_on_one_card(namespace: Namespace) -> None:
    name = f"{namespace.name}.kerf.dev/gpu-10gb"
    await namespace.resource_class("small", **SMALL, extendedResourceName=name)
    await namespace.apply(pods.pod("p", limits={name: "3"}))
    told = (await namespace.wait_running("p")).main
    assert len(told.kerf_devices) == 3
    assert len(namespace.node.gpu_partitions) == 3
    assert len(broken_cards(namespace)) == 1
