"""A machine with stand-ins of NVIDIA cards, for the contract of backends and for tests of the backend ``nvidia``.

All its processes are this one.
"""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pynvml

from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.families.gpu.catalog import gpu_model
from kerf_dra.driver.kubeletplugin.backends.base import CardSurvey
from kerf_dra.driver.kubeletplugin.backends.nvidia import NvidiaBackend
from kerf_dra.driver.kubeletplugin.backends.nvidia.config import NvidiaConfig
from kerf_dra.driver.kubeletplugin.backends.nvidia.mig_mode import MigPolicy
from kerf_dra.driver.kubeletplugin.backends.nvidia.nvml.library import NvmlLibrary
from kerf_dra.driver.partitions.geometry import Card, Partition, Placement
from kerf_dra.driver.testing import MachineUnderTest, ProcessKilled
from kerf_dra.driver.testing.nvml import CardDescription, MachineDescription, NvidiaMachine
from kerf_dra.driver.testing.nvml.description import find_instance_id
from kerf_dra.driver.testing.nvml.machine import EVERY_FUNCTION, MACHINE_VARIABLE
from kerf_dra.driver.testing.plugin import DeviceRecord, PluginStandIn
from tests.fakes.nvml import open_nvml
from tests.fakes.nvml_calls import create_gpu_instance, destroy_gpu_instance, fill_gpu_instance
from tests.fakes.nvml_functions import CHANGES, SHARING_CHANGES

PID: Final = 4711
H100: Final = "h100-80gb-sxm"
PROFILES: Final = frozenset({"1g.10gb", "1g.20gb", "3g.40gb"})
"""The profiles that the contract is tried with: the common one, one with a compute profile of its own, a large one."""


STATIC: Final = ((19, 0, 1), (19, 1, 1), (15, 2, 2), (9, 4, 4))
"""Profile id and placement of the MIG devices of each card: twice 1g.10gb, 1g.20gb, 3g.40gb."""


class KillableLibrary(NvmlLibrary):
    """NVML that kills its process before or after a change, or makes none though it says so."""

    def __init__(self, driver_root: Path) -> None:
        super().__init__(driver_root)
        self.points = 0
        self.kill_at: int | None = None
        self.ineffective: list[str] = []
        """Functions whose next call succeeds and does nothing."""
        self.after: dict[str, Callable[[], None]] = {}
        """What somebody does right after the next call of a function."""

    def _call(self, name: str, *arguments: Any) -> Any:
        if name not in (*CHANGES, *SHARING_CHANGES):
            return super()._call(name, *arguments)
        if name in self.ineffective:
            self.ineffective.remove(name)
            return None
        self._pass_point()
        result = super()._call(name, *arguments)
        self.after.pop(name, lambda: None)()
        self._pass_point()
        return result

    def _pass_point(self) -> None:
        self.points += 1
        if self.points == self.kill_at:
            self.kill_at = None
            raise ProcessKilled


