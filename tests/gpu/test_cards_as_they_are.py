"""Kerf reads NVIDIA cards as they are, and prepares for containers what needs no change of them."""

import dataclasses
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pynvml
import pytest

from kerf_dra.cdi import DeviceNode
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.families.gpu.catalog import gpu_models
from kerf_dra.driver.kubeletplugin.backends.base import Backend, HealthChange
from kerf_dra.driver.kubeletplugin.backends.nvidia.geometry import UNKNOWN_MODEL, build_model
from kerf_dra.driver.kubeletplugin.backends.survey_validation import survey_card
from kerf_dra.driver.kubeletplugin.inventory.devices import DeviceSet, build_device_set
from kerf_dra.driver.kubeletplugin.inventory.state.health import DeviceHealthTracker
from kerf_dra.driver.mps.control_daemon import CONTROL
from kerf_dra.driver.mps.documents import DaemonFolder
from kerf_dra.driver.mps.driver_programs import DriverProgram
from kerf_dra.driver.partitions.geometry import Card
from kerf_dra.driver.testing import MachineUnderTest
from kerf_dra.driver.testing.plugin import PluginStandIn
from tests.fakes.claims import DRIVER
from tests.fakes.cluster import FakeCluster
from tests.fakes.mps import kept_in_a_thread, want
from tests.gpu.cards import REAL, Cards, ChangeError
from tests.gpu.sweep import read_use, sweep, sweep_stand_in
from tests.kubeletplugin.harness import short_directory
from tests.kubeletplugin.wait import until
from tests.oracle.nvidia.container import RuncContainer
from tools.realcluster.requirements import BUSYBOX

PROBE = Path(__file__).with_name("fill_memory.c")
_PLACE = re.compile(r"^Bus Location:\s*(\S+)$.*^Device Minor:\s*(\d+)$", re.MULTILINE | re.DOTALL)


class OpenedMachine(MachineUnderTest):
    """Cards whose backend is open."""

    def __init__(self, cards: Cards) -> None:
        self._cards = cards

    def open_backend(self) -> Backend:
        return self._cards.backend


def test_the_cards_that_are_found_are_at_the_places_that_the_kernel_says(cards: Cards) -> None:
    found = {(card.pci_bus_id, card.index) for card in cards.backend.discover()}
    documents = [path.read_text() for path in cards.root.glob("proc/driver/nvidia/gpus/*/information")]
    listed = {(place[1].lower(), int(place[2])) for document in documents if (place := _PLACE.search(document))}
    assert found
    assert found <= listed


def test_the_driver_is_of_the_version_of_the_kernel_module(cards: Cards) -> None:
    version = (cards.root / "proc/driver/nvidia/version").read_text()
    assert {card.driver_version in version.split() for card in cards.backend.discover()} == {True}


def test_each_card_can_be_published_whole_and_with_all_its_partitions(cards: Cards) -> None:
    found = cards.backend.discover()
    target, tracker = FakeCluster().target, DeviceHealthTracker(driver=DRIVER, now=lambda: 0)
    devices = build_device_set(target, {cards.backend.name: found}, (), tracker, DeviceSet())
    names = {device.name for pool in devices.pools for one in pool.slices for device in one.devices}
    assert {f"gpu-{card.index}" for card in found} <= names
    assert len(names) == sum(len(card.geometry.specs) for card in found)


def test_a_survey_lists_the_instances_that_the_kernel_has_nodes_for(cards: Cards) -> None:
    for card in cards.backend.discover():
        survey = survey_card(cards.backend, card.uuid, card.units)
        folder = cards.root / f"proc/driver/nvidia/capabilities/gpu{card.index}/mig"
        listed = {path.name.replace("gi", "gi-") for path in folder.glob("gi*")}
        assert {one.id for one in survey.partitions if one.placement is not None} == listed
        mode = cards.library.read_mig_mode(card.uuid)
        assert bool(survey.no_whole) is (mode is not None and mode.is_on), "nothing is switched"


def test_a_container_gets_the_nodes_and_files_of_a_whole_card_that_are_there(cards: Cards) -> None:
    plugin = PluginStandIn(OpenedMachine(cards), GPU)
    free = [card for card in plugin.cards if not (there := plugin.survey(card.uuid)).partitions and not there.no_whole]
    if not free:
        pytest.skip("no card can be had whole now: MIG mode is on, or somebody uses it")
    for card in free:
        (whole,) = [spec.of(card.uuid) for spec in card.geometry.specs if spec.profile is None]
        record = plugin.allocate(whole, "user")
        edits = cards.backend.edits(plugin.prepare(record))
        nodes = {node.path: node for node in edits.device_nodes}
        assert {"/dev/nvidiactl", "/dev/nvidia-uvm", f"/dev/nvidia{card.index}"} <= nodes.keys()
        assert not [path for path in nodes if "nvidia-caps" in path], "no management node"
        if cards.are_real:
            assert [path for path in nodes if Path(path).exists() and not has_numbers(nodes[path])] == []
        missing = [mount.host_path for mount in edits.mounts if not Path(mount.host_path).exists()]
        assert missing == []
        assert any(f"libcuda.so.{card.driver_version}" in mount.container_path for mount in edits.mounts)
        assert "NVIDIA_VISIBLE_DEVICES=void" in edits.env
        plugin.release(record)


