"""Hypothesis strategies for valid and damaged documents of kerf.dev, derived from the struct types."""

import copy
from typing import Any, Final

from hypothesis import strategies as st
from msgspec import inspect

from kerf_dra.api.kerf.scalar_types import DNS_LABEL, IDENTIFIER
from kerf_dra.api.kerf.v1alpha1 import FpgaConfig, GpuConfig, ResourceClassSpec
from kerf_dra.api.model.quantity import Quantity

DEVICES: Final = ("gpu", "fpga", "npu")
"""Kerf's own families, and one that is not installed."""
CAPACITIES: Final = ("memory", "computeSlices", "slots", "lut", "dsp", "cores")
QUANTITY_TEXTS: Final = ("18Gi", "5000Mi", "1.5Gi", "20G", "1e9", 1073741824)
JUNK: Final[tuple[Any, ...]] = (
    None,
    True,
    -1,
    0,
    3,
    1.5,
    "",
    "x y",
    "18Gx",
    "ok\n",
    [],
    ["a"],
    {},
    {"a": 1},
    "Exists",
    "GpuConfig",
)
_WORDS: Final = {
    DNS_LABEL: DEVICES,
    IDENTIFIER: CAPACITIES,
}


def documents(type_: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for JSON of the shape of ``type_``, which may break cross-field rules."""
    return _strategy_for(inspect.type_info(type_))


def class_specs() -> st.SearchStrategy[dict[str, Any]]:
    return documents(ResourceClassSpec)


def device_configs() -> st.SearchStrategy[dict[str, Any]]:
    return documents(GpuConfig | FpgaConfig)


@st.composite
def damaged_documents(draw: st.DrawFn, whole: st.SearchStrategy[Any]) -> Any:
    """Draw a document with up to three values replaced, removed or under a misspelled key."""
    document = copy.deepcopy(draw(whole))
    for _ in range(draw(st.integers(1, 3))):
        places = list(_positions(document))
        if not places:
            break
        holder, key = draw(st.sampled_from(places))
        match draw(st.sampled_from(["replace", "remove", "misspell"])):
            case "replace":
                holder[key] = copy.deepcopy(draw(st.sampled_from(JUNK)))
            case "remove":
                del holder[key]
            case "misspell" if isinstance(holder, dict):
                holder[f"{key}x"] = holder.pop(key)
    return document


def without_nulls(document: Any) -> Any:
    """Return the document as Kerf reads it: without fields that are null, but with those of parameters."""
    if isinstance(document, dict):
        return {
            name: held if name == "config" else without_nulls(held)
            for name, held in document.items()
            if held is not None
        }
    return [without_nulls(item) for item in document] if isinstance(document, list) else document


def _positions(document: Any) -> Any:
    if isinstance(document, dict | list):
        for key, held in document.items() if isinstance(document, dict) else enumerate(document):
            yield document, key
            yield from _positions(held)


def _words(pattern: str, limit: int | None) -> st.SearchStrategy[str]:
    if pattern in _WORDS:  # what the pattern allows is hardly ever a name that is known
        return st.sampled_from(_WORDS[pattern])
    return st.from_regex(pattern, fullmatch=True).filter(lambda text: len(text) <= (limit or len(text)))


def _strategy_for(node: inspect.Type) -> st.SearchStrategy[Any]:
    match node:
        case inspect.Metadata(type=inner):
            return _strategy_for(inner)
        case inspect.StructType():
            fields = {field.encode_name: _strategy_for(field.type) for field in node.fields}
            required = {name for field in node.fields if field.required for name in [field.encode_name]}
            tag = {node.tag_field: st.just(node.tag)} if node.tag_field else {}
            return st.fixed_dictionaries(
                {name: fields[name] for name in fields if name in required} | tag,
                optional={name: fields[name] for name in fields if name not in required},
            )
        case inspect.UnionType(types=types):
            return st.one_of(*(_strategy_for(member) for member in types if not isinstance(member, inspect.NoneType)))
        case inspect.VarTupleType(item_type=item):
            return st.lists(_strategy_for(item), max_size=2)
        case inspect.DictType(value_type=inspect.AnyType()):
            return device_configs()
        case inspect.DictType(key_type=key, value_type=value, min_length=least):
            return st.dictionaries(_strategy_for(key), _strategy_for(value), min_size=least or 0, max_size=2)
        case inspect.LiteralType(values=values):
            return st.sampled_from(values)
        case inspect.StrType(pattern=str(pattern), max_length=limit):
            return _words(pattern, limit)
        case inspect.IntType(ge=least, le=most):
            return st.integers(least if least is not None else -(2**31), most if most is not None else 2**31)
        case inspect.BoolType():
            return st.booleans()
        case inspect.CustomType() if node.cls is Quantity:
            return st.sampled_from(QUANTITY_TEXTS)
    raise TypeError(f"{node}: no documents can be made; a string needs a type of api/kerf/scalar_types.py")
