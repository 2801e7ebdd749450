"""Cards that an administrator keeps out: none is published, and what claims have of one stays until they end."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kerf_dra.api.model.devices import Device
from kerf_dra.api.model.names import ClaimRef, DriverName
from kerf_dra.driver.kubeletplugin.backends.base import CardChange, HealthState
from kerf_dra.driver.kubeletplugin.backends.card_selection import CardSelection
from kerf_dra.driver.kubeletplugin.backends.registry import BackendChoice
from kerf_dra.driver.kubeletplugin.inventory.devices import DeviceSet, PublishTarget, build_device_set
from kerf_dra.driver.kubeletplugin.inventory.optional_devices import OptionalDevices
from kerf_dra.driver.kubeletplugin.inventory.state.health import DeviceHealthTracker
from kerf_dra.driver.kubeletplugin.inventory.state.refusals import RefusalTracker
from kerf_dra.driver.kubeletplugin.inventory.state.restrictions import (
    DeviceRestrictions,
    KeptOutCards,
    KnownAllocations,
    OrphanedDevices,
    UnusableDevices,
)
from kerf_dra.driver.kubeletplugin.inventory.state.surveys import SurveyTracker
from kerf_dra.driver.local.apiserver import ApiServerSettings
from kerf_dra.driver.partitions.slice_limits import SliceLayout
from kerf_dra.driver.runtime import metrics
from tests.fakes.cards import gpu
from tests.fakes.claims import DRIVER, NODE, VOCABULARIES, claim
from tests.kubeletplugin.deviceplugin.node import RESOURCE, offering_node
from tests.kubeletplugin.harness import Machine, machine
from tests.kubeletplugin.records import device, record
from tests.kubeletplugin.test_with_the_embedded_cluster import running, site
from tests.kubeletplugin.wait import until

HELD, OTHER = "gpu-1-2g-2gb-at-0", "gpu-0-2g-2gb-at-0"
SECOND = "0000:01:00.0"


def keep_out(node: Machine, *ids: str) -> None:
    """Restart the plugin with these cards excluded."""
    choice = BackendChoice(name="fake", cards=CardSelection.of(exclude=ids))
    node.settings = replace(node.settings, backends=(choice,), survey_interval_s=0.05)
    node.cluster.published.clear()


def published(node: Machine) -> dict[str, Device]:
    pools = node.cluster.published[-1] if node.cluster.published else ()
    return {device.name: device for pool in pools for content in pool.slices for device in content.devices}


def of_second_card(node: Machine) -> set[str]:
    return {name for name in published(node) if name.startswith("gpu-1")}


def counters_of_second_card(node: Machine) -> bool:
    return any(
        counters.name.startswith("gpu-1")
        for pool in node.cluster.published[-1]
        for content in pool.slices
        for counters in content.shared_counters
    )


def messages(node: Machine) -> list[str]:
    return [message for _, _, reason, message in node.cluster.reported if reason == "CardKeptOut"]


async def allocate(node: Machine, *devices: str, name: str = "training") -> ClaimRef:
    return node.cluster.add(claim(name, *devices))


async def test_an_excluded_card_is_in_no_slice_and_the_other_one_is() -> None:
    with machine() as node:
        keep_out(node, SECOND)
        async with node.plugin():
            await until(lambda: "gpu-0" in published(node))
            assert not of_second_card(node)
            assert not counters_of_second_card(node)
            assert messages(node) == [
                "card gpu-1 (GPU-1) is kept out, because 0000:01:00.0 is excluded: nothing of it is in use by claims"
            ]


@pytest.mark.parametrize("may_list", [True, False])
async def test_an_excluded_card_with_a_prepared_claim_is_drained(may_list: bool) -> None:
    with machine() as node:
        node.cluster.may_list = may_list
        ref = await allocate(node, HELD)
        async with node.plugin():
            await node.kubelet.prepare(ref)
        keep_out(node, SECOND)
        async with node.plugin():
            await until(lambda: "gpu-0" in published(node))
            assert of_second_card(node) == {HELD}
            assert [(taint.key, taint.effect) for taint in published(node)[HELD].taints] == [
                (f"{DRIVER}/kept-out", "NoSchedule")
            ]
            assert not published(node)[OTHER].taints
            assert counters_of_second_card(node)
            await node.kubelet.prepare(ref)
            await node.kubelet.unprepare(ref)
            node.cluster.remove(ref)
            await until(lambda: not of_second_card(node))
            await until(lambda: not counters_of_second_card(node))
            assert node.backend.made == {}
            assert [message.rpartition(": ")[2] for message in messages(node)] == [
                "claims keep what they have of it until they end",
                "nothing of it is in use by claims",
            ]


async def test_a_claim_that_was_allocated_before_and_is_not_prepared_keeps_its_device_published() -> None:
    with machine() as node:
        ref = await allocate(node, HELD)
        keep_out(node, SECOND)
        async with node.plugin():
            await until(lambda: of_second_card(node) == {HELD})
            assert len(await node.kubelet.prepare(ref)) == 1
            node.cluster.remove(ref)
            await node.kubelet.unprepare(ref)
            await until(lambda: not of_second_card(node))


async def test_a_claim_that_the_plugin_could_not_know_of_is_prepared_all_the_same() -> None:
    """The plugin may not list claims; the scheduler has allocated the device before it saw it go."""
    with machine() as node:
        node.cluster.may_list = False
        keep_out(node, SECOND)
        async with node.plugin():
            await until(lambda: "gpu-0" in published(node))
            assert not of_second_card(node)
            ref = await allocate(node, HELD)
            await node.kubelet.prepare(ref)
            await until(lambda: of_second_card(node) == {HELD})


async def test_monitor_and_shared_devices_of_a_drained_card_go_with_the_others() -> None:
    with machine() as node:
        optional = OptionalDevices(shareable=frozenset({"2g.2gb"}), monitors=frozenset({"gpu"}))
        node.cluster.target = replace(node.cluster.target, optional_devices=optional)
        ref = await allocate(node, HELD)
        async with node.plugin():
            await node.kubelet.prepare(ref)
            assert {"gpu-1-monitor", f"{HELD}-shared"} <= published(node).keys()
        keep_out(node, SECOND)
        async with node.plugin():
            await until(lambda: "gpu-0-monitor" in published(node))
            assert of_second_card(node) == {HELD}


@pytest.mark.parametrize(("include", "expected"), [(["0000:01:00.0"], {"gpu-1"}), (["0000:00:00.0"], {"gpu-0"})])
async def test_only_the_cards_that_are_included_are_published(include: Sequence[str], expected: set[str]) -> None:
    with machine() as node:
        choice = BackendChoice(name="fake", cards=CardSelection.of(include=include))
        node.settings = replace(node.settings, backends=(choice,))
        async with node.plugin():
            await until(lambda: bool(published(node)))
            assert {name for name in published(node) if name.count("-") == 1} == expected


async def test_an_entry_that_is_no_card_is_logged_once_and_applies_when_the_card_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with machine() as node:
        first, *others = node.backend.cards
        node.backend.cards = others
        keep_out(node, "0000:00:00.0", "GPU-never")
        node.settings = replace(node.settings, discovery_interval_s=0.05)
        async with node.plugin():
            await until(lambda: "gpu-1" in published(node))
            node.backend.cards = [first, *others]
            await until(lambda: any("GPU-0" in message for message in messages(node)))
            assert not [name for name in published(node) if name.startswith("gpu-0")]
    warnings = [record.getMessage() for record in caplog.records if "which is included or excluded" in record.message]
    assert [warning.split(",")[0] for warning in warnings] == [
        f"{DRIVER}: backend fake has no card 0000:00:00.0",
        f"{DRIVER}: backend fake has no card GPU-never",
    ]


async def test_claims_are_not_listed_for_a_card_that_nobody_has() -> None:
    """Once at the start is enough: a list every ten seconds on each of thousands of nodes is not."""
    with machine() as node:
        keep_out(node, SECOND)
        async with node.plugin():
            await until(lambda: "gpu-0" in published(node))
            lists = node.cluster.lists
            surveys = len(node.cluster.published)
            node.cluster.on_target_change()
            await until(lambda: len(node.cluster.published) >= surveys)
            assert node.cluster.lists == lists == 1


def value(name: str, **labels: str) -> float | None:
    return metrics.REGISTRY.get_sample_value(name, {"driver": DRIVER, "node": NODE, **labels})


async def test_metrics_name_the_card_and_count_nothing_of_a_drained_one_as_free() -> None:
    with machine() as node:
        ref = await allocate(node, HELD)
        async with node.plugin():
            await node.kubelet.prepare(ref)
        keep_out(node, SECOND)
        async with node.plugin():
            await until(lambda: "gpu-0" in published(node))
            assert value("kerf_kept_out_cards", card="gpu-1", uuid="GPU-1", state="drained") == 1
            assert value("kerf_free_partitions", card="gpu-1", cut="1g.1gb") == 0
            assert value("kerf_free_partitions", card="gpu-0", cut="1g.1gb") > 0  # type: ignore[operator]
            assert value("kerf_reserved_units", card="gpu-1") == 0
            await node.kubelet.unprepare(ref)
            node.cluster.remove(ref)
            await until(lambda: value("kerf_card_units", card="gpu-1") is None)
            assert value("kerf_kept_out_cards", card="gpu-1", uuid="GPU-1", state="unpublished") == 1
            assert value("kerf_kept_out_cards", card="gpu-1", uuid="GPU-1", state="drained") is None


async def test_an_extended_resource_has_no_more_of_the_card_than_containers_have() -> None:
    async with offering_node(unused_grace_s=0.05) as node:
        async with node.machine.plugin():
            node.offer(_1g_1gb=8)
            listed = await node.kubelet.wait_list(RESOURCE, 8)
            [held, *_] = sorted(each for each in listed if each.startswith("gpu-1"))
            await node.kubelet.allocate(RESOURCE, held, pod="one")
        keep_out(node.machine, SECOND)
        async with node.machine.plugin():
            listed = await node.kubelet.wait_list(RESOURCE, 5)
            assert {each for each in listed if each.startswith("gpu-1")} == {held}
            assert of_second_card(node.machine) == set()
            node.kubelet.end("one")
            listed = await node.kubelet.wait_list(RESOURCE, 4)
            assert not [each for each in listed if each.startswith("gpu-1")]


async def test_what_an_administrator_does_with_the_card_is_no_alarm(caplog: pytest.LogCaptureFixture) -> None:
    """It is bound to another driver for a virtual machine, for example, and is lost to its backend."""
    with machine() as node:
        keep_out(node, SECOND)
        async with node.plugin():
            await until(lambda: "gpu-0" in published(node))
            node.backend.cards = [card for card in node.backend.cards if card.uuid != "GPU-1"]
            for card_uuid in ("GPU-1", "GPU-0"):
                node.backend.tell(CardChange(card_uuid=card_uuid))
                node.backend.report(card_uuid, "it fell off the bus", state=HealthState.LOST)
            await until(lambda: bool(published(node)["gpu-0"].taints))
            assert metrics.REGISTRY.get_sample_value("kerf_unhealthy_devices", {"driver": DRIVER}) == 1
    said = [entry.getMessage() for entry in caplog.records]
    assert [message for message in said if "is lost" in message] == ["card GPU-0 is lost: it fell off the bus"]


@pytest.mark.parametrize("layout", [SliceLayout.SPLIT, SliceLayout.COMBINED])
def test_a_node_inventory_has_every_device_of_a_drained_card_tainted_and_no_other_card_kept_out(
    layout: SliceLayout,
) -> None:
    """Where Kerf's controller allocates (Kubernetes 1.27 to 1.31), from the inventory's cards and taints."""
    allocated = KnownAllocations({"uid": record("training", device(HELD, card="GPU-1"))})
    kept_out = KeptOutCards(allocated, {"one": CardSelection.of(exclude=[SECOND, "0000:02:00.0"])}, driver=DRIVER)
    cards = kept_out.select("one", [gpu(0), gpu(1), gpu(2)])
    restrictions = DeviceRestrictions(
        orphaned=OrphanedDevices(driver=DRIVER),
        surveys=SurveyTracker(driver=DRIVER),
        refusals=RefusalTracker(driver=DRIVER, now=lambda: 0),
        allocated=allocated,
        unusable=UnusableDevices(driver=DRIVER),
        kept_out=kept_out,
    )
    target = PublishTarget(driver=DriverName(DRIVER), node=NODE, layout=layout, vocabularies=VOCABULARIES)
    healthy = DeviceHealthTracker(driver=DRIVER, now=lambda: 0)
    devices = build_device_set(target, {"one": cards}, (), healthy, DeviceSet(), restrictions)
    [inputs] = devices.inputs
    assert [card.uuid for card in inputs.cards] == ["GPU-0", "GPU-1"]
    names = {each.device for each in devices.published["gpu"].devices if each.device.startswith("gpu-1")}
    assert inputs.taints.keys() == names
    [pool] = devices.pools
    assert {each.name for content in pool.slices for each in content.devices if each.name in names} == {HELD}


async def test_an_api_server_shows_a_drained_card_until_its_claim_ends_and_nothing_of_it_afterwards() -> None:
    """With an API server, simulated hardware and a kubelet over real sockets."""
    held, beside = "gpu-0-3g-40gb-at-0", "gpu-1-3g-40gb-at-0"
    async with site(ApiServerSettings()) as place:
        async with running(place):
            await place.until_published(held)
            await place.until_published(beside)
            ref = await place.allocated(claim("training", held))
            await place.kubelet.prepare(ref)
            [uuid] = {
                each.attributes["uuid"].string or ""
                for one in await place.complete_slices()
                for each in one.spec.devices
                if each.name == "gpu-0"
            }
        choice = replace(place.settings.plugins[0].backends[0], cards=CardSelection.of(exclude=[uuid.upper()]))
        place.change(survey_interval_s=0.05, backends=(choice,))
        async with running(place):
            await place.until_published(held, without="gpu-0")
            assert {name for name in await place.published() if name.startswith("gpu-0")} == {held}
            await place.kubelet.unprepare(ref)
            await place.client.delete(place.kinds.resource_claims, ref.name, ref.namespace)
            await place.until_published(beside, without=held)
            slices = await place.complete_slices()
            names = {counters.name for one in slices for counters in one.spec.shared_counters}
            assert "gpu-1" in names
            assert "gpu-0" not in names
