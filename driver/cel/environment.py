"""The CEL environment that Kubernetes gives to device expressions (``k8s.io/dynamic-resource-allocation/cel``)."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Final

from driver.cel.attribute_references import FILLED
from driver.cel.engine import QUANTITY, Engine, engine, messages
from driver.cel.library import FUNCTIONS, TYPED, Function

_EXTENSIONS: Final = """
extensions:
  - {name: bindings, version: 0}
  - {name: cel.lib.ext.comprev2}
  - {name: lists, version: 2}
  - {name: optional}
  - {name: sets}
  - {name: strings, version: 2}
"""
"""As in ``k8s.io/apiserver/pkg/cel/environment`` (base.go), in the spelling of the engine's configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """Which optional parts of the environment are declared, by feature gate.

    The API server checks a new object in the dialect of its gates; stored expressions are evaluated with all parts.
    """

    consumable_capacity: bool
    list_type_attributes: bool


STORED: Final = Dialect(consumable_capacity=True, list_type_attributes=True)


@cache
def environment(dialect: Dialect) -> Engine:
    """The environment to compile expressions in."""
    return _environment(dialect, FUNCTIONS)


@cache
def typed_environment(dialect: Dialect) -> Engine:
    """The same, with the types of ``TYPED``: what is compiled here can be looked at, but not run."""
    names = {row.name for row in TYPED}
    return _environment(dialect, (*(row for row in FUNCTIONS if row.name not in names), *TYPED))


def _environment(dialect: Dialect, functions: Iterable[Function]) -> Engine:
    cel = engine()
    types = cel.Type
    attributes = types.Map(types.STRING, types.Map(types.STRING, types.DYN))
    capacity = types.Map(types.STRING, types.Map(types.STRING, types(QUANTITY)))
    variables = {
        "device.driver": types.STRING,
        "device.attributes": attributes,
        "device.capacity": capacity,
        FILLED["attributes"]: attributes,
        FILLED["capacity"]: capacity,
    }
    if dialect.consumable_capacity:
        variables["device.allowMultipleAllocations"] = types.BOOL
    rows = (row for row in functions if dialect.list_type_attributes or row.name != "includes")
    return cel.NewEnv(
        descriptor_pool=messages().pool,
        config=cel.NewEnvConfigFromYaml(_EXTENSIONS),
        variables=variables,
        functions=_declared(rows),
    )


def _declared(rows: Iterable[Function]) -> list[Engine]:
    cel = engine()
    overloads: dict[str, list[Engine]] = {}
    for row in rows:
        overload = cel.Overload(
            id=f"{row.name}_{len(overloads.get(row.name, ()))}",
            signature=row.signature,
            return_type=cel.Type(row.returns),
            **({} if row.run is None else {"impl": row.run}),
        )
        overloads.setdefault(row.name, []).append(overload)
    return [cel.FunctionDecl(name, list_) for name, list_ in overloads.items()]
