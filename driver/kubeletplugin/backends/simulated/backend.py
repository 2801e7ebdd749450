"""The Backend protocol over simulated cards."""

import logging
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeAlias

import anyio

from api.errors import KerfError, PermanentError
from api.kerf.v1alpha1 import DeviceConfig
from cdi import ContainerEdits
from driver.kubeletplugin.backends.base import (
    AllocatedDevice,
    CardAbsentError,
    CardChange,
    CardSurvey,
    Handle,
    HardwareRefusedError,
    HealthChange,
    HealthState,
    UnhealthyState,
)
from driver.kubeletplugin.backends.simulated.config import SimulatedConfig, cards_of, read_config
from driver.kubeletplugin.backends.simulated.fpga import FpgaState
from driver.kubeletplugin.backends.simulated.fpga_card import SimulatedFpga
from driver.kubeletplugin.backends.simulated.gpu import GpuState
from driver.kubeletplugin.backends.simulated.gpu_card import SimulatedGpu
from driver.kubeletplugin.backends.simulated.handles import (
    container_edits,
    from_json,
    owner_of,
    to_json,
)
from driver.kubeletplugin.backends.simulated.state_store import StateFile
from driver.kubeletplugin.backends.simulated.steps import HardwareFaults, Sleep, StepRunner, die
from driver.partitions.device_names import card_name, device_name
from driver.partitions.geometry import Card, GpuCard, Partition
from driver.partitions.unit_map import get_unit_map

_log = logging.getLogger(__name__)

_UNDO_S: Final = 10.0
"""Limit for undoing a prepare that fails or is cancelled: longer than the usual steps need, short enough for a plugin
that is told to stop. ``abandon`` finds what is left after it."""


SimulatedCard: TypeAlias = SimulatedGpu | SimulatedFpga


class SimulatedBackend:
    """A Backend without hardware. The state of its cards lies in a directory that several processes may use at once.

    Each partition that it makes carries the mark of a claim's device; partitions without a mark are left alone.
    """

    name = "simulated"

    def __init__(
        self,
        config: SimulatedConfig,
        *,
        sleep: Sleep = anyio.sleep,
        crash: Callable[[], None] = die,
        undo_s: float = _UNDO_S,
    ) -> None:
        """Tests give ``sleep``, ``crash`` and ``undo_s``.

        Raises PermanentError when the state directory was made for other cards.
        """
        self._directory = Path(config.state)
        self._faults = StateFile(self._directory, "faults", HardwareFaults())
        self._sleep = sleep
        self._undo_s = undo_s
        self._health_poll_s = config.health_poll_seconds
        self._closed = threading.Event()
        self._reported: Mapping[str, UnhealthyState] = {}
        step_runner = StepRunner(self._faults, delays_s=config.delays, pace=config.pace, sleep=sleep, crash=crash)
        self._cards: Mapping[str, SimulatedCard] = {
            card.uuid: _simulated(card, self._directory, step_runner) for card in cards_of(config)
        }

    def open(self) -> None:
        self._reported = {}
        self._closed.clear()

    def close(self) -> None:
        self._closed.set()

    def discover(self) -> Sequence[Card]:
        return [card.discover() for card in self._cards.values()]

    def survey(self, card_uuid: str) -> CardSurvey:
        card = self._cards.get(card_uuid)
        if card is None:
            raise CardAbsentError(f"there is no card {card_uuid} on this node")
        return card.survey()

    async def prepare(self, device: AllocatedDevice, config: DeviceConfig | None) -> Handle:
        card = self._card(device.partition)
        card.handle(device, config)  # refuses a config that does not suit the device before anything is touched
        owner = owner_of(device)
        if not (device.admin_access or card.has(owner)):
            self._refuse_lost(card)
            async with _undone_on_failure(card, owner, self._undo_s):
                await card.make(device, config, owner)
        return to_json(card.handle(device, config))

    async def unprepare(self, handle: Handle) -> None:
        known = from_json(handle)
        card = self._cards.get(known.card)
        if card is not None and known.owner:
            await card.release(known)

    async def abandon(self, device: AllocatedDevice) -> None:
        if not device.admin_access:
            await self._card(device.partition).abandon(owner_of(device))

    def edits(self, handle: Handle) -> ContainerEdits:
        return container_edits(from_json(handle))

    def wait_for_events(self, timeout_s: float) -> Sequence[HealthChange | CardChange]:
        changes = self._read_changes()
        if not changes:
            self._closed.wait(min(timeout_s, self._health_poll_s))
            changes = [] if self._closed.is_set() else self._read_changes()
        return changes

    def _read_changes(self) -> list[HealthChange | CardChange]:
        devices = self._devices()
        unhealthy = self._read_unhealthy()
        changes: list[HealthChange | CardChange] = []
        for name in sorted(self._reported.keys() | unhealthy.keys()):
            if self._reported.get(name) == unhealthy.get(name):
                continue
            if name in devices:
                changes.append(_health_change(devices[name], unhealthy.get(name)))
            else:
                _log.warning("faults.json: there is no device %s", name)
        self._reported = unhealthy
        return changes

    def held(self) -> dict[str, Partition]:
        """Return the partitions in use, half-made ones included, by the owner's mark."""
        return {owner: partition for card in self._cards.values() for owner, partition in card.held()}

    def _card(self, partition: Partition) -> SimulatedCard:
        card = self._cards.get(partition.card_uuid)
        if card is None or card.kind is not partition.kind:
            raise HardwareRefusedError(f"there is no {partition.kind} {partition.card_uuid} on this node")
        return card

    def _devices(self) -> Mapping[str, Partition]:
        """Return every device that can be published, by the name that ``faults.json`` uses."""
        cards = [card.discover() for card in self._cards.values()]
        partitions = [(card, spec.of(card.uuid)) for card in cards for spec in get_unit_map(card).specs]
        return {device_name(card, partition): partition for card, partition in partitions}

    def _read_unhealthy(self) -> Mapping[str, UnhealthyState]:
        try:
            return self._faults.read().unhealthy
        except HardwareRefusedError as error:
            _log.warning("%s", error)
            return {}

    def _refuse_lost(self, card: SimulatedCard) -> None:
        reason = self._faults.read().lost.get(card.name)
        if reason is not None:
            raise HardwareRefusedError(f"{card.name} is lost: {reason}")


