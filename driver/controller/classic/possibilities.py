"""Refuses what no known hardware can be, with the field to blame and what there is instead. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final, TypeAlias

from api.errors import InvalidDocumentError, Problem
from api.kerf.validation import suggest
from driver.controller.classic.placement import matching
from driver.controller.classic.requirements import Ask
from driver.partitions import catalog
from driver.partitions.catalog import UnknownModelError
from driver.partitions.geometry import DeviceKind, GpuModel, Shell
from driver.partitions.smallest_fit import largest, shortfalls
from driver.partitions.unit_map import grid_of_geometry

Geometry: TypeAlias = GpuModel | Shell

_SUGGESTIONS: Final = 3
"""Close names in a message: profiles of one kind differ in a digit between models."""


@lru_cache(maxsize=1024)  # sets of wants in a cluster
def possible(ask: Ask, published: frozenset[Geometry]) -> Ask:
    """``ask`` with its models as cards spell them.

    ``published`` is what nodes have beside the shipped tables. Raises InvalidDocumentError.
    """
    known = _known(ask.kind, published)
    resolved = replace(ask, models=tuple(_resolve(ask.kind, models=ask.models, known=known)))
    if not any(matching(grid_of_geometry(geometry), name, resolved) for name, geometry in known.items()):
        raise InvalidDocumentError("claim parameters", [_blame(resolved, known)])
    return resolved


def _known(kind: DeviceKind, published: frozenset[Geometry]) -> Mapping[str, Geometry]:
    shipped: Iterable[Geometry] = catalog.gpu_models() if kind is DeviceKind.GPU else catalog.shells()
    of_kind = (one for one in published if isinstance(one, GpuModel) == (kind is DeviceKind.GPU))
    return {_name(geometry): geometry for geometry in (*shipped, *of_kind)}


def _name(geometry: Geometry) -> str:
    return geometry.id if isinstance(geometry, GpuModel) else geometry.name


def _resolve(kind: DeviceKind, *, models: Iterable[str], known: Mapping[str, Geometry]) -> Iterable[str]:
    problems = []
    for index, name in enumerate(models):
        try:
            is_gpu = kind is DeviceKind.GPU
            yield name if name in known else catalog.gpu_model(name).id if is_gpu else catalog.shell(name).name
        except UnknownModelError as error:
            problems.append(Problem(f"spec.models[{index}]", str(error)))
    if problems:
        raise InvalidDocumentError("parameters", problems)


def _blame(ask: Ask, known: Mapping[str, Geometry]) -> Problem:
    """The field that cannot be met, and why."""
    chosen = [known[name] for name in ask.models] or list(known.values())
    where = f"of {ask.models[0]}" if len(ask.models) == 1 else "of any model that is asked for"
    for field, wanted, names in (
        ("profile", ask.profile, {p.name for one in chosen if isinstance(one, GpuModel) for p in one.profiles}),
        ("function", ask.function, {f.name for one in chosen if isinstance(one, Shell) for f in one.functions}),
    ):
        if wanted is not None:
            hint = suggest(wanted, names, _SUGGESTIONS)
            return Problem(f"spec.{field}", f'"{wanted}" is no {field} {where}; {hint}')
    short = [
        f"at most {shortfall.largest} {shortfall.name}"
        for one in chosen
        for shortfall in shortfalls(largest(one), ask.minimum)
    ]
    return Problem("spec.minimum", f"no partition {where} is so large: {'; '.join(dict.fromkeys(short))}")
