"""The simulated machine of one test, and two of its cards; modules about other machines have their own."""

from pathlib import Path

import pytest

from kerf_dra.driver.partitions.geometry import Card
from tests.kubeletplugin.backends.simulated.machine import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "state")


@pytest.fixture
def gpu(machine: Machine) -> Card:
    return machine.card(0)


@pytest.fixture
def fpga(machine: Machine) -> Card:
    return machine.card(2)
