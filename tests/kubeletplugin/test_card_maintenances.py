"""Cards that CardMaintenances withhold: tainted while the object is there, and what claims have of them stays."""

from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from kerf_dra.api.core.v1 import NODES, Node
from kerf_dra.api.kerf.card_maintenance import CARD_MAINTENANCES, CardMaintenanceObject
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.devices import Device
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.families.shared.node_labels import NODE_LABEL, make_node_label
from kerf_dra.driver.kubeletplugin.cluster.descriptions import watch_maintenances
from kerf_dra.driver.kubeletplugin.inventory.optional_devices import OptionalDevices
from kerf_dra.driver.kubeletplugin.settings import Settings
from tests.fakes.claims import DRIVER, NODE, claim
from tests.kubeletplugin.deviceplugin.node import RESOURCE, offering_node
from tests.kubeletplugin.harness import Machine, machine
from tests.kubeletplugin.test_described_hardware import embedded_cluster
from tests.kubeletplugin.wait import until

HELD = "gpu-1-2g-2gb-at-0"


def maintenance(card: str = "GPU-1", *, name: str = "fan", node: str = NODE, **spec: object) -> JsonObject:
    return {"metadata": {"name": name}, "spec": {"nodeName": node, "card": card, **spec}}


def published(node: Machine) -> dict[str, Device]:
    pools = node.cluster.published[-1] if node.cluster.published else ()
    return {device.name: device for pool in pools for content in pool.slices for device in content.devices}


def taints(node: Machine) -> dict[str, set[tuple[str, str, str]]]:
    """Return the taints of the devices of each GPU of the node: all devices of a card must have the same."""
    found: dict[str, set[tuple[str, str, str]]] = {}
    gpus = {name: device for name, device in published(node).items() if name.startswith("gpu-")}
    for name, device in gpus.items():
        of_device = {(taint.key, taint.value, taint.effect) for taint in device.taints}
        assert found.setdefault(name[: len("gpu-0")], of_device) == of_device, name
    return found


def withheld(value: str) -> set[tuple[str, str, str]]:
    return {(f"{DRIVER}/maintenance", value, "NoSchedule")}


@pytest.mark.parametrize("card", ["GPU-1", "gpu-1", "0000:01:00.0"])
async def test_all_devices_of_the_named_card_are_tainted_and_those_of_the_other_one_are_not(card: str) -> None:
    with machine() as node:
        node.cluster.maintenances.documents = [maintenance(card, reason="fan is loud")]
        async with node.plugin():
            await until(lambda: bool(published(node)))
            assert taints(node) == {"gpu-0": set(), "gpu-1": withheld("idle")}, "from the first publication on"
            assert [message for _, _, reason, message in node.cluster.reported if reason == "CardWithheld"] == [
                "card gpu-1 (GPU-1) gets no new claims: CardMaintenance fan, fan is loud"
            ]


async def test_the_taint_comes_and_goes_with_the_object() -> None:
    with machine() as node:
        async with node.plugin():
            await until(lambda: taints(node) == {"gpu-0": set(), "gpu-1": set()})
            node.cluster.maintenances.put(maintenance(), maintenance("GPU-0", name="other"))
            await until(lambda: taints(node) == {"gpu-0": withheld("idle"), "gpu-1": withheld("idle")})
            node.cluster.maintenances.put(maintenance("GPU-0", name="other"))
            await until(lambda: taints(node) == {"gpu-0": withheld("idle"), "gpu-1": set()})
            node.cluster.maintenances.put()
            await until(lambda: taints(node) == {"gpu-0": set(), "gpu-1": set()})


async def test_the_taint_says_in_use_until_what_a_claim_has_of_the_card_is_released() -> None:
    with machine() as node:
        ref = node.cluster.add(claim("training", HELD))
        async with node.plugin():
            await node.kubelet.prepare(ref)
            node.cluster.maintenances.put(maintenance(), maintenance("GPU-0", name="other"))
            await until(lambda: taints(node) == {"gpu-0": withheld("idle"), "gpu-1": withheld("in-use")})
            assert await node.kubelet.prepare(ref), "the claim keeps what it has"
            await node.kubelet.unprepare(ref)
            node.cluster.remove(ref)
            await until(lambda: taints(node) == {"gpu-0": withheld("idle"), "gpu-1": withheld("idle")})


