"""A node whose NVIDIA cards are stand-ins: processes of its plugin, boots, and what others see and do on its cards."""

import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import pynvml

from driver.families.gpu.catalog import gpu_model
from driver.kubeletplugin.backends.nvidia.mig_mode import MigPolicy
from driver.testing.nvml import CardDescription, MachineDescription, NvidiaMachine
from driver.testing.nvml.demonstration import StandInBackend
from driver.testing.nvml.machine import MACHINE_VARIABLE
from tests.fakes.cluster import FakeCluster
from tests.fakes.nvml import open_nvml
from tests.fakes.nvml_calls import create_gpu_instance, destroy_gpu_instance, fill_gpu_instance, list_gpu_instances
from tests.kubeletplugin.claim_fixture import PluginCore, plugin_core

H100: Final = CardDescription(model="h100-80gb-sxm")
A100_IN_PARTITIONS: Final = CardDescription(model="a100-40gb", is_mig_on=True)
WITHOUT_MIG: Final = CardDescription(model="h100-80gb-sxm", product="NVIDIA L4", is_mig_capable=False)


class QuickBackend(StandInBackend):
    """The backend of the stand-ins, which tries again at once what is in use."""

    def _wait_or_end(self, delay_s: float) -> None:
        del delay_s


class NvidiaNode:
    """A node with cards of these descriptions: one H100, unless told otherwise."""

    def __init__(self, root: Path, *cards: CardDescription) -> None:
        self.root = root
        self.cards = cards or (H100,)
        self.machine = NvidiaMachine.create(root / "machine", MachineDescription(cards=self.cards))
        self.cluster = FakeCluster()
        self._boot = 1

    @property
    def boot_id(self) -> str:
        return f"boot-{self._boot}"

    @asynccontextmanager
    async def plugin(self) -> AsyncIterator[PluginCore]:
        """A process of the plugin."""
        with self.backend() as backend:
            async with plugin_core(self.root, self.cluster, boot_id=self.boot_id, other_backend=backend) as core:
                yield core

    @contextmanager
    def backend(self) -> Iterator[QuickBackend]:
        backend = QuickBackend(self.machine, MigPolicy.ON_DEMAND)
        backend.open()
        try:
            yield backend
        finally:
            backend.close()

    def reboot(self) -> None:
        """Boot the machine: the cards forget their partitions, and the folder of the CDI files is empty."""
        self._boot += 1
        self.machine.reboot()
        shutil.rmtree(self.root / "cdi", ignore_errors=True)

    # What another user of the library sees and does

    def instances(self, card: int = 0) -> list[str]:
        """Return the GPU instances of a card, as in "1g.20gb at 0"; one without compute instance is marked."""
        with self.nvml():
            handle = pynvml.nvmlDeviceGetHandleByIndex(card)
            if not self.is_mig_on(card):
                return []
            names = {one.gi_profile_id: one.name for one in gpu_model(self.cards[card].model).profiles}
            return [
                f"{names[profile]} at {start}{'' if _is_filled(handle, id_) else ' without compute instance'}"
                for id_, (profile, start, _) in sorted(list_gpu_instances(handle).items())
            ]

    def is_mig_on(self, card: int = 0) -> bool:
        with self.nvml():
            return pynvml.nvmlDeviceGetMigMode(pynvml.nvmlDeviceGetHandleByIndex(card)) == [1, 1]

    def uuid(self, instance: int, card: int = 0) -> str:
        """Return the UUID of the MIG device of a GPU instance."""
        with self.nvml():
            gpu_instance = pynvml.nvmlDeviceGetGpuInstanceById(pynvml.nvmlDeviceGetHandleByIndex(card), instance)
            compute = pynvml.nvmlGpuInstanceGetComputeInstanceById(gpu_instance, 0)
            return str(pynvml.nvmlDeviceGetUUID(pynvml.nvmlComputeInstanceGetInfo(compute).device))

    def cut_by_hand(self, profile_id: int, start: int, size: int, card: int = 0) -> None:
        with self.nvml():
            handle = pynvml.nvmlDeviceGetHandleByIndex(card)
            pynvml.nvmlDeviceSetMigMode(handle, 1)
            fill_gpu_instance(create_gpu_instance(handle, profile_id, start, size))

    def remove_by_hand(self, instance: int, card: int = 0) -> None:
        with self.nvml():
            destroy_gpu_instance(pynvml.nvmlDeviceGetHandleByIndex(card), instance)

    @contextmanager
    def nvml(self) -> Iterator[None]:
        os.environ[MACHINE_VARIABLE] = str(self.machine.folder)
        with open_nvml(self.machine):
            yield


def _is_filled(card: Any, instance: int) -> bool:
    try:
        pynvml.nvmlGpuInstanceGetComputeInstanceById(pynvml.nvmlDeviceGetGpuInstanceById(card, instance), 0)
    except pynvml.NVMLError_NotFound:
        return False
    return True
