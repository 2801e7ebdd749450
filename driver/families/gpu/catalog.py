"""The GPU models that Kerf ships, from the table ``data/mig.json``.

A backend that can query the hardware replaces the values of this table with those that the hardware reports.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

from kerf_dra.api.errors import InvalidDocumentError, Problem
from kerf_dra.driver.families.base import EVERY, WHOLE, Estimate, ModelFigures
from kerf_dra.driver.families.gpu.model import Engines, GpuModel, Profile
from kerf_dra.driver.families.model_names import find_model
from kerf_dra.driver.partitions.geometry import Placement

_DATA: Final = Path(__file__).with_name("data")
_TABLE: Final = "mig.json"
_MIB: Final = 2**20
_FIGURES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "memory_mib": "memory",
        "multiprocessors": "multiprocessors",
        "engines": "engines",
        "engines.copy": "copy engines",
        "engines.decoders": "decoders",
        "engines.encoders": "encoders",
        "engines.jpeg": "JPEG engines",
        "engines.ofa": "optical flow accelerators",
    }
)
"""The table's names of figures, in words."""


def gpu_models() -> tuple[GpuModel, ...]:
    """Every known GPU model, in the order of the table: by architecture, then by size."""
    return tuple(_gpu_models().values())


def gpu_model(name: str) -> GpuModel:
    """The model with the id or alias ``name``, or the only one whose id begins with it; letter case does not matter.

    Raises UnknownModelError when no model matches, or several do.

    >>> gpu_model("H100-80GB").id
    'h100-80gb-sxm'
    """
    return find_model("GPU model", name, _gpu_models(), _aliases())


def gpu_profile_names() -> Mapping[tuple[str, str], tuple[str, ...]]:
    """The other names of profiles, by model and profile."""
    return {
        (model.id, profile.name): profile.other_names
        for model in gpu_models()
        for profile in model.profiles
        if profile.other_names
    }


def gpu_figures() -> Mapping[str, ModelFigures]:
    """Where the figures of each model come from, by its id."""
    table = _mig_table()
    return {
        row.id: ModelFigures(
            sources=(*row.sources, f"placements: {table.grids[row.grid].source}"),
            estimated=tuple(_estimates(row, table)),
        )
        for row in table.models
    }


def _estimates(row: "_Model", table: "_MigTable") -> Iterator[Estimate]:
    sibling = f" (sibling: {row.sibling})" if row.sibling else ""
    if rule := row.estimated.get("grid") or table.grids[row.grid].estimated:
        yield Estimate(part=EVERY, figure="placements", how=table.rules[rule])
    parts = {amounts.name: amounts.estimated for amounts in row.profiles.values()} | {WHOLE: row.whole.estimated}
    for part, estimated in parts.items():
        for figure, rule in estimated.items():
            how = table.rules[rule]
            yield Estimate(part=part, figure=_FIGURES[figure], how=f"{how}{sibling if 'sibling' in how else ''}")


