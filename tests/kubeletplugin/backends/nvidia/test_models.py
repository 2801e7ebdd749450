"""Cards are published as the models that NVML says they are, also those that Kerf's table does not have."""

from pathlib import Path

import pytest

from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kubeletplugin.inventory.devices import DeviceSet, build_device_set
from kerf_dra.driver.kubeletplugin.inventory.state.health import DeviceHealthTracker
from kerf_dra.driver.testing.nvml import CardDescription
from kerf_dra.driver.testing.plugin import PluginStandIn
from tests.fakes.cluster import FakeCluster
from tests.fakes.nvml import NEEDS_COMPILER
from tests.kubeletplugin.backends.nvidia.machine import H100, NvidiaMachineUnderTest

pytestmark = NEEDS_COMPILER


def plugin_on(folder: Path, *cards: CardDescription) -> PluginStandIn:
    return PluginStandIn(NvidiaMachineUnderTest(folder, *cards), GPU)


def test_a_card_without_mig_that_no_table_has_is_offered_whole(tmp_path: Path) -> None:
    l40s = CardDescription(
        model=H100, product="NVIDIA L40S", pci_device_id="26b9", memory_bytes=46068 << 20, is_mig_capable=False
    )
    plugin = plugin_on(tmp_path, l40s)
    assert plugin.cards[0].geometry.model == "unknown"
    assert [spec.placement for spec in plugin.cards[0].geometry.specs] == [None]
    (card,) = plugin.cards
    assert plugin.survey(card.uuid).no_partitions == "the card has no MIG"
    record = plugin.allocate(card.geometry.whole.of(card.uuid), "user")
    handle = plugin.prepare(record)
    assert handle["uuid"] == plugin.cards[0].uuid
    plugin.release(record)


def test_a_model_that_the_table_lacks_is_published_as_unknown_and_one_warning_says_what_to_report(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A GB300 with more memory than the table's: it is cut like a GB200, and is none."""
    newer = CardDescription(model="gb200-186gb", product="NVIDIA GB300", memory_bytes=288 << 30)
    plugin = plugin_on(tmp_path, newer, CardDescription(model="gb200-186gb"), newer)
    plugin.backend.discover()
    first, known, second = plugin.cards
    assert [card.geometry.model for card in plugin.cards] == ["unknown", "gb200-186gb", "unknown"]
    assert {card.attributes["productName"].value for card in (first, second)} == {"NVIDIA GB300"}
    assert first.geometry.whole.size[0] == 288 << 30
    assert {spec.profile for spec in first.geometry.specs} == {spec.profile for spec in known.geometry.specs}
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "no model 'NVIDIA GB300' with PCI device id 2941 and 294912 MiB" in warning
    assert "nvidia-smi mig -lgip" in warning


def test_cards_that_differ_from_the_table_are_warned_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    machine = NvidiaMachineUnderTest(tmp_path)
    with machine.hardware._state() as state:
        state.cards[0].profiles[0].name = b"1g.11gb"
    plugin = PluginStandIn(machine, GPU)
    for _ in range(2):
        plugin.backend.discover()
    assert plugin.cards[0].geometry.specs[0].profile == "1g.11gb"
    assert plugin.cards[1].geometry.specs[0].profile == "1g.10gb"
    assert [record.getMessage() for record in caplog.records] == [
        "h100-80gb-sxm differs from Kerf's table, the card is right: 1g.10gb is called 1g.11gb"
    ]


def test_a_card_whose_name_is_no_text_hides_no_other(tmp_path: Path) -> None:
    machine = NvidiaMachineUnderTest(tmp_path)
    with machine.hardware._state() as state:
        state.cards[0].name = b"NVIDIA \xff"
    assert [card.index for card in PluginStandIn(machine, GPU).cards] == [1]


@pytest.mark.parametrize(("name", "told"), [("N" * 95, "N" * 64), ("N" * 63 + "Ä", "N" * 63)])
def test_a_name_that_is_longer_than_slices_take_is_cut_between_characters(name: str, told: str, tmp_path: Path) -> None:
    plugin = plugin_on(tmp_path, CardDescription(model=H100, product=name), CardDescription(model=H100))
    assert plugin.cards[0].attributes["productName"].value == told
    devices = build_device_set(
        FakeCluster().target,
        {"nvidia": plugin.cards},
        (),
        DeviceHealthTracker(driver=GPU.driver, now=lambda: 0),
        DeviceSet(),
    )
    assert len([device for pool in devices.pools for one in pool.slices for device in one.devices]) == 52
