"""The hardware of a demo's nodes: simulated cards, or the user's backends, of whose configuration each has a copy."""

import json
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import yaml

from kerf_dra.api.errors import KerfError, PermanentError
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.names import DriverName
from kerf_dra.driver.demo.hardware.intel_cards import CARDS, write_intel_cards
from kerf_dra.driver.demo.hardware.manifest_hardware import ManifestHardware
from kerf_dra.driver.families.base import Family
from kerf_dra.driver.families.shared import SHARED
from kerf_dra.driver.kubeletplugin.backends.base import Backend, BusReader, DescribedBackend, InstallingBackend
from kerf_dra.driver.kubeletplugin.backends.registry import BackendChoice, choose_families, load_backends
from kerf_dra.driver.kubeletplugin.backends.simulated import SimulatedBackend
from kerf_dra.driver.kubeletplugin.backends.simulated.state_store import StateFile
from kerf_dra.driver.kubeletplugin.backends.simulated.steps import HardwareFaults

_SIMULATED: Final = "simulated"
_DISCOVERED: Final = "discovered"
_INTEL: Final = "intel"
_DESCRIPTIONS: Final = "descriptions"
"""The folder of FpgaShells and FpgaImages beside the configuration of simulated cards."""
_USE: Final = "use.json"
"""What simulated cards are used for, in the folder of their state: no process computes on a whole GPU, so that the demo
can show a claim that is idle; parts of GPUs are busy."""
_MOST_GPUS: Final = 16
"""GPUs of a node that this is said of: what the largest machines have."""
_FAULTS: Final = "faults"
"""The name of the file with the faults of simulated cards, without its end."""
_ILLNESS: Final = "Xid 95, a memory error that was not contained"
_REPAIR: Final = "reset.xid-95"
_NOTHING_TO_FIND: Final = (
    "nodes find its devices as DiscoveryConfigurations say: give one with -f (docs/discovered-devices.md)"
)
"""Why a family has no device whose devices nodes find by discovery."""


class HardwareUnusableError(PermanentError):
    """The files of a chosen backend cannot be copied for the nodes, the backend cannot be made from them, or none of
    the chosen backends has a card.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundHardware:
    """What the chosen backends have."""

    drivers: frozenset[DriverName]
    """The drivers of the families that have cards, which the nodes publish; devices that are discovered come later."""
    lacking: Mapping[DriverName, str] = field(default_factory=dict)
    """The reasons why other families have none, by their drivers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoHardware:
    """What is on every node: the rows of simulated cards, or the user's backends."""

    cards: tuple[JsonObject, ...] = ()
    """The rows of the simulated backend's configuration; without rows nothing is simulated."""
    backends: tuple[BackendChoice, ...] = ()
    """The user's backends, in place of simulated cards."""
    families: tuple[str, ...] = ()
    """The families that the user has chosen; empty: all that have one of the backends."""
    of_manifests: ManifestHardware = ManifestHardware()  # noqa: RUF009  (frozen)
    """The hardware that the user's manifests describe or need."""

    def write(self, folder: Path, node: str) -> tuple[BackendChoice, ...]:
        """Write what ``node`` has into ``folder``, and return its backends.

        Paths in a configuration that are relative to it are the node's own. Raises HardwareUnusableError when a file
        cannot be read.
        """
        folder.mkdir(parents=True, exist_ok=True)
        if self.backends:
            return tuple(_copy(choice, folder / choice.name) for choice in self._choices)
        documents = {_SIMULATED: self._build_simulated(folder, node)}
        if self._has_intel_cards:
            documents[_INTEL] = write_intel_cards(folder / _INTEL)
        return tuple(_configure(choice, folder, documents.get(choice.name)) for choice in self._choices)

    @property
    def chosen_families(self) -> tuple[str, ...]:
        """The families that the user has chosen, with that of discovered devices if nodes look for some; empty: all."""
        is_missing = self.of_manifests.discovers and SHARED.name not in self.families
        return (*self.families, SHARED.name) if self.families and is_missing else self.families

    @property
    def _choices(self) -> tuple[BackendChoice, ...]:
        """The backends of every node, before their configurations are written."""
        own = self.backends or (BackendChoice(name=_SIMULATED),)
        if self._has_intel_cards:
            own = (*own, BackendChoice(name=_INTEL))
        is_missing = self.of_manifests.discovers and all(choice.name != _DISCOVERED for choice in own)
        return (*own, BackendChoice(name=_DISCOVERED)) if is_missing else own

    @property
    def _has_intel_cards(self) -> bool:
        """Whether nodes have stand-ins of Intel's GPUs: a user's own backends are all that there is."""
        return self.of_manifests.has_intel_gpus and not self.backends

    def _build_simulated(self, folder: Path, node: str) -> JsonObject:
        """Return the configuration of simulated cards; what is described of them is written into ``folder``."""
        document: JsonObject = {"state": ".", "seed": node, "cards": list(self.cards)}
        (folder / _USE).write_text(json.dumps({"devices": {f"gpu-{n}": {"processes": 0} for n in range(_MOST_GPUS)}}))
        if self.of_manifests.descriptions:
            document["descriptionFolder"] = _DESCRIPTIONS
            (folder / _DESCRIPTIONS).mkdir(exist_ok=True)
        for number, description in enumerate(self.of_manifests.descriptions):
            (folder / _DESCRIPTIONS / f"{number}.yaml").write_text(json.dumps(description))  # YAML has JSON in it
        return document

    def make_card_ill(self, folder: Path, card: str) -> None:
        """Let a simulated card of the node with this folder have an error after which it must be reset."""
        faults = HardwareFaults(lost={card: _ILLNESS}, repairs={card: _REPAIR})
        StateFile(folder, _FAULTS, HardwareFaults()).change(lambda _: faults)

    def count_cards(self) -> int:
        """Return the number of a node's cards, where they are not those of the user's backends."""
        return sum(int(row["count"]) for row in self.cards) + (CARDS if self._has_intel_cards else 0)

    def find_families(self) -> list[Family]:
        """Return the families that the nodes have. Raises KerfError when one is not installed."""
        return [choice.family for choice in choose_families(self.chosen_families, self._choices)]

    def check(self, backends: Sequence[BackendChoice]) -> FoundHardware:
        """Make a node's backends once, so that a wrong configuration, and cards that are not there, are reported before
        anything waits for their devices; return what they have.

        Raises HardwareUnusableError with the reason, in which the user's configuration is named, not its copy.
        """
        if not self.backends and (faults := self.of_manifests.find_faults()):
            raise HardwareUnusableError("; ".join(faults))
        try:
            found = self._find_cards(backends)
        except KerfError as error:
            raise HardwareUnusableError(self._name_own_files(str(error), backends)) from error
        lacking = {driver: self._name_own_files(reason, backends) for driver, reason in found.lacking.items()}
        if not found.drivers and any(reason != _NOTHING_TO_FIND for reason in lacking.values()):
            raise HardwareUnusableError("; ".join(f"{driver} has no card: {why}" for driver, why in lacking.items()))
        return replace(found, lacking=lacking)

    def _find_cards(self, backends: Sequence[BackendChoice]) -> FoundHardware:
        lacking: dict[DriverName, str] = {}
        drivers: set[DriverName] = set()
        for choice in choose_families(self.chosen_families, backends):
            loaded = load_backends(choice.family, choice.backends)
            if choice.family.is_network_attached:
                if not self.of_manifests.discovers:
                    lacking[choice.family.driver] = _NOTHING_TO_FIND
            elif self.backends and (reason := _find_why_empty(loaded, self._list_descriptions(choice.family))):
                lacking[choice.family.driver] = reason
            else:
                drivers.add(choice.family.driver)
        return FoundHardware(drivers=frozenset(drivers), lacking=lacking)

    def _list_descriptions(self, family: Family) -> list[JsonObject]:
        kinds = {kind.kind for kind in family.description_kinds}
        return [one for one in self.of_manifests.descriptions if one["kind"] in kinds]

    def _name_own_files(self, message: str, backends: Sequence[BackendChoice]) -> str:
        for copy, own in zip(backends, self.backends, strict=False):
            message = message.replace(str(copy.config), str(own.config))
        return message

    def count_partitions(self, backends: Sequence[BackendChoice]) -> int:
        """Count what is on a node's cards. Raises what a backend raises."""
        return sum(map(_count_partitions, self._load(backends)))

    def _load(self, backends: Sequence[BackendChoice]) -> list[Backend]:
        return [
            backend
            for choice in choose_families(self.chosen_families, backends)
            for backend in load_backends(choice.family, choice.backends)
        ]


