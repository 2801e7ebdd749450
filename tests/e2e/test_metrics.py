"""The metrics of a claim on a real cluster, whose scheduler and kubelet say when it was allocated and is used."""

from tests.e2e import pods
from tests.e2e.namespace import Namespace
from tests.e2e.wait import eventually
from tools.realcluster.kerf import Hardware

HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "h100-80gb-sxm"}], options={})


async def test_a_claim_is_followed_from_its_allocation_to_its_pod_and_its_partition(namespace: Namespace) -> None:
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    await namespace.template("small", pods.exactly("gpu", small))
    await namespace.create_pods("small", "p")
    told = (await namespace.wait_running("p")).main
    node = namespace.node

    (line,) = await node.series("kerf_prepared_device_info")
    (uuid,) = told.kerf_devices.values()
    labels = {"namespace": namespace.name, "pod": "p", "cut": "1g.10gb", "card": "gpu-0", "uuid": uuid}
    assert [name for name, value in labels.items() if f'{name}="{value}"' not in line] == []
    (prepared,) = await node.series("kerf_claim_prepared_timestamp_seconds")
    assert 'pod="p"' in prepared
    assert await node.metric("kerf_claim_phase_seconds_count") == 2, "queued and allocated"
    assert await node.metric("kerf_free_units") == await node.metric("kerf_card_units") - 1

    async def is_running() -> bool:
        return any('phase="running"' in line and line.endswith(" 1.0") for line in await node.series("kerf_claims"))

    await eventually("the kubelet has told of the pod", is_running)
    await namespace.delete_pod("p")
    assert await node.series("kerf_prepared_device_info") == []
