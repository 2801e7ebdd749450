"""The geometries that Kerf ships: GPU models and FPGA shells, from the tables in ``data``.

A backend that can query the hardware replaces the values of these tables with those that the hardware reports.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Final, TypeVar

import msgspec

from api.errors import PermanentError
from driver.partitions.geometry import Engines, Function, GpuModel, Logic, Placement, Profile, Shell

_DATA: Final = resources.files("driver.partitions") / "data"
_MIB: Final = 2**20
_SUGGESTIONS: Final = 4
"""The number of similar names in an error: enough for the variants of a model, few enough to read."""

GeometryT = TypeVar("GeometryT", GpuModel, Shell)


class UnknownModelError(PermanentError):
    """No GPU model or FPGA shell has this name, or several do. ``close`` holds similar names."""

    def __init__(self, kind: str, name: str, close: Iterable[str]) -> None:
        self.kind = kind
        self.name = name
        self.close = tuple(close)
        advice = f"did you mean {', '.join(self.close)}?" if self.close else "`kerf models` lists what is known"
        super().__init__(f"there is no {kind} {name!r}: {advice}")


def gpu_models() -> tuple[GpuModel, ...]:
    """Every known GPU model, in the order of the table: by architecture, then by size."""
    return tuple(_gpu_models().values())


def gpu_model(name: str) -> GpuModel:
    """The model with the id or alias ``name``, or the only one whose id begins with it; letter case does not matter.

    Raises UnknownModelError when no model matches, or several do.

    >>> gpu_model("H100-80GB").id
    'h100-80gb-sxm'
    """
    return _find("GPU model", name, _gpu_models(), _aliases())


def shells() -> tuple[Shell, ...]:
    """Every known FPGA shell, by name."""
    return tuple(_shells().values())


def shell(name: str) -> Shell:
    """The shell named ``name``, or the only one whose name begins with it; letter case does not matter.

    Raises UnknownModelError when no shell matches, or several do.
    """
    return _find("FPGA shell", name, _shells(), {})


def _find(kind: str, name: str, known: Mapping[str, GeometryT], aliases: Mapping[str, str]) -> GeometryT:
    wanted = name.strip().lower()
    found = known.get(aliases.get(wanted, wanted))
    if found is not None:
        return found
    beginning = [id_ for id_ in known if wanted and id_.startswith(wanted)]
    if len(beginning) == 1:
        return known[beginning[0]]
    import difflib  # only after a misspelled name: daemons never need it

    close = beginning or difflib.get_close_matches(wanted, known, n=_SUGGESTIONS)
    raise UnknownModelError(kind, name, close)


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


class _Model(_Row, frozen=True, kw_only=True):
    id: str
    aliases: tuple[str, ...]
    product: str
    architecture: str
    pci_device_ids: tuple[str, ...]
    nominal_gb: int
    grid: str
    exclusive_engines: tuple[str, ...]
    sources: tuple[str, ...]
    whole: _Amounts
    profiles: dict[str, _Amounts]
    sibling: str = ""
    estimated: dict[str, str] = {}


class _MigTable(_Row, frozen=True, kw_only=True):
    schema: int
    about: tuple[str, ...]
    rules: dict[str, str]
    grids: dict[str, _ModelGeometry]
    models: tuple[_Model, ...]


class _Function(_Row, frozen=True, kw_only=True):
    name: str
    version: str
    afu_id: str
    load_s: float
    placements: tuple[tuple[int, int], ...]


class _ShellTable(_Row, frozen=True, kw_only=True):
    schema: int
    about: str
    name: str
    uuid: str
    family: str
    slots: tuple[dict[str, int], ...]
    functions: tuple[_Function, ...]


@cache
def _mig_table() -> _MigTable:
    return msgspec.json.decode((_DATA / "mig.json").read_bytes(), type=_MigTable)


@cache
def _gpu_models() -> dict[str, GpuModel]:
    table = _mig_table()
    return {row.id: _model(row, table.grids[row.grid]) for row in table.models}


@cache
def _aliases() -> dict[str, str]:
    return {alias: row.id for row in _mig_table().models for alias in row.aliases}


@cache
def _shells() -> dict[str, Shell]:
    files = sorted((file for file in (_DATA / "fpga").iterdir() if file.name.endswith(".json")), key=lambda f: f.name)
    tables = [msgspec.json.decode(file.read_bytes(), type=_ShellTable) for file in files]
    return {table.name: _shell(table) for table in tables}


def _model(row: _Model, geometry: _ModelGeometry) -> GpuModel:
    profiles = [_profile(amounts, geometry.cuts[cut]) for cut, amounts in row.profiles.items()]
    return GpuModel(
        id=row.id,
        product=row.product,
        architecture=row.architecture,
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
    )


def _engines(row: _Engines) -> Engines:
    return Engines(copy=row.copy, decoders=row.decoders, encoders=row.encoders, jpeg=row.jpeg, ofa=row.ofa)


def _shell(table: _ShellTable) -> Shell:
    return Shell(
        name=table.name,
        uuid=table.uuid,
        family=table.family,
        slots=tuple(Logic(**slot) for slot in table.slots),
        functions=tuple(
            Function(
                name=row.name,
                version=row.version,
                afu_id=row.afu_id,
                placements=tuple(Placement(*placement) for placement in row.placements),
                load_s=row.load_s,
            )
            for row in table.functions
        ),
    )