async def test_shares_of_a_withheld_card_are_tainted_and_its_monitor_device_is_not() -> None:
    """Who only watches the card may go on: it is free all the same."""
    with machine() as node:
        optional = OptionalDevices(shareable=frozenset({"2g.2gb"}), monitors=frozenset({"gpu"}))
        node.cluster.target = replace(node.cluster.target, optional_devices=optional)
        node.cluster.maintenances.documents = [maintenance()]
        async with node.plugin():
            await until(lambda: "gpu-1-monitor" in published(node))
            keys = {name: {taint.key for taint in device.taints} for name, device in published(node).items()}
            assert keys[f"{HELD}-shared"] == {f"{DRIVER}/maintenance"}
            assert keys["gpu-1-monitor"] == {f"{DRIVER}/monitor"}
            assert keys["gpu-0-2g-2gb-at-0-shared"] == set()


async def test_the_kubelet_gives_no_container_a_part_of_a_withheld_card() -> None:
    """By the device plugin interface the kubelet chooses devices, which no taint of a slice keeps it from."""
    async with offering_node(unused_grace_s=0.05) as node, node.machine.plugin():
        node.offer(_1g_1gb=8)
        await node.kubelet.wait_list(RESOURCE, 8, healthy=8)
        node.machine.cluster.maintenances.put(maintenance())
        listed = await node.kubelet.wait_list(RESOURCE, 8, healthy=4)
        assert {name for name, device in listed.items() if device.health == "Healthy"} == {
            f"gpu-0-1g-1gb-at-{number}" for number in range(4)
        }
        node.machine.cluster.maintenances.put()
        await node.kubelet.wait_list(RESOURCE, 8, healthy=8)


@pytest.mark.parametrize(
    "document",
    [
        maintenance(node="node-2"),
        maintenance("GPU-9"),
        maintenance("gpu-1-2g-2gb-at-0"),
        maintenance(then="Explode"),
        maintenance(unknown="field"),
        {"metadata": {"name": "empty"}},
    ],
    ids=["other node", "no such card", "a partition", "unknown act", "unknown field", "no spec"],
)
async def test_what_names_no_card_of_the_node_withholds_none(document: JsonObject) -> None:
    with machine() as node:
        node.cluster.maintenances.documents = [document, maintenance("GPU-0", name="valid")]
        async with node.plugin():
            await until(lambda: taints(node) == {"gpu-0": withheld("idle"), "gpu-1": set()})


async def test_maintenances_that_cannot_be_read_at_the_start_are_followed_later() -> None:
    with machine() as node:
        node.cluster.maintenances.documents = None
        async with node.plugin():
            await until(lambda: taints(node) == {"gpu-0": set(), "gpu-1": set()})
            node.cluster.maintenances.put(maintenance())
            await until(lambda: taints(node) == {"gpu-0": set(), "gpu-1": withheld("idle")})


async def test_a_node_follows_its_own_maintenances_by_their_label(tmp_path: Path) -> None:
    settings = Settings(node_name=NODE, family=GPU, backends=(), kubelet_root=tmp_path, classes_poll_s=0.01)
    async with embedded_cluster(tmp_path) as admin, anyio.create_task_group() as group:
        await admin.create(NODES, Node(metadata=ObjectMeta(name=NODE)))
        for name, node in (("own", NODE), ("other", "node-2")):
            metadata = ObjectMeta(name=name, labels={NODE_LABEL: make_node_label(node)})
            spec = maintenance(node=node)["spec"]
            await admin.create(CARD_MAINTENANCES, CardMaintenanceObject(metadata=metadata, spec=spec))
        watch = watch_maintenances(admin, settings)
        assert [each["metadata"]["name"] for each in await watch.list_now() or ()] == ["own"]
        told: list[list[str]] = []
        group.start_soon(watch.follow, lambda all_: told.append([each["metadata"]["name"] for each in all_]))
        await until(lambda: told == [["own"]])
        await admin.delete(CARD_MAINTENANCES, "own")
        await until(lambda: told[-1] == [])
        group.cancel_scope.cancel()