class _Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An object of the tables: an unknown field is an error when the tables are first read."""


class _ProfileGeometry(_Row, frozen=True, kw_only=True):
    gi_profile_id: int | None
    gi_profile_enum: int
    compute_slices: int
    starts: tuple[int, ...]
    size: int
    max_instances: int


class _ModelGeometry(_Row, frozen=True, kw_only=True):
    compute_slices: int
    memory_slices: int
    source: str
    cuts: dict[str, _ProfileGeometry]
    estimated: str = ""


class _Engines(_Row, frozen=True, kw_only=True):
    copy: int = 0
    decoders: int = 0
    encoders: int = 0
    jpeg: int = 0
    ofa: int = 0


class _Amounts(_Row, frozen=True, kw_only=True):
    memory_mib: int
    multiprocessors: int
    engines: _Engines
    estimated: dict[str, str] = {}
    name: str = ""
    other_names: tuple[str, ...] = ()


class _Model(_Row, frozen=True, kw_only=True):
    id: str
    aliases: tuple[str, ...]
    product: str
    architecture: str
    cuda_compute_capability: str
    pci_device_ids: tuple[str, ...]
    nominal_gb: int
    grid: str
    exclusive_engines: tuple[str, ...]
    sources: tuple[str, ...]
    whole: _Amounts
    profiles: dict[str, _Amounts]
    other_products: tuple[str, ...] = ()
    sibling: str = ""
    estimated: dict[str, str] = {}


class _MigTable(_Row, frozen=True, kw_only=True):
    schema: int
    about: tuple[str, ...]
    rules: dict[str, str]
    grids: dict[str, _ModelGeometry]
    models: tuple[_Model, ...]


def check_table(content: bytes) -> _MigTable:
    """Decode the table of models and check what its rows refer to.

    Raises InvalidDocumentError, which names each row, field and name that is not in the table.
    """
    try:
        table = msgspec.json.decode(content, type=_MigTable)
    except msgspec.DecodeError as error:  # its message has the path of the field
        raise InvalidDocumentError(_TABLE, [Problem("", str(error))]) from error
    if problems := [problem for row in table.models for problem in _find_problems(row, table)]:
        raise InvalidDocumentError(_TABLE, problems)
    return table


def _find_problems(row: _Model, table: _MigTable) -> Iterator[Problem]:
    """Find the names in a row that the table does not have: of grids, cuts, rules, figures and models."""
    if row.grid not in table.grids:
        yield Problem(f"{row.id}.grid", f'"{row.grid}" is not in grids; there are {", ".join(table.grids)}')
        return
    cuts = table.grids[row.grid].cuts
    for cut in row.profiles.keys() - cuts.keys():
        yield Problem(f"{row.id}.profiles", f'"{cut}" is no cut of the grid {row.grid}; there are {", ".join(cuts)}')
    if row.sibling and row.sibling not in {other.id for other in table.models}:
        yield Problem(f"{row.id}.sibling", f'"{row.sibling}" is no model of the table')
    if unknown := row.estimated.keys() - {"grid"}:
        yield Problem(f"{row.id}.estimated", f'only "grid" can be estimated here, not {", ".join(sorted(unknown))}')
    parts = {f"profiles.{cut}": amounts for cut, amounts in row.profiles.items()} | {"whole": row.whole}
    estimates = {f"{part}.estimated": amounts.estimated for part, amounts in parts.items()}
    for path, estimated in (estimates | {"estimated": row.estimated}).items():
        for figure, rule in estimated.items():
            if path != "estimated" and figure not in _FIGURES:
                message = f'"{figure}" is no figure; there are {", ".join(_FIGURES)}'
                yield Problem(f"{row.id}.{path}", message)
            if rule not in table.rules:
                message = f'the rule "{rule}" is not in rules: choose one of {", ".join(table.rules)}, or add it there'
                yield Problem(f"{row.id}.{path}.{figure}", message)
            elif "the sibling" in table.rules[rule] and not row.sibling:
                yield Problem(f"{row.id}.sibling", f'is empty, but the rule "{rule}" of {path}.{figure} needs a model')


@cache
def _mig_table() -> _MigTable:
    return check_table((_DATA / _TABLE).read_bytes())


@cache
def _gpu_models() -> dict[str, GpuModel]:
    table = _mig_table()
    return {row.id: _model(row, table.grids[row.grid]) for row in table.models}


@cache
def _aliases() -> dict[str, str]:
    return {alias: row.id for row in _mig_table().models for alias in row.aliases}


def _model(row: _Model, geometry: _ModelGeometry) -> GpuModel:
    profiles = [_profile(amounts, geometry.cuts[cut]) for cut, amounts in row.profiles.items()]
    return GpuModel(
        id=row.id,
        product=row.product,
        other_products=row.other_products,
        architecture=row.architecture,
        cuda_compute_capability=row.cuda_compute_capability,
        pci_device_ids=row.pci_device_ids,
        memory_bytes=row.whole.memory_mib * _MIB,
        compute_slices=geometry.compute_slices,
        memory_slices=geometry.memory_slices,
        multiprocessors=row.whole.multiprocessors,
        engines=_engines(row.whole.engines),
        exclusive_engines=row.exclusive_engines,
        profiles=tuple(sorted(profiles, key=lambda profile: (profile.placements[0].size, profile.compute_slices))),
    )


def _profile(amounts: _Amounts, geometry: _ProfileGeometry) -> Profile:
    return Profile(
        name=amounts.name,
        gi_profile_id=geometry.gi_profile_id,
        gi_profile_enum=geometry.gi_profile_enum,
        compute_slices=geometry.compute_slices,
        memory_bytes=amounts.memory_mib * _MIB,
        multiprocessors=amounts.multiprocessors,
        engines=_engines(amounts.engines),
        placements=tuple(Placement(start, geometry.size) for start in geometry.starts),
        max_instances=geometry.max_instances,
        other_names=amounts.other_names,
    )


def _engines(row: _Engines) -> Engines:
    return Engines(copy=row.copy, decoders=row.decoders, encoders=row.encoders, jpeg=row.jpeg, ofa=row.ofa)
