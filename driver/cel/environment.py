"""The CEL environment of Kubernetes for device expressions (``k8s.io/dynamic-resource-allocation/cel``)."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Final

from kerf_dra.driver.cel.attribute_references import LOOKUP_VARIABLES
from kerf_dra.driver.cel.engine import QUANTITY, Engine, load_engine, load_messages
from kerf_dra.driver.cel.library import FUNCTIONS, TYPED_FUNCTIONS, FunctionOverload

_EXTENSIONS: Final = """
extensions:
  - {name: bindings, version: 0}
  - {name: cel.lib.ext.comprev2}
  - {name: lists, version: 2}
  - {name: optional}
  - {name: sets}
  - {name: strings, version: 2}
"""
"""The extensions of ``k8s.io/apiserver/pkg/cel/environment`` (base.go), in the engine's configuration format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The optional parts of the environment that are declared, by feature gate.

    The API server checks a new object in the dialect of its gates; stored expressions are evaluated with all parts.
    """

    consumable_capacity: bool
    list_type_attributes: bool


STORED: Final = Dialect(consumable_capacity=True, list_type_attributes=True)


@cache
def get_environment(dialect: Dialect) -> Engine:
    """The environment in which expressions are compiled and run."""
    return _environment(dialect, FUNCTIONS)


@cache
def get_typed_environment(dialect: Dialect) -> Engine:
    """The environment with ``TYPED_FUNCTIONS``, whose programs have exact types, but cannot run."""
    names = {row.name for row in TYPED_FUNCTIONS}
    return _environment(dialect, (*(row for row in FUNCTIONS if row.name not in names), *TYPED_FUNCTIONS))


def _environment(dialect: Dialect, functions: Iterable[FunctionOverload]) -> Engine:
    cel = load_engine()
    types = cel.Type
    attributes = types.Map(types.STRING, types.Map(types.STRING, types.DYN))
    capacity = types.Map(types.STRING, types.Map(types.STRING, types(QUANTITY)))
    variables = {
        "device.driver": types.STRING,
        "device.attributes": attributes,
        "device.capacity": capacity,
        LOOKUP_VARIABLES["attributes"]: attributes,
        LOOKUP_VARIABLES["capacity"]: capacity,
    }
    if dialect.consumable_capacity:
        variables["device.allowMultipleAllocations"] = types.BOOL
    rows = (row for row in functions if dialect.list_type_attributes or row.name != "includes")
    return cel.NewEnv(
        descriptor_pool=load_messages().pool,
        config=cel.NewEnvConfigFromYaml(_EXTENSIONS),
        variables=variables,
        functions=_declare(rows),
    )


def _declare(rows: Iterable[FunctionOverload]) -> list[Engine]:
    cel = load_engine()
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
