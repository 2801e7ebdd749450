"""The registry of backends: which families a process hosts, with which of their backends.

A family names its backends' factories (``Family.backends``), each as ``module:function`` of the form
``open_backend(config: Path | None) -> Backend``. Entry points, which install further families and backends, are read
only when a family or a backend is chosen that no family of Kerf names: reading the metadata of all installed packages
takes 0.7 MB and a tenth of the plugin's start.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, TypeAlias

from kerf_dra.api.errors import KerfError, PermanentError
from kerf_dra.driver.families.base import Family
from kerf_dra.driver.families.registry import (
    BUILT_IN,
    BUILT_IN_BY_NAME,
    add_backends,
    describe_left_out,
    describe_unknown,
    find_families,
    find_left_out,
    list_backends,
    load_families,
)
from kerf_dra.driver.kubeletplugin.backends.backend_validation import find_factory_fault, find_protocol_fault
from kerf_dra.driver.kubeletplugin.backends.base import Backend
from kerf_dra.driver.kubeletplugin.backends.card_selection import CardEntry, CardSelection

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

BackendFactory: TypeAlias = Callable[[Path | None], Backend]
"""A factory, given the backend's configuration file, or None for its defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendChoice:
    """The name of a backend to open, and its configuration file."""

    name: str
    config: Path | None = None
    cards: CardSelection = CardSelection()  # noqa: RUF009  (frozen)
    """Which of its cards may be published."""

    def __str__(self) -> str:
        """Return it as the option ``--backend`` takes it."""
        return self.name if self.config is None else f"{self.name}={self.config}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyChoice:
    """A family to host, and those of the chosen backends that it has."""

    family: Family
    backends: tuple[BackendChoice, ...]


class BackendUnavailableError(PermanentError):
    """A chosen backend is not installed, cannot be imported, is of no use, fails to open or breaks the protocol, or is
    chosen twice.
    """


def select_cards(
    choices: Sequence[BackendChoice], include: Sequence[CardEntry], exclude: Sequence[CardEntry]
) -> tuple[BackendChoice, ...]:
    """Return ``choices`` with the cards that are included and excluded.

    Raises BackendUnavailableError for a card of a backend that is not chosen, and InvalidCardIdError.
    """
    names = {choice.name for choice in choices}
    for entry in (*include, *exclude):
        if entry.backend not in names:
            raise BackendUnavailableError(f"card {entry} is of a backend that is not chosen: name it by --backend, too")

    def list_ids(entries: Sequence[CardEntry], name: str) -> list[str]:
        return [entry.id for entry in entries if entry.backend == name]

    return tuple(
        replace(choice, cards=CardSelection.of(list_ids(include, choice.name), list_ids(exclude, choice.name)))
        for choice in choices
    )


def choose_families(
    names: Sequence[str], backends: Sequence[BackendChoice], *, installed: "EntryPoints | None" = None
) -> tuple[FamilyChoice, ...]:
    """Return the families called ``names``, or without names all that have one of ``backends``, each with its backends.

    Tests give ``installed``, else it is the entry points of this Python. Without names, and with backends that Kerf's
    families name, no entry points are read. Raises FamilyUnavailableError and BackendUnavailableError for what is not
    installed, a family without a backend, and a backend of none of the families.
    """
    for number, choice in enumerate(backends):
        if any(choice.name == earlier.name for earlier in backends[:number]):
            raise BackendUnavailableError(f"backend {choice.name!r} is chosen twice: claims record it by its name")
    known = _find_families(names, backends, installed)
    for choice in backends:
        if not any(choice.name in family.backends for family in known.values()):
            every = {name for family in known.values() for name in list_backends(family)}
            raise BackendUnavailableError(describe_unknown("backend", choice.name, every))
    for family in known.values():
        for choice in backends if family.is_network_attached else ():
            if choice.cards and choice.name in family.backends:
                raise BackendUnavailableError(
                    f"backend {choice.name!r} has no cards of a node that could be included or excluded: the family "
                    f"{family.name} publishes what DiscoveryConfigurations find, so change their filters"
                )
    wanted = find_families(names, known) or known.values()
    chosen = tuple(
        FamilyChoice(family=family, backends=own)
        for family in wanted
        if (own := tuple(choice for choice in backends if choice.name in family.backends)) or names
    )
    for one in chosen:
        if not one.backends:
            its = ", ".join(sorted(one.family.backends)) or "none"
            raise BackendUnavailableError(f"family {one.family.name!r} has none of the chosen backends; it has: {its}")
    used = {choice.name for one in chosen for choice in one.backends}
    for choice in backends:
        if choice.name not in used:
            owners = ", ".join(name for name, family in known.items() if choice.name in family.backends)
            raise BackendUnavailableError(
                f"backend {choice.name!r} is of none of the chosen families; choose {owners}, too, or leave it out"
            )
    return chosen


def load_backends(family: Family, choices: Sequence[BackendChoice]) -> list[Backend]:
    """Open the chosen backends of ``family``, in order.

    Raises BackendUnavailableError, and the KerfError that a backend raises for its configuration.
    """
    return [_open(family, choice) for choice in choices]


def _find_families(
    names: Sequence[str], backends: Sequence[BackendChoice], installed: "EntryPoints | None"
) -> Mapping[str, Family]:
    """Return the families by name: Kerf's own if they are enough, else all that are installed, with all backends."""
    own_backends = {backend for family in BUILT_IN for backend in family.backends}
    is_enough = BUILT_IN_BY_NAME.keys() >= {*names} and own_backends >= {choice.name for choice in backends}
    if is_enough:
        return BUILT_IN_BY_NAME
    return add_backends(load_families(installed=installed), installed=installed)


def _open(family: Family, choice: BackendChoice) -> Backend:
    where = family.backends[choice.name]
    described = f"backend {choice.name!r} of family {family.name!r} ({where})"
    try:
        factory: BackendFactory = resolve_name(where)
    except Exception as error:  # (the module is a third party's, and may raise anything)
        if package := find_left_out(where):
            raise BackendUnavailableError(describe_left_out(described, package)) from error
        raise BackendUnavailableError(f"{described} cannot be imported: {error}") from error
    if fault := find_factory_fault(factory):
        raise BackendUnavailableError(f"{described} cannot be made: {fault}")
    try:
        backend = factory(choice.config)
    except KerfError:
        raise
    except Exception as error:  # (as above)
        raise BackendUnavailableError(f"{described} fails to open: {error!r}") from error
    if fault := find_protocol_fault(backend):
        raise BackendUnavailableError(f"{described} breaks the protocol of backends: {fault}")
    return backend
