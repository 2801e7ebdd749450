"""The configuration of the simulated backend: its cards, the place of their state, and their speed.

.. code-block:: yaml

    state: /var/lib/kerf/simulated
    cards:
    - {kind: gpu, model: h100-80gb-sxm, count: 2, sharing: [TimeSlicing]}
    - {kind: fpga, shell: quad}
    delays: {nvmlDeviceCreateGpuInstanceWithPlacement: 0.5}
"""

import re
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from kerf_dra.api.errors import InvalidDocumentError, Problem
from kerf_dra.api.kerf.scalar_types import DriverVersion
from kerf_dra.api.kerf.v1alpha1 import SHARING_ATTRIBUTES, Strict
from kerf_dra.api.model.devices import Attribute
from kerf_dra.driver.families.fpga.descriptions import DescribedShell, Descriptions
from kerf_dra.driver.families.fpga.geometry import fpga_geometry
from kerf_dra.driver.families.fpga.shell import Shell
from kerf_dra.driver.families.gpu.catalog import gpu_model
from kerf_dra.driver.families.gpu.geometry import gpu_geometry
from kerf_dra.driver.families.model_names import UnknownModelError
from kerf_dra.driver.kubeletplugin.backends.fpga.descriptions import DescriptionReader
from kerf_dra.driver.kubeletplugin.backends.simulated.example_shells import descriptions, shell
from kerf_dra.driver.kubeletplugin.backends.simulated.steps import HardwareStep
from kerf_dra.driver.partitions.device_attributes import mark_simulated
from kerf_dra.driver.partitions.geometry import Card
from kerf_dra.driver.runtime.documents.input_file import describe_read_error, read_file
from kerf_dra.driver.runtime.documents.yaml_file import NotYamlError, parse_yaml

_NAMESPACE: Final = uuid.UUID("2a6f0d0e-94c2-5d1b-8c8e-0d7f4d7a1f3b")
"""The namespace of the UUIDs of simulated cards (RFC 9562, version 5)."""
_DRIVER_VERSION: Final = "1.0.0"
_CUDA_DRIVER_VERSION: Final = Attribute(version="13.0.0")
_GPU_DOMAIN: Final = 0
_FPGA_DOMAIN: Final = 1
"""PCI domain of each kind, so that no two cards have one address."""
_BUS: Final = 32
"""Devices on one PCI bus."""
_SOCKETS: Final = 2
"""NUMA nodes of a simulated machine; consecutive cards of a kind alternate between them."""
_PCIE_ROOTS: Final = ("pci0000:00", "pci0000:80")
"""The PCIe root complex of each NUMA node, which its GPUs and FPGAs share, so that a pod can have aligned ones."""

Delay: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=86_400)]
"""Seconds, or a factor of them, up to a day: with an infinite one a prepare would never end, and no error say why."""
CardCount: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=1024)]
"""More cards than any machine has: a typing error must not fill its memory."""


class GpuCards(Strict, tag_field="kind", tag="gpu"):
    """Some GPUs of one model."""

    model: str
    """A model that ``gpu_model`` knows (``kerf_dra.driver.families.gpu``)."""
    count: CardCount = 1
    driver_version: DriverVersion = _DRIVER_VERSION
    """The version of the host's driver."""
    sharing: tuple[Literal["TimeSlicing", "Mps"], ...] = ()
    """The sharing strategies that the cards claim to do. None without this: no process runs on a simulated card, so
    nothing is shared but a variable that names the strategy to containers."""


class FpgaCards(Strict, tag_field="kind", tag="fpga"):
    """Some FPGAs with one shell."""

    shell: str
    """The name of a described shell, or of an example (``example_shells``)."""
    count: CardCount = 1
    driver_version: DriverVersion = _DRIVER_VERSION
    """The version of the host's driver."""


class SimulatedConfig(Strict):
    """The configuration document."""

    state: str
    """Directory of the hardware's state, relative to the document; made when it is not there."""
    cards: tuple[GpuCards | FpgaCards, ...]
    description_folder: str = ""
    """Directory with FpgaShells and FpgaImages for cards, beside Kerf's examples, relative to the document; empty:
    none.
    """
    delays: dict[HardwareStep, Delay] = {}
    """Seconds that a step takes in place of ``steps.DELAYS_S``."""
    pace: Delay = 1.0
    """Factor of every delay; 0: the hardware takes no time."""
    seed: str = ""
    """The seed of the cards' UUIDs, beside kind and number; empty: the state directory's path."""
    health_poll_seconds: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    """Seconds between two reads of the cards' health: short enough to watch, long enough to cost nothing."""