def _configure(choice: BackendChoice, folder: Path, document: JsonObject | None) -> BackendChoice:
    """Write the configuration of a backend; None: it needs none."""
    if document is None:
        return choice
    config = folder / f"{choice.name}.yaml"
    config.write_text(yaml.safe_dump(document, sort_keys=False))
    return replace(choice, config=config)


def _copy(choice: BackendChoice, target: Path) -> BackendChoice:
    if choice.config is None:
        return choice
    try:
        if choice.config.is_dir():
            shutil.copytree(choice.config, target)
            return replace(choice, config=target)
        target.mkdir()
        return replace(choice, config=Path(shutil.copy2(choice.config, target)))
    except (OSError, shutil.Error) as error:
        raise HardwareUnusableError(f"backend {choice.name!r}: {choice.config} cannot be copied: {error}") from error


def _count_partitions(backend: Backend) -> int:
    if isinstance(backend, SimulatedBackend):
        return len(backend.occupied())
    backend.open()
    try:
        return sum(len(backend.survey(card.uuid).partitions) for card in backend.discover())
    finally:
        backend.close()


def _find_why_empty(backends: Sequence[Backend], descriptions: Sequence[JsonObject]) -> str:
    """Return why none of ``backends`` has a card; empty: one has. What they log of it is among the reasons.

    ``descriptions`` are the objects of the cluster that describe hardware.
    """
    reasons: list[str] = []
    for backend in backends:
        with _collect_warnings(reasons):
            try:
                if isinstance(backend, InstallingBackend):
                    backend.look_only()
                if isinstance(backend, DescribedBackend):
                    backend.describe(descriptions)
                backend.open()
                if backend.discover():
                    return ""
                reasons.insert(0, f"{backend.name} found none")
            except Exception as error:  # noqa: BLE001  (backends are third parties')
                reasons.append(str(error) if isinstance(error, KerfError) else repr(error))
            finally:
                backend.close()
            reasons += _list_unlisted(backend)
    return "; ".join(dict.fromkeys(reasons))


def _list_unlisted(backend: Backend) -> list[str]:
    try:
        unlisted = backend.list_unlisted(()) if isinstance(backend, BusReader) else ()
    except KerfError:  # the bus of a stand-in
        return []
    return [f"{card}; {card.next_step}" for card in unlisted]


@contextmanager
def _collect_warnings(messages: list[str]) -> Iterator[None]:
    """Append to ``messages`` what is logged meanwhile, in place of showing it."""
    handler = _Collector(messages)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


class _Collector(logging.Handler):
    """A handler that appends the messages of warnings and errors to a list."""

    def __init__(self, messages: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._messages = messages

    def emit(self, record: logging.LogRecord) -> None:
        self._messages.append(record.getMessage())
