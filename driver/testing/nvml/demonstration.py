"""The backend ``nvidia-fake``: the backend ``nvidia`` on a stand-in machine that a document describes.

.. code-block:: yaml

    machine: machine
    cards:
    - {model: h100-80gb-sxm, count: 2}
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from kerf_dra.api.errors import InvalidDocumentError, PermanentError, Problem
from kerf_dra.api.kerf.scalar_types import PositiveInt
from kerf_dra.api.kerf.v1alpha1 import Strict
from kerf_dra.driver.kubeletplugin.backends.nvidia.backend import NvidiaBackend
from kerf_dra.driver.kubeletplugin.backends.nvidia.config import NvidiaConfig
from kerf_dra.driver.kubeletplugin.backends.nvidia.mig_mode import MigPolicy
from kerf_dra.driver.partitions.device_attributes import mark_simulated
from kerf_dra.driver.partitions.geometry import Card
from kerf_dra.driver.runtime.documents.input_file import describe_read_error, read_file
from kerf_dra.driver.runtime.documents.yaml_file import NotYamlError, parse_yaml
from kerf_dra.driver.testing.nvml.description import CardDescription, MachineDescription
from kerf_dra.driver.testing.nvml.machine import NvidiaMachine

_EXAMPLE: Final = "{machine: machine, cards: [{model: h100-80gb-sxm, count: 2}]}"


class StandInCards(Strict, rename="camel"):
    """Some cards of one model."""

    model: str
    count: PositiveInt = 1
    mig: bool = False
    """Whether MIG mode is on when the machine is made."""


class StandInConfig(Strict, rename="camel"):
    """The configuration document of ``nvidia-fake``."""

    cards: tuple[StandInCards, ...]
    machine: str = "machine"
    """Folder of the machine, relative to the document; the machine is made when it is not there."""
    mig_mode: MigPolicy = MigPolicy.ON_DEMAND
    sharing_folder: str = ""
    """As that of the backend ``nvidia``, relative to the document."""


class StandInBackend(NvidiaBackend):
    """The backend ``nvidia`` on a stand-in; claims record it by another name."""

    name = "nvidia-fake"

    def __init__(self, machine: NvidiaMachine, policy: MigPolicy, *, sharing_folder: str = "") -> None:
        config = NvidiaConfig(
            driver_root=str(machine.driver_root),
            system_root=str(machine.folder),
            mig_mode=policy,
            sharing_folder=sharing_folder,
        )
        super().__init__(config)
        self._machine = machine

    def discover(self) -> Sequence[Card]:
        return [mark_simulated(card) for card in super().discover()]

    def open(self) -> None:
        """Open NVML of the machine: a process loads one library only, and the variable says which machine it is of."""
        os.environ.update(self._machine.choice())
        super().open()


def open_backend(config: Path | None) -> StandInBackend:
    """Make the machine that the YAML document ``config`` describes, and a backend of its cards.

    Raises PermanentError without a document, InvalidDocumentError when it is invalid, UnknownModelError and
    NoCompilerError.
    """
    if config is None:
        raise PermanentError(
            f"the backend nvidia-fake needs a document that says which cards to make, such as {_EXAMPLE}"
        )
    try:
        document = msgspec.convert(parse_yaml(read_file(config), StandInConfig, StandInCards), type=StandInConfig)
    except (OSError, NotYamlError, msgspec.ValidationError) as error:
        raise InvalidDocumentError(str(config), [Problem("", describe_read_error(error))]) from error
    folder = (config.parent / document.machine).resolve()
    machine = NvidiaMachine(folder)
    if not machine.exists:
        cards = [
            CardDescription(model=row.model, is_mig_on=row.mig) for row in document.cards for _ in range(row.count)
        ]
        with suppress(FileExistsError):  # another process has made it meanwhile
            NvidiaMachine.create(folder, MachineDescription(cards=tuple(cards), seed=str(folder)))
    sharing_folder = str((config.parent / document.sharing_folder).resolve()) if document.sharing_folder else ""
    return StandInBackend(machine, document.mig_mode, sharing_folder=sharing_folder)
