"""The Backend protocol over simulated cards."""

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from kerf_dra.api.errors import PermanentError
from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase
from kerf_dra.cdi import ContainerEdits
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.families.gpu.catalog import gpu_model
from kerf_dra.driver.kubeletplugin.backends.base import (
    AllocatedDevice,
    CardAbsentError,
    CardChange,
    CardSample,
    CardSurvey,
    FoundPartition,
    Handle,
    HardwareBusyError,
    HardwareRefusedError,
    HealthChange,
    HealthState,
    Journal,
    UnhealthyState,
)
from kerf_dra.driver.kubeletplugin.backends.simulated.config import (
    FpgaCards,
    GpuCards,
    SimulatedConfig,
    cards_of,
    find_layouts,
    find_shell,
    read_config,
)
from kerf_dra.driver.kubeletplugin.backends.simulated.fpga import FpgaState
from kerf_dra.driver.kubeletplugin.backends.simulated.fpga_card import SimulatedFpga
from kerf_dra.driver.kubeletplugin.backends.simulated.gpu import GpuState
from kerf_dra.driver.kubeletplugin.backends.simulated.gpu_card import SimulatedGpu
from kerf_dra.driver.kubeletplugin.backends.simulated.handles import HANDLES, container_edits
from kerf_dra.driver.kubeletplugin.backends.simulated.sampler import CardSampler
from kerf_dra.driver.kubeletplugin.backends.simulated.state_store import StateFile
from kerf_dra.driver.kubeletplugin.backends.simulated.steps import HardwareFaults, Sleep, StepRunner, die
from kerf_dra.driver.partitions.device_names import card_name, device_name
from kerf_dra.driver.partitions.geometry import Card, Partition
from kerf_dra.driver.partitions.unit_map import get_unit_map

_log = logging.getLogger(__name__)

_LONGEST_WAIT_S: Final = 3600.0
"""A wait that never ends is made of waits of this length: ``threading`` has a limit."""

_OFF_THE_BUS: Final = "fallen off the bus"
"""In the reason of a lost card: it does not answer until the machine boots, as after Xid 79."""

SimulatedCard: TypeAlias = SimulatedGpu | SimulatedFpga