def open_backend(config: Path | None) -> SimulatedBackend:
    """Open the cards that the YAML document ``config`` describes; the factory of the backend ``simulated``.

    Raises InvalidDocumentError when the document is invalid, PermanentError when there is none, or when its state
    directory was made for other cards.
    """
    if config is None:
        raise PermanentError(
            "the simulated backend needs a document that says which cards to simulate, for example: "
            "{state: /var/lib/kerf/simulated, cards: [{kind: gpu, model: h100-80gb-sxm}]}"
        )
    return SimulatedBackend(read_config(config))


def _simulated(card: Card, directory: Path, step_runner: StepRunner) -> SimulatedCard:
    if isinstance(card, GpuCard):
        gpu_file = StateFile(directory, card_name(card), GpuState(model=card.model.id))
        _check_same(card, gpu_file.read().model, card.model.id, directory)
        return SimulatedGpu(card, gpu_file, step_runner)
    fpga_file = StateFile(directory, card_name(card), FpgaState(shell=card.shell.name))
    _check_same(card, fpga_file.read().shell, card.shell.name, directory)
    return SimulatedFpga(card, fpga_file, step_runner)


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
    )


@asynccontextmanager
async def _undone_on_failure(card: SimulatedCard, owner: str, limit_s: float) -> AsyncIterator[None]:
    """Remove what ``owner`` has of ``card`` when the body fails or is cancelled."""
    try:
        yield
    except (Exception, anyio.get_cancelled_exc_class()):
        with anyio.move_on_after(limit_s, shield=True) as scope:
            try:
                await card.abandon(owner)
            except KerfError as error:
                _log.warning("a failed prepare could not be undone: %s", error)
        if scope.cancelled_caught:
            _log.warning("a failed prepare could not be undone within %g s", limit_s)
        raise
