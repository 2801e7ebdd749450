"""Simulated cards that take no time: devices of claims on them, and a process that makes one call and is killed."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase
from kerf_dra.api.model.names import ClaimRef, DeviceId, ShareId
from kerf_dra.driver.kubeletplugin.backends.base import AllocatedDevice, Handle, HardwareBusyError
from kerf_dra.driver.kubeletplugin.backends.ownership import BEFORE
from kerf_dra.driver.kubeletplugin.backends.simulated import SimulatedBackend, open_backend
from kerf_dra.driver.kubeletplugin.backends.simulated.config import FpgaCards, GpuCards, SimulatedConfig, cards_of
from kerf_dra.driver.kubeletplugin.backends.simulated.fpga_card import SimulatedFpga
from kerf_dra.driver.kubeletplugin.backends.simulated.gpu import GpuState
from kerf_dra.driver.kubeletplugin.backends.simulated.gpu_card import SimulatedGpu
from kerf_dra.driver.kubeletplugin.backends.simulated.steps import HardwareFaults, HardwareStep
from kerf_dra.driver.kubeletplugin.claims.hardware import DeviceJob
from kerf_dra.driver.partitions.device_names import device_name
from kerf_dra.driver.partitions.geometry import Card, Partition, Placement
from tests.fakes.claims import claim, config
from tests.kubeletplugin.backends.one_call import call_plugin

FUNCTION: Final = {"apiVersion": "kerf.dev/v1alpha1", "kind": "FpgaConfig", "function": "aes-gcm"}
CLAIM: Final = claim("fpga", "fpga-0-slot-1", configs=[config(FUNCTION)])
"""What a process is called for."""
STATE: Final = "hardware"
"""The folder of the cards' state, below that of the process."""


class Crashed(BaseException):
    """The end of the process by a crash: nothing catches it, nothing is cleaned up."""


def crash() -> None:
    raise Crashed


class Clock:
    """A clock without delays that records how long the hardware would have taken; a hang ends at once, as by close."""

    def __init__(self) -> None:
        self.slept_s: Final[list[float]] = []

    def sleep(self, delay_s: float) -> None:
        self.slept_s.append(delay_s)
        if delay_s == float("inf"):
            raise HardwareBusyError("closed")


class Notes:
    """A journal in memory, which survives what a test calls a crash; with ``file`` one that survives its process."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._notes: dict[str, Any] = json.loads(file.read_text()) if file is not None and file.exists() else {}

    @property
    def notes(self) -> Mapping[str, Any]:
        return self._notes

    def write(self, **notes: object) -> None:
        self._notes.update(notes)
        if self._file is not None:
            self._file.write_text(json.dumps(self._notes))

    def clear(self) -> None:
        self._notes.clear()

    def sync_record(self) -> None:
        """There is no record."""


def build_config(state: Path, *, gpus: int = 2, model: str = "h100-80gb-sxm", shell: str = "quad") -> SimulatedConfig:
    return SimulatedConfig(
        state=str(state), cards=(GpuCards(model=model, count=gpus), FpgaCards(shell=shell)), seed="tests"
    )


class HandledBackend(SimulatedBackend):
    """A simulated backend, and changes of its cards by others than the plugin."""

    def inject(self, faults: HardwareFaults) -> None:
        """Inject these faults from now on."""
        temporary = self._directory / "faults.json.new"
        temporary.write_bytes(msgspec.json.encode(faults))
        temporary.rename(temporary.with_suffix(""))

    def cut_by_hand(self, device: AllocatedDevice) -> None:
        """Create a GPU partition as an administrator would with nvidia-smi; Kerf must never touch it."""
        self.prepare(device, None, Notes(), None)

    def read_gpu(self, number: int) -> GpuState:
        return self._gpu(number).file.read()

    def change_gpu(self, number: int, **changes: object) -> None:
        """Change fields of a GPU's state."""
        self._gpu(number).file.change(lambda state: msgspec.structs.replace(state, **changes))

    def _gpu(self, number: int) -> SimulatedGpu:
        return [card for card in self._cards.values() if isinstance(card, SimulatedGpu)][number]

    def use_slots(self, *slots: Placement) -> None:
        """Let processes outside of Kerf use slots of the FPGA."""
        [card] = [card for card in self._cards.values() if isinstance(card, SimulatedFpga)]
        card.file.change(lambda state: msgspec.structs.replace(state, in_use=slots))

    def reboot(self) -> None:
        """Boot the machine: every card forgets its partitions, functions and modes. Nothing else changes."""
        for card in self._cards.values():
            (self._directory / f"{card.name}.json").unlink(missing_ok=True)


