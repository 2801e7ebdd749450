"""What a claim uses is in the metrics, and while its device is idle in its status and in ``kerf why --idle``."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from kerf_dra.driver.testing.nvml import GpmActivity, NvidiaMachine
from tests.e2e import pods
from tests.e2e.hardware import ON_NVIDIA
from tests.e2e.namespace import Namespace
from tests.e2e.wait import eventually
from tests.e2e.why_audit import ask_why
from tools.realcluster.cluster import Cluster
from tools.realcluster.kerf import Hardware

pytestmark = ON_NVIDIA

HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "h100-80gb-sxm"}], options={})
PLUGIN_ARGUMENTS = ("--sample-interval=0.5", "--idle-after=3")
PIDS: Final = {"worker": 4711, "other": 4712}
"""A process of each pod, as NVML lists it."""
GIB: Final = 2**30
_LABEL: Final = re.compile(r'([a-z_]+)="([^"]*)"')


async def figures(namespace: Namespace, name: str) -> Mapping[str, float]:
    """Return the values of a metric of the namespace's claims, by pod."""
    found = {}
    for line in await namespace.node.series(name):
        labels = dict(_LABEL.findall(line))
        if labels["namespace"] == namespace.name:
            found[labels["pod"]] = float(line.split()[-1])
    return found


async def data(namespace: Namespace) -> Mapping[str, Any]:
    """Return what the status of each claim shows of its only device, by the pod that the claim is for."""
    shown: dict[str, Any] = {}
    for claim in await namespace.claims():
        [owner] = claim["metadata"]["ownerReferences"]
        entries = claim.get("status", {}).get("devices", ())
        shown[owner["name"]] = next((entry.get("data", {}) for entry in entries), {})
    return shown


async def find_idle(cluster: Cluster, namespace: Namespace) -> set[str]:
    """Return the pods whose claims ``kerf why -A --idle`` names."""
    code, document = await ask_why(cluster, "-A", "--idle")
    assert code == 0, document
    claims = [claim for claim in document["claims"] if claim["namespace"] == namespace.name]
    return {pod for claim in claims for pod in claim["pods"]}


def use(machine: NvidiaMachine, instances: Mapping[str, int], pod: str, percent: float) -> None:
    """Let the process of a pod compute for so much of the time; 0: it ends."""
    machine.set_activity(0, GpmActivity(graphics=percent), gpu_instance=instances[pod])
    if percent:
        machine.start_process(
            0, PIDS[pod], gpu_instance=instances[pod], compute_instance=0, memory_bytes=(PIDS[pod] - 4709) * GIB
        )
    else:
        machine.end_process(PIDS[pod])


async def test_a_claim_shows_its_use_and_when_it_became_idle(
    namespace: Namespace, machine: NvidiaMachine, cluster: Cluster
) -> None:
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    await namespace.template("small", pods.exactly("gpu", small))
    await namespace.create_pods("small", *PIDS)
    uuids = {pod: next(iter((await namespace.wait_running(pod)).main.kerf_devices.values())) for pod in PIDS}
    numbers = {one.uuid: one.id for one in machine.list_instances()}
    instances = {pod: numbers[uuid] for pod, uuid in uuids.items()}
    use(machine, instances, "worker", 75)
    use(machine, instances, "other", 25)

    async def is_measured() -> bool:
        busy = await figures(namespace, "kerf_claim_utilization_ratio")
        return busy.keys() == PIDS.keys() and abs(busy["worker"] - 0.75) + abs(busy["other"] - 0.25) < 0.01

    await eventually("the activity of both claims is measured", is_measured)
    assert await figures(namespace, "kerf_claim_memory_bytes") == {"worker": 2 * GIB, "other": 3 * GIB}
    assert await figures(namespace, "kerf_claim_idle_seconds") == {"worker": 0, "other": 0}
    before = await figures(namespace, "kerf_claim_energy_joules_total")
    machine.add_energy(0, 400)

    async def is_shared_out() -> bool:
        now = await figures(namespace, "kerf_claim_energy_joules_total")
        shares = {pod: now[pod] - before[pod] for pod in PIDS}
        return shares == pytest.approx({"worker": 300, "other": 100}, abs=1)

    await eventually("its energy is shared out by activity", is_shared_out)
    card = await namespace.node.metric("kerf_card_energy_joules_total")
    unattributed = await namespace.node.metric("kerf_card_unattributed_energy_joules_total")
    assert card - unattributed >= 399.9
    assert await find_idle(cluster, namespace) == set()

    use(machine, instances, "worker", 0)

    async def is_idle() -> Mapping[str, Any] | None:
        found = await data(namespace)
        return found if found["worker"].get("idleSince") else None

    shown = await eventually("the status of the claim says since when it is idle", is_idle)
    since = datetime.fromisoformat(shown["worker"]["idleSince"])
    assert 0 <= (datetime.now(UTC) - since).total_seconds() < 300
    assert "idleSince" not in shown["other"]
    assert await find_idle(cluster, namespace) == {"worker"}
    idle = await figures(namespace, "kerf_claim_idle_seconds")
    assert idle["worker"] >= 3
    assert idle["other"] == 0

    use(machine, instances, "worker", 50)

    async def is_busy() -> bool:
        return "idleSince" not in (await data(namespace))["worker"]

    await eventually("the status says so no more once it is used", is_busy)
    for pod in PIDS:
        machine.end_process(PIDS[pod])
        await namespace.delete_pod(pod)

    async def is_gone() -> bool:
        return await figures(namespace, "kerf_claim_memory_bytes") == {}

    await eventually("the series of claims that ended are gone", is_gone)
