"""A node whose NVIDIA cards are stand-ins: processes of its plugin, boots, and what others see and do on its cards.

``call_in_process`` is what a process does that makes one call, and is killed in it.
"""

import json
import os
import shutil
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import pynvml

from kerf_dra.api.model.devices import Device
from kerf_dra.driver.families.gpu.catalog import gpu_model
from kerf_dra.driver.kubeletplugin.backends.base import CardChange, HealthChange
from kerf_dra.driver.kubeletplugin.backends.nvidia import NvidiaBackend
from kerf_dra.driver.kubeletplugin.backends.nvidia.config import NvidiaConfig
from kerf_dra.driver.kubeletplugin.backends.nvidia.nvml.library import NvmlLibrary
from kerf_dra.driver.testing.nvml import CardDescription, MachineDescription, NvidiaMachine
from kerf_dra.driver.testing.nvml.demonstration import StandInBackend, open_backend
from tests.fakes.claims import claim
from tests.fakes.cluster import FakeCluster
from tests.fakes.nvml import open_nvml
from tests.fakes.nvml_calls import create_gpu_instance, destroy_gpu_instance, fill_gpu_instance, list_gpu_instances
from tests.kubeletplugin.backends.one_call import call_plugin
from tests.kubeletplugin.claim_fixture import PluginCore, plugin_core

H100: Final = CardDescription(model="h100-80gb-sxm")
A100_IN_PARTITIONS: Final = CardDescription(model="a100-40gb", is_mig_on=True)
WITHOUT_MIG: Final = CardDescription(model="h100-80gb-sxm", product="NVIDIA L4", is_mig_capable=False)
CLAIM: Final = claim("gpu", "gpu-0-1g-20gb-at-0", "gpu-0-3g-40gb-at-4")
"""What a process is called for."""


class QuickBackend(NvidiaBackend):
    """The backend of stand-ins, which tries again at once what is in use."""

    name = StandInBackend.name
    opens = waits = 0
    """How often it was to be opened, and to wait for events."""

    def __init__(self, machine: NvidiaMachine, cdi_hook: str = "", *, library: NvmlLibrary | None = None) -> None:
        config = NvidiaConfig(driver_root=str(machine.driver_root), system_root=str(machine.folder), cdi_hook=cdi_hook)
        super().__init__(config, library=library, wait=lambda delay_s: None)
        self._machine = machine

    def open(self) -> None:
        self.opens += 1
        os.environ.update(self._machine.choice())
        super().open()

    def wait_for_events(self, timeout_s: float) -> Sequence[HealthChange | CardChange]:
        self.waits += 1
        return super().wait_for_events(timeout_s)


class NvidiaNode:
    """A node with cards of these descriptions: one H100, unless told otherwise."""

    def __init__(self, root: Path, *cards: CardDescription) -> None:
        self.root = root
        self.cards = cards or (H100,)
        self.machine = NvidiaMachine.create(root / "machine", MachineDescription(cards=self.cards))
        self.cluster = FakeCluster()
        self.cdi_hook = ""
        """The hook that the backend is configured with; empty: the stand-in does without."""
        self._boot = 1

    @property
    def boot_id(self) -> str:
        return f"boot-{self._boot}"

    @asynccontextmanager
    async def plugin(self) -> AsyncIterator[PluginCore]:
        """A process of the plugin."""
        with self.backend() as backend:
            async with self.plugin_over(backend) as core:
                yield core

    @asynccontextmanager
    async def plugin_over(self, backend: QuickBackend) -> AsyncIterator[PluginCore]:
        """A process of the plugin, over a backend that is open."""
        async with plugin_core(self.root, self.cluster, boot_id=self.boot_id, other_backend=backend) as core:
            yield core

    @contextmanager
    def backend(self) -> Iterator[QuickBackend]:
        backend = QuickBackend(self.machine, self.cdi_hook)
        backend.open()
        try:
            yield backend
        finally:
            backend.close()

    def published_devices(self) -> list[Device]:
        """Return the devices that a whole plugin has published last."""
        pools = self.cluster.published[-1] if self.cluster.published else ()
        return [device for pool in pools for one in pool.slices for device in one.devices]

    def reboot(self) -> None:
        """Boot the machine: the cards forget their partitions, and the folder of the CDI files is empty."""
        self._boot += 1
        self.machine.reboot()
        shutil.rmtree(self.root / "cdi", ignore_errors=True)

    # What another user of the library sees and does

    def instances(self, card: int = 0) -> list[str]:
        """Return the GPU instances of a card, as in "1g.20gb at 0"; one without compute instance is marked."""
        with open_nvml(self.machine):
            handle = pynvml.nvmlDeviceGetHandleByIndex(card)
            if not self.is_mig_on(card):
                return []
            names = {one.gi_profile_id: one.name for one in gpu_model(self.cards[card].model).profiles}
            return [
                f"{names[profile]} at {start}{'' if _is_filled(handle, id_) else ' without compute instance'}"
                for id_, (profile, start, _) in sorted(list_gpu_instances(handle).items())
            ]

    def is_mig_on(self, card: int = 0) -> bool:
        with open_nvml(self.machine):
            return bool(pynvml.nvmlDeviceGetMigMode(pynvml.nvmlDeviceGetHandleByIndex(card)) == [1, 1])

    def uuid(self, instance: int, card: int = 0) -> str:
        """Return the UUID of the MIG device of a GPU instance."""
        with open_nvml(self.machine):
            gpu_instance = pynvml.nvmlDeviceGetGpuInstanceById(pynvml.nvmlDeviceGetHandleByIndex(card), instance)
            compute = pynvml.nvmlGpuInstanceGetComputeInstanceById(gpu_instance, 0)
            return str(pynvml.nvmlDeviceGetUUID(pynvml.nvmlComputeInstanceGetInfo(compute).device))

    def cut_by_hand(self, profile_id: int, size: int, *, start: int, card: int = 0) -> None:
        with open_nvml(self.machine):
            handle = pynvml.nvmlDeviceGetHandleByIndex(card)
            pynvml.nvmlDeviceSetMigMode(handle, 1)
            fill_gpu_instance(create_gpu_instance(handle, profile_id, start, size))

    def remove_by_hand(self, instance: int, card: int = 0) -> None:
        with open_nvml(self.machine):
            destroy_gpu_instance(pynvml.nvmlDeviceGetHandleByIndex(card), instance)


def _is_filled(card: Any, instance: int) -> bool:
    try:
        pynvml.nvmlGpuInstanceGetComputeInstanceById(pynvml.nvmlDeviceGetGpuInstanceById(card, instance), 0)
    except pynvml.NVMLError_NotFound:
        return False
    return True


def machine(root: Path) -> NvidiaMachine:
    return NvidiaMachine(root / "machine")


def hardware(root: Path, **more: object) -> StandInBackend:
    """A backend of an H100 whose machine lies below ``root``, opened; with ``more`` in its document."""
    file = root / "cards.yaml"
    file.write_text(json.dumps({"cards": [{"model": "h100-80gb-sxm"}], **more}))
    backend = open_backend(file)
    backend.open()
    return backend


def call_in_process(root: Path, operation: str) -> None:
    anyio.run(call_plugin, root, CLAIM, operation, hardware(root))
