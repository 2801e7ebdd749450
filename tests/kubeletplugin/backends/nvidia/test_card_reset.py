"""A card in maintenance: it is reset by nvidia-smi, its MIG mode is switched, and who holds it is named."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pynvml
import pytest

from kerf_dra.driver.kubeletplugin.backends.base import (
    CardAbsentError,
    HardwareBusyError,
    HardwareRefusedError,
    HealthChange,
    HealthState,
)
from kerf_dra.driver.kubeletplugin.backends.nvidia import NvidiaBackend
from kerf_dra.driver.testing.journal import KillableJournal, ProcessKilled
from kerf_dra.driver.testing.nvml import CardDescription, NvidiaMachine
from kerf_dra.driver.testing.plugin import PluginStandIn
from tests.fakes.nvml import open_nvml
from tests.kubeletplugin.backends.nvidia.machine import H100, machine_of, plugin_on

A100 = "a100-40gb"


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[PluginStandIn]:
    """A Hopper card, which switches MIG mode at once, and two of Ampere, which reset by themselves for it."""
    ampere = CardDescription(model=A100, minor_after_reset=7)
    plugin = plugin_on(tmp_path / "node", CardDescription(model=H100), ampere, CardDescription(model=A100))
    yield plugin
    plugin.close()


def backend_of(plugin: PluginStandIn) -> NvidiaBackend:
    assert isinstance(plugin.backend, NvidiaBackend)
    return plugin.backend


def persistence(plugin: PluginStandIn, number: int) -> int:
    with open_nvml(machine_of(plugin).hardware):
        return int(pynvml.nvmlDeviceGetPersistenceMode(pynvml.nvmlDeviceGetHandleByIndex(number)))


def resets(plugin: PluginStandIn) -> list[int]:
    with machine_of(plugin).hardware._state() as state:
        return [card.resets for card in state.cards[: state.n_cards]]


def next_states(backend: NvidiaBackend) -> list[tuple[str, HealthState]]:
    """Return what is new of the health of cards, once anything is."""
    for _ in range(20):
        if found := [one for one in backend.wait_for_events(5) if isinstance(one, HealthChange)]:
            return [(one.card_uuid, one.state) for one in found]
    pytest.fail("no health has changed")


def test_a_card_is_reset_though_this_process_watches_it_and_persistence_mode_is_on(plugin: PluginStandIn) -> None:
    backend, journal = backend_of(plugin), KillableJournal()
    first, *others = [card.uuid for card in plugin.cards]
    machine = machine_of(plugin).hardware
    machine.set_recovery_action(0, pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET)
    assert next_states(backend) == [(first, HealthState.LOST)]
    machine.report_xid(1, 95)
    assert next_states(backend) == [(others[0], HealthState.LOST)]
    assert "was successfully reset" in backend.reset_card(first, journal)
    backend.end_act(first, journal)
    assert resets(plugin) == [1, 0, 0]
    assert [persistence(plugin, number) for number in range(3)] == [1, 1, 1]
    assert next_states(backend) == [(first, HealthState.HEALTHY)], "the Xid of the other card stays"
    assert backend.survey(first).partitions == ()


def test_persistence_mode_that_was_off_stays_off(tmp_path: Path) -> None:
    plugin = plugin_on(tmp_path, CardDescription(model=H100, is_persistent=False))
    journal, uuid = KillableJournal(), plugin.cards[0].uuid
    backend_of(plugin).reset_card(uuid, journal)
    backend_of(plugin).end_act(uuid, journal)
    assert (resets(plugin), persistence(plugin, 0)) == ([1], 0)
    plugin.close()


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_reset_killed_at_its_note_leaves_persistence_mode_as_it_was(plugin: PluginStandIn, is_kept: bool) -> None:
    journal, uuid = KillableJournal(), plugin.cards[0].uuid
    journal.kill_at(1, is_kept=is_kept)
    with pytest.raises(ProcessKilled):
        backend_of(plugin).reset_card(uuid, journal)
    plugin.restart()
    backend_of(plugin).end_act(uuid, journal)
    assert (resets(plugin), persistence(plugin, 0)) == ([0, 0, 0], 1)


def test_persistence_mode_is_restored_by_the_next_process(plugin: PluginStandIn) -> None:
    journal, uuid = KillableJournal(), plugin.cards[0].uuid
    backend_of(plugin).reset_card(uuid, journal)  # and then the process is killed
    plugin.restart()
    assert persistence(plugin, 0) == 0
    for _ in range(2):
        backend_of(plugin).end_act(uuid, journal)
        assert persistence(plugin, 0) == 1


def test_who_has_a_card_open_is_named_and_nothing_is_reset(plugin: PluginStandIn) -> None:
    backend, journal = backend_of(plugin), KillableJournal()
    hopper, ampere, other = [card.uuid for card in plugin.cards]
    with hold(machine_of(plugin).hardware, 0, 1) as pid:
        for uuid in (hopper, ampere):
            assert [f"({pid})" in one for one in backend.find_card_holders(uuid)] == [True]
        assert not backend.find_card_holders(other)
        with pytest.raises(HardwareBusyError, match=rf"held open by .*\({pid}\)"):
            backend.reset_card(hopper, journal)
        with pytest.raises(HardwareBusyError, match=rf"held open by .*\({pid}\)"):
            backend.set_mig_mode(ampere, True)
        assert (resets(plugin), journal.writes, persistence(plugin, 0)) == ([0, 0, 0], 0, 1)
        backend.reset_card(other, journal)
    backend.reset_card(hopper, journal)
    assert resets(plugin) == [1, 0, 1]


def test_a_holder_that_no_process_list_shows_has_the_driver_refuse_the_reset(plugin: PluginStandIn) -> None:
    backend, journal, uuid = backend_of(plugin), KillableJournal(), plugin.cards[0].uuid
    machine_of(plugin).hardware.start_process(0, 4711)
    with pytest.raises(HardwareBusyError, match="could not be reset"):
        backend.reset_card(uuid, journal)
    backend.end_act(uuid, journal)
    assert (resets(plugin), persistence(plugin, 0)) == ([0, 0, 0], 1)


def test_a_card_that_fell_off_the_bus_is_not_reset(plugin: PluginStandIn) -> None:
    machine_of(plugin).hardware.drop_card(0)
    uuid = plugin.cards[0].uuid
    with pytest.raises(CardAbsentError):
        backend_of(plugin).find_card_holders(uuid)
    with pytest.raises(CardAbsentError):
        backend_of(plugin).reset_card(uuid, KillableJournal())
    assert resets(plugin) == [0, 0, 0]


def test_mig_mode_is_switched_at_once_on_hopper_and_by_a_reset_of_its_own_on_ampere(plugin: PluginStandIn) -> None:
    backend = backend_of(plugin)
    for card in plugin.cards:
        assert backend.set_mig_mode(card.uuid, True) == "MIG mode is on"
        assert backend.set_mig_mode(card.uuid, True) == "MIG mode was on already"
    assert resets(plugin) == [0, 1, 1]
    assert [backend.survey(card.uuid).no_partitions for card in plugin.cards] == ["", "", ""]
    assert {card.uuid for card in backend.discover()} == {card.uuid for card in plugin.cards}
    assert [card.index for card in backend.discover()] == [0, 1, 2], "names stay, though a minor number is another one"
    for card in plugin.cards:
        assert backend.set_mig_mode(card.uuid, False) == "MIG mode is off"
    assert [backend.survey(card.uuid).no_whole for card in plugin.cards] == ["", "", ""]


def test_a_mode_that_would_be_pending_is_taken_back(plugin: PluginStandIn) -> None:
    uuid = plugin.cards[1].uuid
    machine_of(plugin).hardware.start_process(1, 4711)
    with pytest.raises(HardwareBusyError):
        backend_of(plugin).set_mig_mode(uuid, True)
    with open_nvml(machine_of(plugin).hardware):
        assert pynvml.nvmlDeviceGetMigMode(pynvml.nvmlDeviceGetHandleByIndex(1)) == [0, 0]


def test_a_card_without_mig_says_so(tmp_path: Path) -> None:
    plugin = plugin_on(tmp_path, CardDescription(model=H100, is_mig_capable=False))
    with pytest.raises(HardwareRefusedError, match="has no MIG"):
        backend_of(plugin).set_mig_mode(plugin.cards[0].uuid, True)
    plugin.close()


def test_calls_for_other_cards_wait_for_the_end_of_a_reset(plugin: PluginStandIn) -> None:
    """They must not find NVML closed: cards that do not answer are lost, and their pods evicted."""
    backend, journal = backend_of(plugin), KillableJournal()
    first, second, _ = [card.uuid for card in plugin.cards]
    machine_of(plugin).hardware.add_fault("kerfResetCard", delay_s=0.5)
    errors: list[Exception] = []

    def survey() -> None:
        try:
            while resets(plugin)[0] == 0:
                backend.survey(second)
                backend.wait_for_events(0)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=survey)
    thread.start()
    backend.reset_card(first, journal)
    thread.join(60)
    assert errors == []
    assert resets(plugin) == [1, 0, 0]


@contextmanager
def hold(machine: NvidiaMachine, *numbers: int) -> Iterator[int]:
    """Let another process have the cards with these numbers open, as an exporter has; yields its number."""
    nodes = [str(machine.folder / f"dev/nvidia{number}") for number in numbers]
    program = (
        "import fcntl, sys\n"
        "files = [open(node) for node in sys.argv[1:]]\n"
        "for file in files: fcntl.flock(file, fcntl.LOCK_SH)\n"
        "print('open', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, *nodes]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        yield process.pid
        process.kill()
