"""The registry of backends: Kerf's own, and the installed entry points of the group ``kerf.backends``.

An entry point names a factory, ``open_backend(config: Path | None) -> Backend``; a vendor declares one in a package of
its own.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Final, TypeAlias

from api.errors import PermanentError
from driver.kubeletplugin.backends.backend_validation import find_factory_fault, find_protocol_fault
from driver.kubeletplugin.backends.base import Backend

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "kerf.backends"
BUILT_IN: Final[Mapping[str, str]] = {"simulated": "driver.kubeletplugin.backends.simulated:open_backend"}
"""Kerf's own factories by name. Reading them as entry points would read the metadata of all installed packages,
which takes 0.7 MB and a tenth of the plugin's start."""

BackendFactory: TypeAlias = Callable[[Path | None], Backend]
"""A factory, given the backend's configuration file, or None for its defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendChoice:
    """The name of a backend to load, and its configuration file."""

    name: str
    config: Path | None = None


class BackendUnavailableError(PermanentError):
    """A chosen backend is not installed, cannot be imported or called, breaks the protocol, or is chosen twice."""


def load_backends(
    choices: Sequence[BackendChoice], *, installed: "Iterable[EntryPoint] | None" = None
) -> list[Backend]:
    """Open the chosen backends, in order. Tests give ``installed``, else it is the entry points of this Python.

    Raises BackendUnavailableError, and the KerfError that a backend raises for its configuration.
    """
    known = BUILT_IN if all(choice.name in BUILT_IN for choice in choices) else {**_declared(installed), **BUILT_IN}
    backends: list[Backend] = []
    for number, choice in enumerate(choices):
        if any(choice.name == earlier.name for earlier in choices[:number]):
            raise BackendUnavailableError(f"backend {choice.name!r} is chosen twice: claims record it by its name")
        backends.append(_open(choice, known))
    return backends


def _declared(installed: "Iterable[EntryPoint] | None") -> Mapping[str, str]:
    from importlib.metadata import entry_points  # needed only with a vendor's backend

    return {point.name: point.value for point in (entry_points(group=GROUP) if installed is None else installed)}


def _open(choice: BackendChoice, known: Mapping[str, str]) -> Backend:
    if choice.name not in known:
        raise BackendUnavailableError(f"there is no backend {choice.name!r}; installed are: {', '.join(sorted(known))}")
    where = known[choice.name]
    try:
        factory: BackendFactory = resolve_name(where)
    except (ImportError, AttributeError) as error:
        raise BackendUnavailableError(f"backend {choice.name!r} ({where}) cannot be imported: {error}") from error
    if fault := find_factory_fault(factory):
        raise BackendUnavailableError(f"backend {choice.name!r} ({where}) cannot be made: {fault}")
    backend = factory(choice.config)
    if fault := find_protocol_fault(backend):
        raise BackendUnavailableError(f"backend {choice.name!r} ({where}) breaks the protocol of backends: {fault}")
    return backend
