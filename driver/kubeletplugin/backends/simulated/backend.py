"""The Backend protocol over simulated cards."""

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeAlias

import anyio

from api.errors import KerfError, PermanentError
from api.kerf.v1alpha1 import DeviceConfig
from cdi import ContainerEdits
from driver.families.fpga import FPGA
from driver.families.fpga.catalog import shell
from driver.families.gpu import GPU
from driver.families.gpu.catalog import gpu_model
from driver.kubeletplugin.backends.base import (
    AllocatedDevice,
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
from driver.partitions.geometry import Card, Partition
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
        kind: str | None = None,
    ) -> None:
        """``kind``: only the cards of this kind; None: all. Tests give ``sleep``, ``crash`` and ``undo_s``.

        Raises PermanentError when the state directory was made for other cards.
        """
        self._directory = Path(config.state)
        self._faults = StateFile(self._directory, "faults", HardwareFaults())
        self._sleep = sleep
        self._undo_s = undo_s
        self._health_poll_s = config.health_poll_seconds
        step_runner = StepRunner(self._faults, delays_s=config.delays, pace=config.pace, sleep=sleep, crash=crash)
        self._cards: Mapping[str, SimulatedCard] = {
            card.uuid: _simulated(card, self._directory, step_runner)
            for card in cards_of(config)
            if kind is None or card.kind == kind
        }
        self._kind = kind

    async def discover(self) -> Sequence[Card]:
        return [card.discover() for card in self._cards.values()]

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

    async def health(self) -> AsyncIterator[HealthChange]:
        devices = self._devices()
        reported: Mapping[str, UnhealthyState] = {}
        while True:
            unhealthy = self._read_unhealthy()
            for name in sorted(reported.keys() | unhealthy.keys()):
                if reported.get(name) == unhealthy.get(name):
                    continue
                if name in devices:
                    yield _health_change(devices[name], unhealthy.get(name))
                elif self._kind is None or name.startswith(f"{self._kind}-"):  # the other kind's are another backend's
                    _log.warning("faults.json: there is no device %s", name)
            reported = unhealthy
            await self._sleep(self._health_poll_s)

    def held(self) -> dict[str, Partition]:
        """Return the partitions in use, half-made ones included, by the owner's mark."""
        return {owner: partition for card in self._cards.values() for owner, partition in card.held()}

    def _card(self, partition: Partition) -> SimulatedCard:
        card = self._cards.get(partition.card_uuid)
        if card is None or card.kind != partition.kind:
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


def open_gpus(config: Path | None) -> SimulatedBackend:
    """Open the GPUs of the document ``config``; the factory of the family ``gpu``. Raises as ``open_backend``."""
    return open_backend(config, GPU.name)


def open_fpgas(config: Path | None) -> SimulatedBackend:
    """Open the FPGAs of the document ``config``; the factory of the family ``fpga``. Raises as ``open_backend``."""
    return open_backend(config, FPGA.name)


def open_backend(config: Path | None, kind: str | None = None) -> SimulatedBackend:
    """Open the cards of one kind, or all, that the YAML document ``config`` describes.

    Raises InvalidDocumentError when the document is invalid, PermanentError when there is none, or when its state
    directory was made for other cards.
    """
    if config is None:
        raise PermanentError(
            "the simulated backend needs a document that says which cards to simulate, for example: "
            "{state: /var/lib/kerf/simulated, cards: [{kind: gpu, model: h100-80gb-sxm}]}"
        )
    return SimulatedBackend(read_config(config), kind=kind)


def _simulated(card: Card, directory: Path, step_runner: StepRunner) -> SimulatedCard:
    model = card.geometry.model
    if card.kind == GPU.name:
        gpu_file = StateFile(directory, card_name(card), GpuState(model=model))
        _check_same(card, gpu_file.read().model, model, directory)
        return SimulatedGpu(card, gpu_model(model), gpu_file, step_runner)
    fpga_file = StateFile(directory, card_name(card), FpgaState(shell=model))
    _check_same(card, fpga_file.read().shell, model, directory)
    return SimulatedFpga(card, shell(model), fpga_file, step_runner)


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