class Machine:
    """A node with simulated cards, whose plugin can be started again and again."""

    def __init__(
        self,
        state: Path,
        *,
        model: str = "h100-80gb-sxm",
        shell: str = "quad",
        config: SimulatedConfig | None = None,
    ) -> None:
        self.state: Final = state
        self.clock: Final = Clock()
        self.notes: Final[dict[tuple[ShareId, str], Notes]] = {}
        """The notes by share and claim UID."""
        self.config: Final = config or build_config(state, model=model, shell=shell)
        self.cards: Final[dict[str, Card]] = {card.uuid: card for card in cards_of(self.config)}

    def open(self) -> HandledBackend:
        return HandledBackend(self.config, sleep=self.clock.sleep, crash=crash)

    def prepare(
        self, device: AllocatedDevice, config: DeviceConfigBase | None = None, backend: SimulatedBackend | None = None
    ) -> Handle:
        """Prepare a device as the plugin does, whose notes survive what a test calls a crash."""
        return self._job(device, backend).run_prepare(config)

    def release(
        self, device: AllocatedDevice, handle: Handle | None = None, backend: SimulatedBackend | None = None
    ) -> None:
        """Release a device as the plugin does: by its handle, or what may be there without one."""
        job = self._job(device, backend)
        if BEFORE in job.own.notes:
            job.run_release(handle)

    def _job(self, device: AllocatedDevice, backend: SimulatedBackend | None) -> DeviceJob:
        own = self.notes.setdefault((device.share, device.claim.uid), Notes())
        return DeviceJob(
            backend=backend or self.open(),
            device=device,
            units=self.cards[device.partition.card_uuid].units,
            own=own,
            others=[
                notes
                for (share, _), notes in self.notes.items()
                if device.share.share is not None and share.id == device.share.id and notes is not own
            ],
        )

    def card(self, number: int) -> Card:
        return list(self.cards.values())[number]

    def device(self, partition: Partition, claim: str = "claim-1", *, admin: bool = False) -> AllocatedDevice:
        name = device_name(self.cards[partition.card_uuid], partition)
        return AllocatedDevice(
            claim=ClaimRef("default", claim, f"uid-of-{claim}"),
            share=ShareId(DeviceId("gpu.kerf.dev", f"node-1/{partition.kind}", name), None),
            partition=partition,
            admin_access=admin,
            consumed_capacity={},
        )


GPU_MAKING: Final = (HardwareStep.SET_MIG_MODE, HardwareStep.CREATE_GPU_INSTANCE, HardwareStep.CREATE_COMPUTE_INSTANCE)
GPU_TAKING_BACK: Final = (HardwareStep.DESTROY_COMPUTE_INSTANCE, HardwareStep.DESTROY_GPU_INSTANCE)
FPGA_MAKING: Final = (
    HardwareStep.CHECK,
    HardwareStep.DISABLE_BRIDGES,
    HardwareStep.PROGRAM,
    HardwareStep.ENABLE_BRIDGES,
    HardwareStep.READ_BACK,
)


def hardware(root: Path) -> SimulatedBackend:
    """An FPGA card whose state lies below ``root``; it takes no time."""
    file = root / "cards.yaml"
    file.write_text(json.dumps({"state": STATE, "pace": 0, "cards": [{"kind": "fpga", "shell": "quad"}]}))
    return open_backend(file)


async def call(root: Path, operation: str) -> None:
    await call_plugin(root, CLAIM, operation, hardware(root))


def call_in_process(root: Path, operation: str) -> None:
    """What such a process does."""
    anyio.run(call, root, operation)
