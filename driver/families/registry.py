"""The registry of families: Kerf's own, and the installed entry points of the group ``kerf.families``.

An entry point names a ``Family`` value (``kerf_dra.driver.families.base``) in a package of its own. Those of the group
``kerf.backends`` add backends to families, for example hardware that is only simulated: ``FAMILY.BACKEND`` is the
factory of one, as in ``Family.backends``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from kerf_dra.api.errors import PermanentError
from kerf_dra.driver import DISTRIBUTION
from kerf_dra.driver.families.base import Family
from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.families.gpu_intel import GPU_INTEL
from kerf_dra.driver.families.shared import SHARED

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

GROUP: Final = "kerf.families"
BACKENDS_GROUP: Final = "kerf.backends"
_OWN: Final = "kerf_dra."
"""What the names of Kerf's own modules begin with."""
BUILT_IN: Final = (GPU, FPGA, GPU_INTEL, SHARED)
"""Kerf's own families."""
BUILT_IN_BY_NAME: Final[Mapping[str, Family]] = MappingProxyType({family.name: family for family in BUILT_IN})
BUILT_IN_BY_DRIVER: Final[Mapping[str, Family]] = MappingProxyType({family.driver: family for family in BUILT_IN})


class FamilyUnavailableError(PermanentError):
    """A family is not installed, cannot be imported, or two families have one name or one driver name."""


def find_families(names: Iterable[str], known: Mapping[str, Family]) -> list[Family]:
    """Return the families called ``names``, each once. Raises FamilyUnavailableError for one that is not ``known``."""
    for name in names:
        if name not in known:
            raise FamilyUnavailableError(describe_unknown("family", name, known))
    return [known[name] for name in dict.fromkeys(names)]


def describe_unknown(what: str, name: str, known: Iterable[str]) -> str:
    """Return a sentence about a name that is not installed, with those that are, and the most similar one."""
    import difflib  # only after a misspelled name: daemons never need it

    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    advice = f"; did you mean {close[0]!r}?" if close else ""
    return f"there is no {what} {name!r}; installed are: {', '.join(names)}{advice}"


def describe_left_out(what: str, package: str) -> str:
    """Return a sentence about a part of Kerf that imitates a cluster or hardware, which this installation lacks."""
    return (
        f"{what} is not in this installation, which was built without simulated hardware (there is no {package}): "
        f"build the image with `make image ARGS=--with-simulated`, or install the whole package {DISTRIBUTION}"
    )


def load_families(*, installed: "EntryPoints | None" = None) -> Mapping[str, Family]:
    """Return all installed families by name, Kerf's own first. Tests give ``installed``.

    Raises FamilyUnavailableError for an entry point that cannot be imported or is no Family, and for two families of
    one name or one driver name; InvalidFamilyError for a family that contradicts itself.
    """
    families: dict[str, Family] = {}
    origins: dict[str, str] = {}
    for origin, family in (
        *(("Kerf", family) for family in BUILT_IN),
        *((point.value, _load(point)) for point in _read_group(GROUP, installed)),
    ):
        same = [known for known in families.values() if family.name == known.name or family.driver == known.driver]
        if same:
            raise FamilyUnavailableError(
                f"family {family.name!r} ({family.driver}) of {origin} is installed twice: {origins[same[0].name]} has "
                f"{same[0].name!r} ({same[0].driver}); uninstall one of the two"
            )
        families[family.name] = family
        origins[family.name] = origin
    return families


def add_backends(families: Mapping[str, Family], *, installed: "EntryPoints | None" = None) -> Mapping[str, Family]:
    """Return ``families`` with the backends that are installed for them beside their own. Tests give ``installed``.

    Raises FamilyUnavailableError for an entry point without a family, and for two backends of one name.
    """
    complete = dict(families)
    for point in _read_group(BACKENDS_GROUP, installed):
        name, _, backend = point.name.partition(".")
        described = f"backend {backend!r} ({point.value}) of the entry point {point.name!r}"
        if name not in complete:
            raise FamilyUnavailableError(f"{described}: {describe_unknown('family', name, complete)}")
        if not backend:
            raise FamilyUnavailableError(f"{described} has no name: write FAMILY.BACKEND")
        if other := complete[name].backends.get(backend):
            raise FamilyUnavailableError(
                f"{described} is installed twice: family {name!r} has {other}; uninstall one of the two"
            )
        complete[name] = replace(complete[name], backends={**complete[name].backends, backend: point.value})
    return complete


def list_backends(family: Family) -> list[str]:
    """Return the names of the backends that a family has in this installation."""
    return [name for name, where in family.backends.items() if not find_left_out(where)]


def find_left_out(where: str) -> str:
    """Return the package of Kerf that this installation lacks of a factory (``module:function``); empty if it has all.

    Whether a vendor's package is there, its import shows.
    """
    module = where.partition(":")[0]
    if not module.startswith(_OWN):
        return ""
    try:
        return "" if find_spec(module) else module
    except ModuleNotFoundError as error:  # of a package above the module
        return error.name if error.name and error.name.startswith(_OWN) else ""


@cache
def installed_families() -> Mapping[str, Family]:
    """Return all installed families by name, read once in the life of the process; raises as ``load_families`` does."""
    return load_families()


def _read_group(group: str, installed: "EntryPoints | None") -> "EntryPoints":
    from importlib.metadata import entry_points  # reads the metadata of all packages: a plugin of Kerf's never does

    return entry_points(group=group) if installed is None else installed.select(group=group)


def _load(point: "EntryPoint") -> Family:
    try:
        family = resolve_name(point.value)
    except (ImportError, AttributeError) as error:
        raise FamilyUnavailableError(f"family {point.name!r} ({point.value}) cannot be imported: {error}") from error
    if not isinstance(family, Family):
        raise FamilyUnavailableError(f"family {point.name!r} ({point.value}) is a {type(family).__name__}, no Family")
    return family