@pytest.mark.parametrize("cards", [REAL], indirect=True)
def test_a_program_in_a_container_computes_on_the_card_that_it_got(cards: Cards, tmp_path: Path) -> None:
    """The container has a C library and nothing of the driver but what Kerf's edits put there. Hooks are left out."""
    missing = [program for program in ("cc", "runc", str(BUSYBOX)) if shutil.which(program) is None]
    if missing:
        pytest.skip(f"there is no {', '.join(missing)} here")
    probe = tmp_path / "fill_memory"
    subprocess.run(["cc", PROBE, "-o", probe, "-Wl,--no-as-needed", "-ldl", "-lm"], check=True, timeout=60)
    container = RuncContainer.create(tmp_path / "container", probe)
    (libc,) = container.root.rglob("libc.so.6")
    for name in ("libdl.so.2", "libpthread.so.0", "librt.so.1"):  # parts of libc.so.6 since glibc 2.34
        shutil.copy(Path("/") / libc.relative_to(container.root).with_name(name), libc.with_name(name))
    plugin = PluginStandIn(OpenedMachine(cards), GPU)
    card = whole_card(cards)
    (whole,) = [spec.of(card.uuid) for spec in card.geometry.specs if spec.profile is None]
    record = plugin.allocate(whole, "user")
    edits = dataclasses.replace(cards.backend.edits(plugin.prepare(record)), hooks=())
    name = f"libcuda.so.{cards.library.read_driver_version()}"
    (library,) = [mount.container_path for mount in edits.mounts if Path(mount.container_path).name == name]
    found = container.run(edits, ["/bin/probe", library])
    assert found.split() == ["1", whole.card_uuid]
    with pytest.raises(AssertionError, match="cuInit: error"):
        container.run(dataclasses.replace(edits, device_nodes=()), ["/bin/probe", library])
    plugin.release(record)


def has_numbers(node: DeviceNode) -> bool:
    """Whether the machine's own node has the numbers that a container's is to have."""
    there = Path(node.path).stat()
    return stat.S_ISCHR(there.st_mode) and (os.major(there.st_rdev), os.minor(there.st_rdev)) == (
        node.major,
        node.minor,
    )


def test_the_health_of_each_card_is_watched(cards: Cards) -> None:
    uuids = {card.uuid for card in cards.backend.discover()}
    events = cards.library.create_event_set(uuids)
    assert events.cards.keys() == uuids
    event = cards.library.wait_for_event(events, 0.0)
    assert event is None or event.card_uuid in uuids
    cards.library.free_event_set(events)
    changes = cards.backend.wait_for_events(0.0)
    assert {change.card_uuid for change in changes} <= uuids
    lost = [change for change in changes if isinstance(change, HealthChange) and "does not answer" in change.reason]
    assert lost == [], "a card that was just found answers"


def test_each_function_that_kerf_calls_answers_as_on_the_stand_in(cards: Cards, report: dict[str, Any]) -> None:
    for reading in cards.library.list_cards():
        model, _ = build_model(reading, cards.library.read_profiles(reading.uuid), gpu_models())
        mode = cards.library.read_mig_mode(reading.uuid)
        if model.id == UNKNOWN_MODEL or cards.library.list_gpu_instances(reading.uuid):
            continue  # the stand-in has no such model, or nothing on its card
        found = sweep(pynvml.nvmlDeviceGetHandleByUUID(reading.uuid.encode()))
        expected = sweep_stand_in(model.id, reading.product, "none" if mode is None else "on" if mode.is_on else "off")
        report.setdefault("functions", {})[reading.uuid] = found
        differences = {name: (found[name], outcome) for name, outcome in expected.items() if found[name] != outcome}
        assert differences == {}, "on the card, on the stand-in"


def test_a_sample_of_use_is_read(cards: Cards, report: dict[str, Any]) -> None:
    for reading in cards.library.list_cards():
        sample = read_use(pynvml.nvmlDeviceGetHandleByUUID(reading.uuid.encode()))
        report.setdefault("use", {})[reading.uuid] = sample
        assert sample["memory_bytes"] <= reading.memory_bytes


async def test_a_daemon_of_mps_takes_its_limits_and_leaves_the_compute_mode_as_it_is(cards: Cards) -> None:
    if not DriverProgram(cards.driver_root, CONTROL).is_there:
        pytest.skip(f"there is no {CONTROL} below {cards.driver_root}")
    card = whole_card(cards)
    mode = cards.library.read_compute_mode(card.uuid)
    with short_directory() as root, kept_in_a_thread(root, cards.driver_root):
        folder = DaemonFolder(root / card.uuid)
        request = want(folder, percentage=50)

        def is_answered() -> bool:
            state = folder.read_state()
            assert state is None or not state.error or not state.is_failing, state
            return state is not None and state.is_ready and state.request == request

        await until(is_answered)
        assert cards.library.read_compute_mode(card.uuid) is mode
        folder.request.unlink()
        await until(lambda: folder.read_state() is None)
    assert cards.library.read_compute_mode(card.uuid) is mode


def whole_card(cards: Cards) -> Card:
    """A card that is not in partitions: a daemon is for one device."""
    for card in cards.backend.discover():
        mode = cards.library.read_mig_mode(card.uuid)
        if mode is None or not mode.is_on:
            return card
    pytest.skip("MIG mode is on, on every card")


def test_a_test_that_would_change_a_card_fails(cards: Cards) -> None:
    (uuid, *_) = [card.uuid for card in cards.backend.discover()]
    with pytest.raises(ChangeError, match="nvmlDeviceSetMigMode would change the card"):
        cards.library.set_mig_mode(uuid, True)
    with pytest.raises(ChangeError, match="nvmlDeviceSetComputeMode"):
        cards.library.set_compute_mode(uuid, cards.library.read_compute_mode(uuid))
