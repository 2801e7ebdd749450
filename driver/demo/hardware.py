"""The hardware of a demo's nodes: simulated cards, or the user's backends, of whose configuration each has a copy."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import yaml

from kerf_dra.api.errors import KerfError, PermanentError
from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.families.base import Family
from kerf_dra.driver.kubeletplugin.backends.base import Backend
from kerf_dra.driver.kubeletplugin.backends.registry import BackendChoice, choose_families, load_backends
from kerf_dra.driver.kubeletplugin.backends.simulated import SimulatedBackend

_SIMULATED: Final = "simulated"


class HardwareUnusableError(PermanentError):
    """The files of a chosen backend cannot be copied for the nodes, or the backend cannot be made from them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoHardware:
    """What is on every node: the rows of simulated cards, or the user's backends."""

    cards: tuple[JsonObject, ...] = ()
    """The rows of the simulated backend's configuration; without rows nothing is simulated."""
    backends: tuple[BackendChoice, ...] = ()
    """The user's backends, in place of simulated cards."""
    families: tuple[str, ...] = ()
    """The families that the user has chosen; empty: all that have one of the backends."""

    def write(self, folder: Path, node: str) -> tuple[BackendChoice, ...]:
        """Write what ``node`` has into ``folder``, and return its backends.

        Paths in a configuration that are relative to it are the node's own. Raises HardwareUnusableError when a file
        cannot be read.
        """
        folder.mkdir(parents=True, exist_ok=True)
        if not self.backends:
            document = {"state": ".", "seed": node, "cards": list(self.cards)}
            config = folder / "cards.yaml"
            config.write_text(yaml.safe_dump(document, sort_keys=False))
            return (BackendChoice(name=_SIMULATED, config=config),)
        return tuple(_copy(choice, folder / choice.name) for choice in self.backends)

    def find_families(self) -> list[Family]:
        """Return the families that the nodes have. Raises KerfError when one is not installed."""
        chosen = self.backends or (BackendChoice(name=_SIMULATED),)
        return [choice.family for choice in choose_families(self.families, chosen)]

    def check(self, backends: Sequence[BackendChoice]) -> None:
        """Make a node's backends once, so that a wrong configuration is told before anything waits for its devices.

        Raises HardwareUnusableError with the reason, in which the user's configuration is named, not its copy.
        """
        try:
            self._load(backends)
        except KerfError as error:
            message = str(error)
            for copy, own in zip(backends, self.backends, strict=False):
                message = message.replace(str(copy.config), str(own.config))
            raise HardwareUnusableError(message) from error

    def count_partitions(self, backends: Sequence[BackendChoice]) -> int:
        """Count what is on a node's cards. Raises what a backend raises."""
        return sum(map(_count_partitions, self._load(backends)))

    def _load(self, backends: Sequence[BackendChoice]) -> list[Backend]:
        return [
            backend
            for choice in choose_families(self.families, backends)
            for backend in load_backends(choice.family, choice.backends)
        ]


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
