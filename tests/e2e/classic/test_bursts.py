"""Pods at once, and several devices of one claim, are packed on few cards where Kerf's controller allocates."""

from collections.abc import AsyncIterator, Sequence

import anyio
import pytest

from tests.e2e.classic.namespace import ClassicNamespace
from tests.e2e.classic.nodes import with_cards

NODE = "bare1"
"""A node without kubelet: its pods are bound and never run, so that its cards need no hardware."""
CARDS = 8
CARD_HOLDS = 7
"""1g.10gb partitions of an H100: it has seven compute slices."""


@pytest.fixture
async def eight_cards(namespace: ClassicNamespace) -> AsyncIterator[None]:
    """Eight empty H100s on one node; no pod is left on it."""
    async with with_cards(namespace.api, (NODE,), like=namespace.node.name, gpus=CARDS):
        yield
        for pod in await namespace.api.list("v1", "Pod", namespace.name):
            await namespace.delete_pod(pod["metadata"]["name"])


def broken_cards(devices: Sequence[str]) -> set[str]:
    """Return the cards of devices, which are named like ``gpu-0-1g-10gb-at-3``."""
    return {"-".join(device.split("-")[:2]) for device in devices}


@pytest.mark.usefixtures("eight_cards")
@pytest.mark.parametrize(("count", "cards"), [(CARD_HOLDS, 1), (CARD_HOLDS + 1, 2)])
async def test_pods_at_once_fill_one_card_before_the_next(namespace: ClassicNamespace, count: int, cards: int) -> None:
    await namespace.template("small", "gpu-small")
    async with anyio.create_task_group() as group:
        for number in range(count):
            group.start_soon(create_pod, namespace, f"p{number}", "small")
    await namespace.wait_allocated_count(count)
    devices = await namespace.devices()
    assert all("-1g-10gb-at-" in device for device in devices)
    assert len(broken_cards(devices)) == cards


@pytest.mark.usefixtures("eight_cards")
async def test_several_devices_of_one_claim_share_a_card(namespace: ClassicNamespace) -> None:
    pair = await namespace.parameters("pair", {"profile": "1g.10gb", "count": 2})
    await namespace.template("pair", "gpu-by-size", pair)
    await create_pod(namespace, "p", "pair")
    await namespace.wait_allocated_count(2)
    assert len(broken_cards(await namespace.devices())) == 1


async def create_pod(namespace: ClassicNamespace, name: str, template: str) -> None:
    on_node = {"kubernetes.io/hostname": NODE}
    await namespace.pod(name, {"gpu": {"resourceClaimTemplateName": template}}, nodeSelector=on_node)
