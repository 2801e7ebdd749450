"""Devices of claims, and a simulated backend that takes no time."""

from pathlib import Path
from typing import Final

import anyio
import msgspec

from api.model.names import ClaimRef, DeviceId, ShareId
from driver.kubeletplugin.backends.base import AllocatedDevice
from driver.kubeletplugin.backends.simulated import SimulatedBackend
from driver.kubeletplugin.backends.simulated.config import FpgaCards, GpuCards, SimulatedConfig, cards_of
from driver.kubeletplugin.backends.simulated.steps import HardwareFaults, HardwareStep
from driver.partitions.device_names import device_name
from driver.partitions.geometry import Card, Partition


class Crashed(BaseException):
    """The end of the process by a crash: nothing catches it, nothing is cleaned up."""


def crash() -> None:
    raise Crashed


class Clock:
    """A clock without delays that records how long the hardware would have taken. ``inf`` waits until cancelled."""

    def __init__(self) -> None:
        self.slept_s: Final[list[float]] = []

    async def sleep(self, delay_s: float) -> None:
        self.slept_s.append(delay_s)
        await (anyio.sleep_forever() if delay_s == float("inf") else anyio.lowlevel.checkpoint())


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

    async def cut_by_hand(self, device: AllocatedDevice) -> None:
        """Create a GPU partition as an administrator would with nvidia-smi; Kerf must never touch it."""
        await self._cards[device.partition.card_uuid].make(device, None, f"by-hand/{device.share.id.device}")

    def reboot(self) -> None:
        """Boot the machine: every card forgets its partitions, functions and modes. Nothing else changes."""
        for card in self._cards.values():
            (self._directory / f"{card.name}.json").unlink(missing_ok=True)


class Machine:
    """A node with simulated cards, whose plugin can be started again and again."""

    def __init__(self, state: Path, *, model: str = "h100-80gb-sxm", shell: str = "quad") -> None:
        self.state: Final = state
        self.clock: Final = Clock()
        self.config: Final = build_config(state, model=model, shell=shell)
        self.cards: Final[dict[str, Card]] = {card.uuid: card for card in cards_of(self.config)}

    def open(self) -> HandledBackend:
        return HandledBackend(self.config, sleep=self.clock.sleep, crash=crash)

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
