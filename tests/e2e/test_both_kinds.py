"""Pods with claims and pods with ``limits`` come and go on one card, while its class keeps more or fewer placements.

Whatever the order in which scheduler, kubelet and plugin see the changes, no two containers have the same partition
(DP-14). The time is ``KERF_CHURN_S``: three minutes, in ``make soak CHURN_S=3600`` an hour.
"""

import os
from random import Random
from typing import Final

import anyio
import pytest

from tests.e2e import pods
from tests.e2e.churn import Churn, PodJudge
from tests.e2e.namespace import Namespace
from tools.realcluster.kerf import Hardware

HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "h100-80gb-sxm"}], options={})
EARLY_LOADING = True
"""Which also lets plugins list claims: before a placement is listed to the kubelet, no claim may have it."""

DURATION_S: Final = float(os.environ.get("KERF_CHURN_S", "180"))
LIMITS: Final = 5
CLAIMS: Final = 4
"""Pods at a time, of which the card can have seven together: some always wait for others to end."""
PER_NODE: Final = (3, 5, 2, 4)
"""What the class keeps for pods with limits, in turns."""
MOVE_S: Final = 15.0


@pytest.mark.timeout(DURATION_S + 1800)  # more than other tests on real clusters get, whatever the time of the churn
async def test_no_two_pods_have_one_partition_whatever_is_kept_for_either_kind(namespace: Namespace) -> None:
    resource = f"kerf.dev/{namespace.name}"
    offer = {"resource": resource, "perNode": PER_NODE[0]}
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb", devicePlugin=offer)
    await namespace.template("claimed", pods.exactly("gpu", small))

    async def list_uuids() -> frozenset[str]:
        return frozenset(namespace.node.hardware.uuids)

    judge = PodJudge(list_uuids, anyio.current_time)
    seed = Random().randrange(10**9)  # printed when the test fails
    print(f"seed {seed}")
    churn = Churn(namespace=namespace, judge=judge, duration_s=DURATION_S, random=Random(seed))

    async def by_limit(name: str) -> None:
        await namespace.apply(pods.pod(name, limits={resource: "1"}))

    async def by_claim(name: str) -> None:
        await namespace.create_pods("claimed", name)

    async def move() -> None:
        patch = {"apiVersion": "kerf.dev/v1alpha1", "kind": "ResourceClass", "metadata": {"name": small}}
        spec = {"device": "gpu", "profile": "1g.10gb"}
        number = 0
        while True:
            await anyio.sleep(MOVE_S)
            number += 1
            moved = {**offer, "perNode": PER_NODE[number % len(PER_NODE)]}
            await namespace.api.apply({**patch, "spec": {**spec, "devicePlugin": moved}})

    async with anyio.create_task_group() as mover:
        mover.start_soon(move)
        async with anyio.create_task_group() as group:
            for _ in range(LIMITS):
                group.start_soon(churn.run, "limit", by_limit)
            for _ in range(CLAIMS):
                group.start_soon(churn.run, "claim", by_claim)
        mover.cancel_scope.cancel()
    print(f"ran {dict(churn.ran)}, rejected {dict(churn.rejected)}, {len(judge.places)} places")
    assert min(churn.ran["limit"], churn.ran["claim"]) >= DURATION_S / 60, churn.ran
    assert len(judge.places) == 7, judge.places
