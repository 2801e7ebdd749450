"""No more pods use a claim at a time than its class lets: ``deploy/classic/sharing-policy.yaml`` on a real cluster."""

from collections.abc import AsyncIterator

import pytest

from tests.e2e.classic.dialects import KERF
from tests.e2e.classic.scene import Scene
from tests.realcluster.api import Document

SHARED: Document = {"resourceClaimName": "shared"}


@pytest.fixture
async def for_two(scene: Scene) -> AsyncIterator[str]:
    """A class whose claims two pods may use at a time."""
    name = scene.namespace
    offer: Document = {"profile": "1g.10gb", "maxPods": 2}
    parameters = {"apiVersion": KERF, "kind": "GpuClassParameters", "metadata": {"name": name}, "spec": offer}
    if scene.dialect.refers:
        await scene.api.create(parameters)
    await scene.api.create(scene.dialect.class_(name, parameters))
    yield name
    await scene.delete_class(name)
    if scene.dialect.refers:
        await scene.api.delete(KERF, "GpuClassParameters", name)


async def test_a_pod_that_is_one_too_many_waits_for_a_place_and_holds_nothing(scene: Scene, for_two: str) -> None:
    # R-18, T-E sharing one claim sequentially
    await scene.claim("shared", for_two)
    for name in ("first", "second"):
        await scene.pod(name, {"gpu": SHARED})
        await scene.runs(name)

    await scene.pod("third", {"gpu": SHARED})
    await scene.says("third", "the claim is full: its class lets 2 pods use it at a time (maxPods)")

    await scene.claim("own", "gpu-small")
    await scene.pod("fourth", {"gpu": SHARED, "own": {"resourceClaimName": "own"}})
    await scene.says("fourth", "pod claim gpu: ResourceClaim shared is full: 2 pods use it")
    assert "allocation" not in (await scene.read_claim("own")).get("status", {})

    await scene.delete_pod("first")
    await scene.some_run(2)
    # Only now: a kubelet before 1.37 forgets a claim that one pod leaves while another comes (docs/classic.md).
    await scene.delete_pod("second")
    for name in ("third", "fourth"):
        await scene.runs(name)
