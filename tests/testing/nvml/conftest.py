from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from kerf_dra.driver.testing.nvml import CardDescription, MachineDescription, NvidiaMachine
from kerf_dra.driver.testing.nvml.description import DRIVER_VERSION

MakeMachine: TypeAlias = Callable[..., NvidiaMachine]


@pytest.fixture
def make_machine(tmp_path: Path) -> MakeMachine:
    """Make a machine with the cards, H100s with MIG on where none are given."""

    def make(*cards: CardDescription, driver_version: str = DRIVER_VERSION) -> NvidiaMachine:
        chosen = cards or (CardDescription(model="h100-80gb-sxm", is_mig_on=True),)
        described = MachineDescription(cards=chosen, driver_version=driver_version)
        return NvidiaMachine.create(tmp_path / "machine", described)

    return make
