"""No more pods use a claim at a time than its class allows (``deploy/classic/sharing-policy.yaml``)."""

from collections.abc import AsyncIterator

import pytest

from tests.e2e.classic.dialects import KERF
from tests.e2e.classic.namespace import ClassicNamespace
from tools.realcluster.api import Document

SHARED: Document = {"resourceClaimName": "shared"}


@pytest.fixture
async def for_two(namespace: ClassicNamespace) -> AsyncIterator[str]:
    """Create a class whose claims two pods may use at a time."""
    name = namespace.name
    offer: Document = {"profile": "1g.10gb", "maxPods": 2}
    parameters = {"apiVersion": KERF, "kind": "GpuClassParameters", "metadata": {"name": name}, "spec": offer}
    if namespace.dialect.refers:
        await namespace.api.create(parameters)
    await namespace.api.create(namespace.dialect.class_(name, parameters))
    yield name
    await namespace.delete_class(name)
    if namespace.dialect.refers:
        await namespace.api.delete(KERF, "GpuClassParameters", name)


async def test_a_pod_that_is_one_too_many_waits_for_a_place_and_holds_nothing(
    namespace: ClassicNamespace, for_two: str
) -> None:
    # R-18, T-E sharing one claim sequentially
    await namespace.claim("shared", for_two)
    for name in ("first", "second"):
        await namespace.pod(name, {"gpu": SHARED})
        await namespace.wait_running(name)

    await namespace.pod("third", {"gpu": SHARED})
    await namespace.wait_event("third", "the claim is full: its class lets 2 pods use it at a time (maxPods)")

    await namespace.claim("own", "gpu-small")
    await namespace.pod("fourth", {"gpu": SHARED, "own": {"resourceClaimName": "own"}})
    await namespace.wait_event("fourth", "pod claim gpu: ResourceClaim shared is full: 2 pods use it")
    assert "allocation" not in (await namespace.read_claim("own")).get("status", {})

    await namespace.delete_pod("first")
    await namespace.wait_running_count(2)
    # Only now: a kubelet before 1.37 forgets a claim that one pod leaves while another comes (docs/classic.md).
    await namespace.delete_pod("second")
    for name in ("third", "fourth"):
        await namespace.wait_running(name)
