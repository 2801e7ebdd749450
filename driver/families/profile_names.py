"""The names that one MIG profile has in different releases of a driver. Pure.

A profile's name has its memory in whole GB, and releases round that differently: ``1g.35gb`` of a GB300 is ``1g.31gb``
in a later one. Of two profiles of one model with the same compute slices and suffix, one has twice the memory of the
other, so a name that is close to a profile of the table is another name of it. The table also has the other names that
are known (``Family.other_profile_names``), for cards that no node has published yet.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from kerf_dra.driver.families.base import Family

_FORM: Final = re.compile(r"([0-9]+)g\.([0-9]+)gb(.*)")
_ROUNDING: Final = 1.25
"""The ratio of two sizes up to which they are one size, rounded: the largest known is 1.13 (1g.35gb and 1g.31gb), and
the sizes of two profiles of one model differ by 2."""

ModelProfile = tuple[str, str]
"""A model, and the name of a profile of it."""


def find_profile_names(
    family: Family, profile: str, published: Iterable[ModelProfile], models: Collection[str] = ()
) -> tuple[str, ...]:
    """Return all names of a profile: ``profile`` first, then the others of the table and of ``published`` ones.

    ``models`` are those that may have it; empty: all. A profile that no model has keeps its one name.

    >>> from kerf_dra.driver.families.gpu import GPU
    >>> find_profile_names(GPU, "3g.139gb", ())
    ('3g.139gb', '3g.126gb')
    >>> find_profile_names(GPU, "1g.10gb", ())
    ('1g.10gb',)
    """
    by_model: dict[str, set[str]] = {}
    for model, name in published:
        by_model.setdefault(model, set()).add(name)
    found: set[str] = set()
    for model, name, others in _list_profiles(family):
        if not models or model in models:
            names = {name, *others, *(each for each in by_model.get(model, ()) if _is_rounding_of(each, name))}
            found |= names if profile in names else set()
    return (profile, *sorted(found - {profile}))


def describe_other_names(family: Family, models: Collection[str] = ()) -> Mapping[str, Sequence[str]]:
    """Return the other names of each profile of the table that has some, of ``models``; empty: of all."""
    return {
        name: others for model, name, others in _list_profiles(family) if others and (not models or model in models)
    }


def describe_both_names(advice: str, others: Mapping[str, Sequence[str]]) -> str:
    """Return which of the profiles that ``advice`` quotes have another name, as a clause; empty: none.

    >>> describe_both_names('did you mean "1g.31gb"?', {"1g.35gb": ("1g.31gb",), "1g.10gb": ()})
    ' (1g.35gb is 1g.31gb in another release of the driver)'
    """
    both = [
        f"{name} is {' or '.join(names)} in another release of the driver"
        for name, names in others.items()
        if any(f'"{each}"' in advice for each in (name, *names))
    ]
    return f" ({'; '.join(both)})" if both else ""


def _list_profiles(family: Family) -> Iterator[tuple[str, str, Sequence[str]]]:
    """Yield each profile of the table with its model and its other names."""
    others = family.other_profile_names()
    for geometry in family.geometries():
        for name in {spec.profile for spec in geometry.specs if spec.profile}:
            yield geometry.model, name, others.get((geometry.model, name), ())


def _is_rounding_of(one: str, other: str) -> bool:
    """Whether two names of profiles of one model may be of the same one.

    >>> _is_rounding_of("1g.31gb+me", "1g.35gb+me"), _is_rounding_of("1g.31gb", "1g.70gb")
    (True, False)
    """
    if one == other:
        return True
    match, known = _FORM.fullmatch(one), _FORM.fullmatch(other)
    if match is None or known is None or (match[1], match[3]) != (known[1], known[3]):
        return False
    small, large = sorted((int(match[2]), int(known[2])))
    return large <= small * _ROUNDING
