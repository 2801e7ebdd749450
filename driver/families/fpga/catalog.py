"""The FPGA shells that Kerf ships, from the tables in ``data``."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from driver.families.base import EVERY, Estimate, ModelFigures
from driver.families.fpga.shell import Function, Logic, Shell
from driver.families.model_names import find_model
from driver.partitions.geometry import Placement

_DATA: Final = Path(__file__).with_name("data")


def shells() -> tuple[Shell, ...]:
    """Every known FPGA shell, by name."""
    return tuple(_shells().values())


def shell(name: str) -> Shell:
    """The shell named ``name``, or the only one whose name begins with it; letter case does not matter.

    Raises UnknownModelError when no shell matches, or several do.
    """
    return find_model("FPGA shell", name, _shells(), {})


def shell_figures() -> Mapping[str, ModelFigures]:
    """Where the figures of each shell come from, by its name: none is of a product."""
    return {
        table.name: ModelFigures(estimated=(Estimate(part=EVERY, figure=EVERY, how=table.about),))
        for table in _tables()
    }


class _Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An object of the tables: an unknown field is an error when the tables are first read."""


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
def _tables() -> tuple[_ShellTable, ...]:
    files = sorted((file for file in _DATA.iterdir() if file.name.endswith(".json")), key=lambda f: f.name)
    return tuple(msgspec.json.decode(file.read_bytes(), type=_ShellTable) for file in files)


@cache
def _shells() -> dict[str, Shell]:
    return {table.name: _shell(table) for table in _tables()}


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
