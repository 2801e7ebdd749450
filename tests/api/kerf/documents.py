"""Documents for tests: valid ones, and ones with something wrong, drawn from the structs' own type information."""

import copy
from typing import Any, Final

from hypothesis import strategies as st
from msgspec import inspect

from api.kerf.v1alpha1 import FpgaConfig, GpuConfig, ResourceClassSpec
from api.model.quantity import Quantity

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


def documents(type_: Any) -> st.SearchStrategy[Any]:
    """JSON that has the shape of ``type_``, whatever the rules between its fields say."""
    return _of(inspect.type_info(type_))


def class_specs() -> st.SearchStrategy[dict[str, Any]]:
    return documents(ResourceClassSpec)


def device_configs() -> st.SearchStrategy[dict[str, Any]]:
    return documents(GpuConfig | FpgaConfig)


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[Any]) -> Any:
    """A document with up to three things replaced, removed or added somewhere."""
    document = copy.deepcopy(draw(whole))
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(document))
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
    """The document as the API server takes it: a field that is null is not there."""
    if isinstance(document, dict):
        return {name: without_nulls(held) for name, held in document.items() if held is not None}
    return [without_nulls(item) for item in document] if isinstance(document, list) else document


def _places(document: Any) -> Any:
    if isinstance(document, dict | list):
        for key, held in document.items() if isinstance(document, dict) else enumerate(document):
            yield document, key
            yield from _places(held)


def _of(node: inspect.Type) -> st.SearchStrategy[Any]:
    match node:
        case inspect.Metadata(type=inner):
            return _of(inner)
        case inspect.StructType():
            fields = {field.encode_name: _of(field.type) for field in node.fields}
            required = {name for field in node.fields if field.required for name in [field.encode_name]}
            tag = {node.tag_field: st.just(node.tag)} if node.tag_field else {}
            return st.fixed_dictionaries(
                {name: fields[name] for name in fields if name in required} | tag,
                optional={name: fields[name] for name in fields if name not in required},
            )
        case inspect.UnionType(types=types):
            return st.one_of(*(_of(member) for member in types if not isinstance(member, inspect.NoneType)))
        case inspect.VarTupleType(item_type=item):
            return st.lists(_of(item), max_size=2)
        case inspect.DictType(key_type=key, value_type=value):
            return st.dictionaries(_of(key), _of(value), max_size=2)
        case inspect.LiteralType(values=values):
            return st.sampled_from(values)
        case inspect.StrType(pattern=str(pattern), max_length=limit):
            return st.from_regex(pattern, fullmatch=True).filter(lambda text: len(text) <= (limit or len(text)))
        case inspect.IntType(ge=least, le=most):
            return st.integers(least if least is not None else -(2**31), most if most is not None else 2**31)
        case inspect.BoolType():
            return st.booleans()
        case inspect.CustomType() if node.cls is Quantity:
            return st.sampled_from(QUANTITY_TEXTS)
    raise TypeError(node)
