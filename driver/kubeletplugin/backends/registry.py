"""The backends that are installed: entry points of the group ``kerf.backends``.

An entry point names a factory, ``open_backend(config: Path | None) -> Backend``; third parties add a vendor by
declaring one in their own package.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Final, TypeAlias

from api.errors import PermanentError
from driver.kubeletplugin.backends.base import Backend

GROUP: Final = "kerf.backends"

BackendFactory: TypeAlias = Callable[[Path | None], Backend]
"""Opens a backend with its own configuration file, or with its defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendChoice:
    """A backend to load, by the name of its entry point, and its configuration file."""

    name: str
    config: Path | None = None


class BackendUnavailableError(PermanentError):
    """A backend was chosen that is not installed, cannot be imported, or is chosen twice."""


def load_backends(choices: Sequence[BackendChoice], *, installed: Iterable[EntryPoint] | None = None) -> list[Backend]:
    """Open the chosen backends, in order. ``installed`` stands for the entry points of this Python (tests).

    Raises BackendUnavailableError, naming the known ones, and whatever KerfError a backend raises about its
    configuration.
    """
    known = {point.name: point for point in (entry_points(group=GROUP) if installed is None else installed)}
    backends: list[Backend] = []
    for number, choice in enumerate(choices):
        if any(choice.name == earlier.name for earlier in choices[:number]):
            raise BackendUnavailableError(f"backend {choice.name!r} is chosen twice: claims record it by its name")
        backends.append(_open(choice, known.get(choice.name), known))
    return backends


def _open(choice: BackendChoice, point: EntryPoint | None, known: Iterable[str]) -> Backend:
    if point is None:
        names = ", ".join(sorted(known)) or "none"
        raise BackendUnavailableError(f"there is no backend {choice.name!r}; installed are: {names}")
    try:
        factory: BackendFactory = point.load()
    except (ImportError, AttributeError) as error:
        raise BackendUnavailableError(f"backend {choice.name!r} ({point.value}) cannot be imported: {error}") from error
    return factory(choice.config)