class SimulatedBackend:
    """A Backend without hardware. The state of its cards lies in a directory that several processes may use at once.

    As on real cards, nothing there says who made a partition.
    """

    name = "simulated"

    def __init__(
        self,
        config: SimulatedConfig,
        *,
        sleep: Sleep | None = None,
        crash: Callable[[], None] = die,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Tests give ``sleep``, ``crash``, and ``now``, which returns seconds since 1970.

        Raises PermanentError when the state directory was made for other cards.
        """
        self._directory = Path(config.state)
        self._faults = StateFile(self._directory, "faults", HardwareFaults())
        self._sampler = CardSampler(self._directory, now)
        self._poll_s = config.health_poll_seconds
        self._closed = threading.Event()
        self._reported: Mapping[str, UnhealthyState] = {}
        self._absent: frozenset[str] = frozenset()
        step_runner = StepRunner(
            self._faults, delays_s=config.delays, pace=config.pace, sleep=sleep or self._sleep, crash=crash
        )
        self._cards: Mapping[str, SimulatedCard] = {
            card.uuid: _simulated(config, card, step_runner) for card in cards_of(config)
        }

    def open(self) -> None:
        self._closed.clear()
        self._reported = {}
        self._absent = frozenset(self._read_faults().absent)

    def close(self) -> None:
        self._closed.set()

    def discover(self) -> Sequence[Card]:
        absent = self._faults.read().absent
        return [card.discover() for card in self._cards.values() if card.name not in absent]

    def survey(self, card_uuid: str) -> CardSurvey:
        return self._card(card_uuid).survey()

    def prepare(
        self, device: AllocatedDevice, config: DeviceConfigBase | None, journal: Journal, found: FoundPartition | None
    ) -> Handle:
        card = self._card(device.partition.card_uuid)
        if card.kind != device.partition.kind:
            raise HardwareRefusedError(f"{card.name} is not of the kind {device.partition.kind}")
        if found is None and not device.admin_access:
            self._refuse_lost(card)
        return HANDLES.encode(card.prepare(device, config, journal, found))

    def unprepare(self, handle: Handle) -> None:
        known = HANDLES.decode(handle)
        self._card(known.card).unprepare(known)

    def abandon(self, device: AllocatedDevice, journal: Journal, found: FoundPartition | None) -> None:
        self._card(device.partition.card_uuid).abandon(device, journal, found)

    def find_card_holders(self, card_uuid: str) -> Sequence[str]:
        return self._faults.read().holders.get(self._find_answering_card(card_uuid).name, ())

    def reset_card(self, card_uuid: str, journal: Journal) -> str:
        del journal  # a simulated card has nothing else that a reset would change
        card = self._find_idle_card(card_uuid)
        card.reset()
        self._faults.change(lambda faults: faults.without_health_of(card.name))
        return f"{card.name} was reset"

    def set_mig_mode(self, card_uuid: str, is_on: bool) -> str:
        return self._find_idle_card(card_uuid).set_mig_mode(is_on)

    def end_act(self, card_uuid: str, journal: Journal) -> None:
        del card_uuid, journal

    def edits(self, handle: Handle) -> ContainerEdits:
        return container_edits(HANDLES.decode(handle))

    def sample(self, card_uuid: str, handles: Sequence[Handle]) -> CardSample:
        card = self._card(card_uuid)
        known = [HANDLES.decode(handle) for handle in handles]
        gpus = [card.find_sampled(handle) if isinstance(card, SimulatedGpu) else None for handle in known]
        return self._sampler.sample(card.discover(), gpus)

    def wait_for_events(self, timeout_s: float) -> Sequence[HealthChange | CardChange]:
        left_s = timeout_s
        while not self._closed.is_set():
            events: list[HealthChange | CardChange] = [*self._read_health_changes(), *self._read_card_changes()]
            if events or left_s <= 0:
                return events
            self._closed.wait(min(left_s, self._poll_s))
            left_s -= self._poll_s
        return []

    def partitions(self) -> list[Partition]:
        """Return what is on the cards, whatever made it: GPU instances, functions, half-made ones included."""
        return [partition for card in self._cards.values() for partition in card.partitions()]

    def occupied(self) -> list[Partition]:
        """Return what keeps others from the cards. A loaded function does not: it gives way to the next one."""
        return [partition for partition in self.partitions() if partition.function is None]

    def _sleep(self, delay_s: float) -> None:
        left_s = delay_s
        while left_s > 0:
            if self._closed.wait(min(left_s, _LONGEST_WAIT_S)):
                raise HardwareBusyError("the backend was closed in the middle of a call")
            left_s -= _LONGEST_WAIT_S if left_s < math.inf else 0.0

    def _card(self, uuid: str) -> SimulatedCard:
        card = self._cards.get(uuid)
        if card is None:
            raise CardAbsentError(f"there is no card {uuid} on this node")
        if card.name in self._faults.read().absent:
            raise CardAbsentError(f"card {uuid} ({card.name}) is not there")
        return card

    def _devices(self) -> Mapping[str, Partition]:
        """Return every device that can be published, by the name that ``faults.json`` uses."""
        cards = [card.discover() for card in self._cards.values()]
        partitions = [(card, spec.of(card.uuid)) for card in cards for spec in get_unit_map(card).specs]
        return {device_name(card, partition): partition for card, partition in partitions}

    def _read_faults(self) -> HardwareFaults:
        try:
            return self._faults.read()
        except HardwareRefusedError as error:
            _log.warning("%s", error)
            return HardwareFaults()

    def _read_health_changes(self) -> list[HealthChange]:
        unhealthy = self._read_faults().unhealthy
        if unhealthy == self._reported:
            return []
        devices = self._devices()
        changes: list[HealthChange] = []
        for name in sorted(self._reported.keys() | unhealthy.keys()):
            if self._reported.get(name) == unhealthy.get(name):
                continue
            if name in devices:
                changes.append(_health_change(devices[name], unhealthy.get(name)))
            elif name.partition("-")[0] in {card.kind for card in self._cards.values()}:
                _log.warning("faults.json: there is no device %s", name)
        self._reported = unhealthy
        return changes

    def _read_card_changes(self) -> list[CardChange]:
        """Return the cards whose state another process has changed, and those that came or went."""
        absent = frozenset(self._read_faults().absent)
        moved, self._absent = absent ^ self._absent, absent
        changed = [
            uuid for uuid, card in self._cards.items() if card.file.was_changed_by_others() or card.name in moved
        ]
        return [CardChange(card_uuid=uuid) for uuid in changed]

    def _find_idle_card(self, card_uuid: str) -> SimulatedCard:
        """Return a card that no process has open. Raises HardwareBusyError and CardAbsentError."""
        card = self._find_answering_card(card_uuid)
        if holders := self._faults.read().holders.get(card.name):
            raise HardwareBusyError(f"{card.name} is open in {', '.join(holders)}")
        return card

    def _find_answering_card(self, card_uuid: str) -> SimulatedCard:
        card, lost = self._card(card_uuid), self._faults.read().lost
        if _OFF_THE_BUS in lost.get(card.name, ""):
            raise CardAbsentError(f"{card.name} does not answer: {lost[card.name]}")
        return card

    def _refuse_lost(self, card: SimulatedCard) -> None:
        reason = self._faults.read().lost.get(card.name)
        if reason is not None:
            raise HardwareRefusedError(f"{card.name} is lost: {reason}")


def open_gpus(config: Path | None) -> SimulatedBackend:
    """Make a backend of the GPUs that the YAML document ``config`` describes. Raises as ``open_backend`` does."""
    return _open(config, (GpuCards,))


def open_fpgas(config: Path | None) -> SimulatedBackend:
    """Make a backend of the FPGAs that the YAML document ``config`` describes. Raises as ``open_backend`` does."""
    return _open(config, (FpgaCards,))


def open_backend(config: Path | None) -> SimulatedBackend:
    """Make a backend of all cards that the YAML document ``config`` describes.

    Raises InvalidDocumentError when the document is invalid, PermanentError when there is none, or when its state
    directory was made for other cards.
    """
    return _open(config, (GpuCards, FpgaCards))


def _open(config: Path | None, rows: tuple[type[GpuCards] | type[FpgaCards], ...]) -> SimulatedBackend:
    if config is None:
        raise PermanentError(
            "the simulated backend needs a document that says which cards to simulate, for example: "
            "{state: /var/lib/kerf/simulated, cards: [{kind: gpu, model: h100-80gb-sxm}]}"
        )
    document = read_config(config)
    cards = tuple(row for row in document.cards if isinstance(row, rows))
    return SimulatedBackend(msgspec.structs.replace(document, cards=cards))


def _simulated(config: SimulatedConfig, card: Card, step_runner: StepRunner) -> SimulatedCard:
    model, directory = card.geometry.model, Path(config.state)
    if card.kind == GPU.name:
        gpu_file = StateFile(directory, card_name(card), GpuState(model=model))
        _check_same(card, gpu_file.read().model, model, directory)
        return SimulatedGpu(card, gpu_model(model), gpu_file, step_runner)
    fpga_file = StateFile(directory, card_name(card), FpgaState(shell=model))
    _check_same(card, fpga_file.read().shell, model, directory)
    shell = find_shell(config, model)
    return SimulatedFpga(card, shell, find_layouts(config, shell), fpga_file, step_runner)


def _check_same(card: Card, remembered: str, configured: str, directory: Path) -> None:
    if remembered != configured:
        raise PermanentError(
            f"{directory} has the state of {card_name(card)} as a {remembered}, but is configured as a {configured}: "
            "choose another state directory, or remove this one when nothing is prepared on it"
        )


def _health_change(partition: Partition, unhealthy: UnhealthyState | None) -> HealthChange:
    return HealthChange(
        card_uuid=partition.card_uuid,
        partition=None if partition.is_whole else partition,
        state=unhealthy.state if unhealthy else HealthState.HEALTHY,
        reason=unhealthy.reason if unhealthy else "recovered",
        repair=unhealthy.repair if unhealthy else None,
    )
