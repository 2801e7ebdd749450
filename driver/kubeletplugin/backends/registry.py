"""The backends that are installed: Kerf's own, and entry points of the group ``kerf.backends``.

An entry point names a factory, ``open_backend(config: Path | None) -> Backend``; third parties add a vendor by
declaring one in their own package.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Final, TypeAlias

from api.errors import PermanentError
from driver.kubeletplugin.backends.base import Backend

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "kerf.backends"
OWN: Final[Mapping[str, str]] = {"simulated": "driver.kubeletplugin.backends.simulated:open_backend"}
"""Factories by name. To find them as entry points, the metadata of all installed packages would have to be read: that
takes a node 0.7 MB and a tenth of its start."""

BackendFactory: TypeAlias = Callable[[Path | None], Backend]
"""Opens a backend with its own configuration file, or with its defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendChoice:
    """A backend to load, by its name, and its configuration file."""

    name: str
    config: Path | None = None


class BackendUnavailableError(PermanentError):
    """A backend was chosen that is not installed, cannot be imported, or is chosen twice."""


def load_backends(
    choices: Sequence[BackendChoice], *, installed: "Iterable[EntryPoint] | None" = None
) -> list[Backend]:
    """Open the chosen backends, in order. ``installed`` stands for the entry points of this Python (tests).

    Raises BackendUnavailableError, naming the known ones, and whatever KerfError a backend raises about its
    configuration.
    """
    known = OWN if all(choice.name in OWN for choice in choices) else {**_declared(installed), **OWN}
    backends: list[Backend] = []
    for number, choice in enumerate(choices):
        if any(choice.name == earlier.name for earlier in choices[:number]):
            raise BackendUnavailableError(f"backend {choice.name!r} is chosen twice: claims record it by its name")
        backends.append(_open(choice, known))
    return backends


def _declared(installed: "Iterable[EntryPoint] | None") -> Mapping[str, str]:
    from importlib.metadata import entry_points  # for those who have a vendor's backend

    return {point.name: point.value for point in (entry_points(group=GROUP) if installed is None else installed)}


def _open(choice: BackendChoice, known: Mapping[str, str]) -> Backend:
    if choice.name not in known:
        raise BackendUnavailableError(f"there is no backend {choice.name!r}; installed are: {', '.join(sorted(known))}")
    where = known[choice.name]
    try:
        factory: BackendFactory = resolve_name(where)
    except (ImportError, AttributeError) as error:
        raise BackendUnavailableError(f"backend {choice.name!r} ({where}) cannot be imported: {error}") from error
    return factory(choice.config)