def read_config(path: Path) -> SimulatedConfig:
    """Read the configuration from the YAML file ``path``, with ``state`` made absolute.

    Raises InvalidDocumentError, with the path of what is wrong, for a field that is unknown, missing or of another
    type, a model or shell that is not in the catalog, and a file that cannot be read.
    """
    try:
        document = parse_yaml(read_file(path), SimulatedConfig, GpuCards, FpgaCards)
        if not isinstance(document, dict) or document.keys().isdisjoint(SimulatedConfig.__struct_fields__):
            raise NotYamlError("is not an object with the fields state and cards")  # nothing of another's file is shown
        config = msgspec.convert(document, type=SimulatedConfig)
    except (OSError, NotYamlError) as error:
        raise InvalidDocumentError(str(path), [Problem("", describe_read_error(error))]) from error
    except msgspec.ValidationError as error:
        raise InvalidDocumentError(str(path), [_problem(str(error))]) from error
    folder = str((path.parent / config.description_folder).resolve()) if config.description_folder else ""
    config = msgspec.structs.replace(
        config, state=str((path.parent / config.state).resolve()), description_folder=folder
    )
    problems = list(_unknown_models(config))
    if problems:
        raise InvalidDocumentError(str(path), problems)
    return config


def find_shell(config: SimulatedConfig, name: str) -> Shell:
    """Return the shell that ``name`` means: a described one, else an example. Raises UnknownModelError."""
    described = {shell.name: shell for shell in _read_descriptions(config)[0].cards}
    return described.get(name) or shell(name)


def find_layouts(config: SimulatedConfig, shell: Shell) -> Mapping[str, DescribedShell]:
    """Return what is described of each layout of a shell, by the layout's name."""
    described = {**descriptions().shells, **_read_descriptions(config)[0].shells}
    return {layout.name: described[layout.uuid] for layout in shell.layouts}


def _read_descriptions(config: SimulatedConfig) -> tuple[Descriptions, list[str]]:
    """Read the described shells and images, and what is wrong with descriptions."""
    if not config.description_folder:
        return Descriptions(shells={}), []
    return DescriptionReader(Path(config.description_folder)).read()


def cards_of(config: SimulatedConfig) -> tuple[Card, ...]:
    """Build the cards, numbered by kind in the order of the document. The same document gives the same UUIDs."""
    gpus = [row for row in config.cards if isinstance(row, GpuCards) for _ in range(row.count)]
    fpgas = [row for row in config.cards if isinstance(row, FpgaCards) for _ in range(row.count)]
    seed = config.seed or config.state
    cards = (
        *(_gpu(seed, index, row) for index, row in enumerate(gpus)),
        *(_fpga(config, seed, index, row) for index, row in enumerate(fpgas)),
    )
    return tuple(map(mark_simulated, cards))


def _gpu(seed: str, index: int, row: GpuCards) -> Card:
    sharing = {SHARING_ATTRIBUTES[strategy]: Attribute.of(True) for strategy in row.sharing}
    return Card(
        uuid=f"GPU-{_uuid(seed, 'gpu', index)}",
        index=index,
        geometry=gpu_geometry(gpu_model(row.model)),
        pci_bus_id=_address(_GPU_DOMAIN, index),
        pcie_root=_PCIE_ROOTS[index % _SOCKETS],
        numa_node=index % _SOCKETS,
        driver_version=row.driver_version,
        attributes={"cudaDriverVersion": _CUDA_DRIVER_VERSION, **sharing},
    )


def _fpga(config: SimulatedConfig, seed: str, index: int, row: FpgaCards) -> Card:
    return Card(
        uuid=f"FPGA-{_uuid(seed, 'fpga', index)}",
        index=index,
        geometry=fpga_geometry(find_shell(config, row.shell)),
        pci_bus_id=_address(_FPGA_DOMAIN, index),
        pcie_root=_PCIE_ROOTS[index % _SOCKETS],
        numa_node=index % _SOCKETS,
        driver_version=row.driver_version,
    )


def _address(domain: int, index: int) -> str:
    return f"{domain:04x}:{index // _BUS:02x}:{index % _BUS:02x}.0"


def _uuid(seed: str, kind: str, index: int) -> uuid.UUID:
    return uuid.uuid5(_NAMESPACE, f"{seed}/{kind}/{index}")


def _unknown_models(config: SimulatedConfig) -> Iterator[Problem]:
    yield from (Problem("descriptionFolder", problem) for problem in _read_descriptions(config)[1])
    for number, row in enumerate(config.cards):
        try:
            if isinstance(row, GpuCards):
                gpu_model(row.model)
            else:
                find_shell(config, row.shell)
        except UnknownModelError as error:
            field = "model" if isinstance(row, GpuCards) else "shell"
            yield Problem(f"cards[{number}].{field}", str(error))


def _problem(message: str) -> Problem:
    """Split a ValidationError's text, which ends in ``- at `$.cards[0].count``` or ``- at `key` in `$.delays```."""
    match = re.fullmatch(r"(?s)(.*?)(?: - at (?:`key` in )?`\$\.?(.*)`)?", message)
    assert match is not None  # the first group takes anything
    return Problem(match[2] or "", match[1])
