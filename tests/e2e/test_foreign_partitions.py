"""Partitions that somebody cuts by hand: pods go elsewhere, run beside them, and come back when they are gone."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from tests.e2e import pods
from tests.e2e.early_load import cordon
from tests.e2e.hardware import BOTH_BACKENDS
from tests.e2e.namespace import Namespace
from tests.e2e.wait import eventually
from tools.realcluster.api import Document
from tools.realcluster.kerf import Hardware, Kerf

FIRST, SECOND = "node1", "node2"
NODES = (FIRST, SECOND)
EARLY_LOADING = True
"""The permission to list claims: without it devices are tainted, not withdrawn."""
HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "h100-80gb-sxm"}], options={})

ELSEWHERE_S: Final = 30.0
"""What a user waits at most for a pod that another node can run, where the machine is not loaded."""


def preferring(node: str) -> Document:
    """Return the affinity of a pod that runs on ``node`` where it can."""
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    preferred = {"weight": 100, "preference": term}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}}


@asynccontextmanager
async def whole_card_deployment(namespace: Namespace) -> AsyncIterator[None]:
    """Run a Deployment of one pod with a whole card, which prefers the first node; it is gone after the context."""
    whole = await namespace.resource_class("whole", device="gpu", cut="Whole")
    await namespace.template("whole", pods.exactly("gpu", whole))
    pod = pods.pod("whole", {"devices": pods.by_template("whole")}, affinity=preferring(FIRST))
    labels = {"app": "whole"}
    await namespace.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "whole"},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod["spec"]},
            },
        }
    )
    try:
        yield
    finally:
        await namespace.api.delete("apps/v1", "Deployment", "whole", namespace.name)

        async def no_pods() -> bool:
            return not await namespace.api.list("v1", "Pod", namespace.name)

        await eventually("the Deployment's pods are gone", no_pods)


async def running_on(namespace: Namespace) -> str | None:
    """Return the node on which the Deployment's pod runs; None: it does not run."""
    for pod in await namespace.api.list("v1", "Pod", namespace.name):
        statuses = pod["status"].get("containerStatuses", ())
        if statuses and all(one["ready"] for one in statuses) and "deletionTimestamp" not in pod["metadata"]:
            return str(pod["spec"]["nodeName"])
    return None


async def wait_runs_elsewhere(namespace: Namespace) -> None:
    async def runs_elsewhere() -> bool:
        return await running_on(namespace) == SECOND

    await eventually(
        "the pod runs on the other node", runs_elsewhere, within_s=ELSEWHERE_S, but=lambda: describe_pods(namespace)
    )


async def describe_pods(namespace: Namespace) -> object:
    found = await namespace.api.list("v1", "Pod", namespace.name)
    return [await namespace.describe_pod(pod["metadata"]["name"]) for pod in found]


@BOTH_BACKENDS
async def test_a_pod_runs_on_the_other_node_when_the_card_was_cut_by_hand_before(namespace: Namespace) -> None:
    first = namespace.nodes[FIRST]
    with first.cut_by_hand("gpu-0", "3g.40gb", start=0, size=4) as by_hand:
        async with whole_card_deployment(namespace):
            await wait_runs_elsewhere(namespace)
            assert first.gpu_partitions == [("gpu-0", "3g.40gb", 0)]
            assert first.holds(by_hand), "what somebody else has cut is theirs"


@BOTH_BACKENDS
async def test_a_pod_is_evicted_to_the_other_node_when_the_card_was_cut_by_hand_after_its_allocation(
    namespace: Namespace, kerf: Kerf
) -> None:
    first = namespace.nodes[FIRST]
    await kerf.crash_plugin(FIRST)  # until it is back the pod is allocated and bound, and not prepared
    await cordon(namespace.api, SECOND, is_on=True)

    async def is_bound() -> bool:
        found = await namespace.api.list("v1", "Pod", namespace.name)
        return [pod["spec"].get("nodeName") for pod in found] == [FIRST]

    async with whole_card_deployment(namespace):
        try:
            await eventually(
                "the pod is bound to the only node that takes pods", is_bound, but=lambda: describe_pods(namespace)
            )
            with first.cut_by_hand("gpu-0", "3g.40gb", start=0, size=4) as by_hand:
                await cordon(namespace.api, SECOND, is_on=False)
                await kerf.start_plugin(FIRST)
                await wait_runs_elsewhere(namespace)
                assert first.holds(by_hand)
        finally:
            await cordon(namespace.api, SECOND, is_on=False)
            if not first.plugin_is_running:
                await kerf.start_plugin(FIRST)


