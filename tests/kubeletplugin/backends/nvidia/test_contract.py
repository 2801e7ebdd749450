"""The backend ``nvidia`` keeps the contract of backends, on stand-ins of cards and with unmodified bindings."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase, GpuConfig, GpuSharing
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.partitions.geometry import Card, Partition
from kerf_dra.driver.testing import BackendContract, MachineUnderTest
from tests.fakes.mps import kept_in_a_thread
from tests.fakes.nvml import NEEDS_COMPILER
from tests.kubeletplugin.backends.nvidia.machine import (
    NvidiaMachineUnderTest,
    StaticMachineUnderTest,
)


@NEEDS_COMPILER
class TestNvidiaBackend(BackendContract):
    family = GPU

    def new_machine(self, folder: Path) -> MachineUnderTest:
        return NvidiaMachineUnderTest(folder)


@NEEDS_COMPILER
class TestStaticMigDevices(BackendContract):
    family = GPU
    machines: list[StaticMachineUnderTest]

    def new_machine(self, folder: Path) -> MachineUnderTest:
        machine = StaticMachineUnderTest(folder)
        self.machines = [*getattr(self, "machines", ()), machine]
        return machine

    @pytest.fixture(autouse=True)
    def nothing_was_made_or_destroyed(self) -> Iterator[None]:
        yield
        for machine in (one for one in self.machines if one.hardware.exists):
            assert machine.hardware.list_instances() == machine.made


class SharedMachine(NvidiaMachineUnderTest):
    """Cards that claims share by time slices, and partitions that they share by MPS."""

    def config(self, partition: Partition) -> DeviceConfigBase:
        strategy = "TimeSlicing" if partition.is_whole else "Mps"
        return GpuConfig(api_version="kerf.dev/v1alpha1", sharing=GpuSharing(strategy=strategy))  # type: ignore[arg-type]

    def partitions(self, card: Card) -> Sequence[Partition]:
        """Return those of one profile: each prepare starts a daemon."""
        return [one for one in super().partitions(card) if one.profile in {None, "3g.40gb"}]


@NEEDS_COMPILER
@pytest.mark.long
class TestNvidiaBackendThatShares(BackendContract):
    family = GPU

    @pytest.fixture(autouse=True)
    def keepers(self) -> Iterator[None]:
        """Daemons are kept on every machine of a test, until its end."""
        with ExitStack() as self.kept:
            yield

    def new_machine(self, folder: Path) -> MachineUnderTest:
        machine = SharedMachine(folder, sharing_folder=str(folder / "sharing"))
        self.kept.enter_context(kept_in_a_thread(folder / "sharing", machine.hardware.driver_root))
        return machine
