"""The registry of families: Kerf's own, and the installed entry points of the group ``kerf.families``.

An entry point names a ``Family`` value (``kerf_dra.driver.families.base``) in a package of its own.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from kerf_dra.api.errors import PermanentError
from kerf_dra.driver.families.base import Family
from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.families.gpu_intel import GPU_INTEL
from kerf_dra.driver.families.shared import SHARED

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "kerf.families"
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


def load_families(*, installed: "Iterable[EntryPoint] | None" = None) -> Mapping[str, Family]:
    """Return all installed families by name, Kerf's own first. Tests give ``installed``.

    Raises FamilyUnavailableError for an entry point that cannot be imported or is no Family, and for two families of
    one name or one driver name; InvalidFamilyError for a family that contradicts itself.
    """
    from importlib.metadata import entry_points  # reads the metadata of all packages: daemons of one family never do

    points = entry_points(group=GROUP) if installed is None else installed
    families: dict[str, Family] = {}
    origins: dict[str, str] = {}
    for origin, family in (
        *(("Kerf", family) for family in BUILT_IN),
        *((point.value, _load(point)) for point in points),
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


@cache
def installed_families() -> Mapping[str, Family]:
    """Return all installed families by name, read once in the life of the process; raises as ``load_families`` does."""
    return load_families()


def _load(point: "EntryPoint") -> Family:
    try:
        family = resolve_name(point.value)
    except (ImportError, AttributeError) as error:
        raise FamilyUnavailableError(f"family {point.name!r} ({point.value}) cannot be imported: {error}") from error
    if not isinstance(family, Family):
        raise FamilyUnavailableError(f"family {point.name!r} ({point.value}) is a {type(family).__name__}, no Family")
    return family