@BOTH_BACKENDS
async def test_a_pod_that_fits_beside_a_partition_cut_by_hand_runs_beside_it(namespace: Namespace) -> None:
    first = namespace.nodes[FIRST]
    half = await namespace.resource_class("half", device="gpu", profile="3g.40gb")
    await namespace.template("half", pods.exactly("gpu", half))
    with first.cut_by_hand("gpu-0", "3g.40gb", start=0, size=4) as by_hand:
        await namespace.create_pods("half", "p", nodeSelector={"kubernetes.io/hostname": FIRST})
        await namespace.wait_running("p")
        assert first.gpu_partitions == [("gpu-0", "3g.40gb", 0), ("gpu-0", "3g.40gb", 4)]
        await namespace.delete_pod("p")
        assert first.gpu_partitions == [("gpu-0", "3g.40gb", 0)]
        assert first.holds(by_hand)


@BOTH_BACKENDS
async def test_devices_that_somebody_else_held_come_back_when_the_partition_is_gone(namespace: Namespace) -> None:
    first = namespace.nodes[FIRST]
    idle = await namespace.published_devices()
    with first.cut_by_hand("gpu-0", "3g.40gb", start=0, size=4):

        async def are_withdrawn() -> bool:
            published = await namespace.published_devices()
            return published.count("gpu-0") == 1 and published.count("gpu-0-3g-40gb-at-4") == 2

        await eventually("what overlaps it is withdrawn", are_withdrawn, but=namespace.published_devices)

        async def messages() -> list[str]:
            about = f"involvedObject.name={FIRST}"
            return [one["message"] for one in await namespace.api.list("v1", "Event", "default", fieldSelector=about)]

        async def is_told() -> bool:
            return any("in use outside of Kerf: 3g.40gb at 0" in message for message in await messages())

        await eventually("an event of the node tells it", is_told, but=messages)
    await namespace.wait_published(idle)


@BOTH_BACKENDS
async def test_a_card_that_was_away_when_its_pod_went_is_usable_again_when_it_comes_back(
    namespace: Namespace, kerf: Kerf
) -> None:
    first = namespace.nodes[FIRST]
    whole_node = {"nodeSelector": {"kubernetes.io/hostname": FIRST}}
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    await namespace.template("small", pods.exactly("gpu", small))
    await namespace.create_pods("small", "p", **whole_node)
    await namespace.wait_running("p")
    (orphan,) = first.gpu_partitions
    await kerf.stop_plugin(FIRST)
    first.hardware.take_away("gpu-0")
    await kerf.start_plugin(FIRST)
    await namespace.delete_pod("p")
    assert first.gpu_partitions == [orphan], "nothing can be taken back from a card that is not there"
    first.hardware.repair()

    async def is_taken_back() -> bool:
        return not first.gpu_partitions

    await eventually("the orphan is taken back", is_taken_back)
    whole = await namespace.resource_class("whole", device="gpu", cut="Whole")
    await namespace.template("whole", pods.exactly("gpu", whole))
    await namespace.create_pods("whole", "q", **whole_node)
    await namespace.wait_running("q")


async def test_cdi_files_that_were_removed_while_the_plugin_was_away_are_there_when_it_has_registered(
    namespace: Namespace, kerf: Kerf
) -> None:
    first = namespace.nodes[FIRST]
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    await namespace.template("small", pods.exactly("gpu", small))
    await namespace.create_pods("small", "p", nodeSelector={"kubernetes.io/hostname": FIRST})
    await namespace.wait_running("p")
    files = first.cdi_contents()
    assert len(files) == 1
    await kerf.stop_plugin(FIRST)
    first.remove_cdi_files()
    await kerf.start_plugin(FIRST)
    assert first.cdi_contents() == files