class NvidiaMachineUnderTest(MachineUnderTest):
    """Cards of some models, whose driver is the stand-in."""

    def __init__(
        self,
        folder: Path,
        *cards: CardDescription,
        policy: MigPolicy = MigPolicy.ON_DEMAND,
        now: Callable[[], float] = time.monotonic,
        sharing_folder: str = "",
        **options: Any,
    ) -> None:
        self.cards = cards or (CardDescription(model=H100), CardDescription(model=H100))
        self.hardware = NvidiaMachine.create(folder / "machine", MachineDescription(cards=self.cards, **options))
        self.waits: list[float] = []
        self.cdi_hook = ""
        """The hook that the backend is configured with; empty: the stand-in does without."""
        self.host_driver_root = "/run/nvidia/driver"
        """The driver's root as the host would see it; empty: as it is here."""
        self.policy = policy
        self.sharing_folder = sharing_folder
        self._now = now
        self._library: KillableLibrary | None = None

    def open_backend(self) -> NvidiaBackend:
        self.choose()
        root = self.hardware.driver_root
        self._library = KillableLibrary(root)
        config = NvidiaConfig(
            driver_root=str(root),
            system_root=str(self.hardware.folder),
            mig_mode=self.policy,
            host_driver_root=self.host_driver_root,
            cdi_hook=self.cdi_hook,
            sharing_folder=self.sharing_folder,
        )
        return NvidiaBackend(config, library=self._library, wait=self.waits.append, now=self._now)

    def ignore(self, function: str, times: int) -> None:
        """Let calls of the function, which changes cards, succeed and do nothing."""
        assert self._library is not None
        self._library.ineffective += [function] * times

    def do_after(self, function: str, action: Callable[[], None]) -> None:
        """Let somebody do something right after the next call of the function, which changes cards."""
        assert self._library is not None
        self._library.after[function] = action

    def enter_namespace(self, name: str) -> None:
        """Let this process be in a PID namespace, as the kernel names it."""
        link = self.hardware.folder / "proc/self/ns/pid"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(name)

    def choose(self) -> None:
        """Let this process open this machine's NVML."""
        os.environ[MACHINE_VARIABLE] = str(self.hardware.folder)

    def partitions(self, card: Card) -> Sequence[Partition]:
        """Return those of a small, a middle and a large profile: all of them are in the tests of the stand-in."""
        found = super().partitions(card)
        return [one for one in found if one.is_whole or one.profile in PROFILES]

    def kill_at(self, point: int | None) -> None:
        assert self._library is not None
        self._library.kill_at = None if point is None else self._library.points + point

    def fail_at(self, point: int | None) -> None:
        """Answer with a code that some functions give for what they do not have."""
        self.hardware.clear_faults()
        if point is not None:
            error = pynvml.NVML_ERROR_NOT_SUPPORTED
            self.hardware.add_fault(EVERY_FUNCTION, error=error, skip=point - 1, times=None)

    def cut_by_hand(self, partition: Partition) -> None:
        with open_nvml(self.hardware):
            card = pynvml.nvmlDeviceGetHandleByUUID(partition.card_uuid)
            pynvml.nvmlDeviceSetMigMode(card, 1)
            fill_gpu_instance(create_gpu_instance(card, *self._profile_place(partition)))

    def remove_by_hand(self, partition: Partition) -> None:
        with open_nvml(self.hardware):
            destroy_gpu_instance(pynvml.nvmlDeviceGetHandleByUUID(partition.card_uuid), self._instance_id(partition))

    def use(self, partition: Partition) -> None:
        number = self.number(partition.card_uuid)
        self.hardware.start_process(number, PID, gpu_instance=self._instance_id(partition), compute_instance=0)

    def stop_using(self, partition: Partition) -> None:
        self.hardware.end_process(PID)

    def take_away(self, card_uuid: str) -> None:
        self.hardware.drop_card(self.number(card_uuid))

    def bring_back(self, card_uuid: str) -> None:
        for number in range(len(self.cards)):
            self.hardware.restore_card(number)

    def make_unhealthy(self, card_uuid: str) -> None:
        self.hardware.remap_rows(self.number(card_uuid), uncorrectable=1, is_pending=True)

    def number(self, card_uuid: str) -> int:
        """Return the number of the card on the machine."""
        with open_nvml(self.hardware):
            return int(pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByUUID(card_uuid)))

    def _profile_place(self, partition: Partition) -> tuple[int, int, int]:
        profile = gpu_model(self.cards[0].model).profile(partition.profile or "")
        assert profile is not None
        assert profile.gi_profile_id is not None
        assert partition.placement is not None
        return profile.gi_profile_id, partition.placement.start, partition.placement.size

    def _instance_id(self, partition: Partition) -> int:
        assert partition.placement is not None
        return find_instance_id(gpu_model(self.cards[0].model), partition.placement)


class StaticMachineUnderTest(NvidiaMachineUnderTest):
    """Cards that an administrator has partitioned before anything else, for claims."""

    # What is cut later is static, too, and no other's.
    cut_by_hand = MachineUnderTest.cut_by_hand
    remove_by_hand = MachineUnderTest.remove_by_hand

    def __init__(self, folder: Path) -> None:
        described = CardDescription(model=H100, is_mig_on=True)
        super().__init__(folder, described, described, policy=MigPolicy.STATIC)
        self.choose()
        with open_nvml(self.hardware):
            for number in range(len(self.cards)):
                card = pynvml.nvmlDeviceGetHandleByIndex(number)
                for row in STATIC:
                    fill_gpu_instance(create_gpu_instance(card, *row))
        self.made = self.hardware.list_instances()

    def partitions(self, card: Card) -> Sequence[Partition]:
        places = {Placement(start, size) for _, start, size in STATIC}
        names = {one.profile for one in self.made}
        return [
            one
            for one in (spec.of(card.uuid) for spec in card.geometry.specs)
            if one.profile in names and one.placement in places
        ]


TWICE_1G = ("1g.20gb", Placement(0, 2))
"""A profile of an H100, and a place that it may have."""


def plugin_on(folder: Path, *cards: CardDescription, policy: MigPolicy = MigPolicy.ON_DEMAND) -> PluginStandIn:
    return PluginStandIn(NvidiaMachineUnderTest(folder, *cards, policy=policy), GPU)


def machine_of(plugin: PluginStandIn) -> NvidiaMachineUnderTest:
    assert isinstance(plugin.machine, NvidiaMachineUnderTest)
    return plugin.machine


def allocate(plugin: PluginStandIn, profile: str | None, placement: Placement | None) -> DeviceRecord:
    """Allocate a partition of the first card; without a profile the whole card."""
    card = plugin.cards[0]
    (found,) = [one for one in card.geometry.specs if (one.profile, one.placement) == (profile, placement)]
    return plugin.allocate(found.of(card.uuid), "user")


def survey(plugin: PluginStandIn) -> CardSurvey:
    return plugin.survey(plugin.cards[0].uuid)
