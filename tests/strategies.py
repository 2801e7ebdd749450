"""Hypothesis strategies for model values, derived from the type information of the structs."""

from typing import Any, Final, TypeVar

import msgspec
from hypothesis import strategies as st

from kerf_dra.api.model.quantity import Quantity

T = TypeVar("T")

_MADE: Final[dict[type[Any], st.SearchStrategy[Any]]] = {}
"""Strategies by their structs: making one takes longer than drawing from it."""

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
JSON_OBJECTS: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    TEXT,
    st.recursive(st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT, st.lists, max_leaves=4),
    max_size=3,
)
QUANTITIES = st.builds(
    Quantity.of_nano, st.integers(-(10**30), 10**30), st.sampled_from(["decimal", "binary", "exponent"])
)


def values(type_: type[T]) -> st.SearchStrategy[T]:
    """Return a strategy for the struct ``type_``, with every field drawn by its type or left at its default."""
    if type_ not in _MADE:
        _MADE[type_] = _of(msgspec.inspect.type_info(type_))
    return _MADE[type_]


def _of(info: msgspec.inspect.Type) -> st.SearchStrategy[Any]:
    match info:
        case msgspec.inspect.StructType():
            return st.fixed_dictionaries(
                {field.name: _of(field.type) for field in info.fields if field.required},
                optional={field.name: _of(field.type) for field in info.fields if not field.required},
            ).map(lambda fields: info.cls(**fields))
        case msgspec.inspect.UnionType():
            return st.one_of(*map(_of, info.types))
        case msgspec.inspect.VarTupleType():
            return st.lists(_of(info.item_type), max_size=2).map(tuple)
        case msgspec.inspect.DictType():
            if isinstance(info.value_type, msgspec.inspect.AnyType):
                return JSON_OBJECTS
            return st.dictionaries(TEXT, _of(info.value_type), max_size=2)
        case msgspec.inspect.LiteralType():
            return st.sampled_from(info.values)
        case msgspec.inspect.CustomType(cls=cls) if cls is Quantity:
            return QUANTITIES
        case msgspec.inspect.IntType():
            return st.integers(
                info.ge if info.ge is not None else -(2**63), info.le if info.le is not None else 2**63 - 1
            )
    return {
        msgspec.inspect.StrType: TEXT,
        msgspec.inspect.BoolType: st.booleans(),
        msgspec.inspect.NoneType: st.none(),
    }[type(info)]
