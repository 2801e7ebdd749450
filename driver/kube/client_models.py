"""Problems that the official client's models find in documents of core kinds: every field is known to them."""

import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kerf_dra.api.errors import Problem, UnsupportedError
from kerf_dra.api.kerf.validation import show_name, suggest
from kerf_dra.api.model.base import JsonObject

_QUANTITY_MAPS: Final = frozenset({"limits", "requests", "overhead", "capacity"})
"""Maps of quantities, in which a bare number is allowed; the client's models require strings."""
_QUANTITIES: Final = frozenset({"sizeLimit", "divisor"})
"""Fields that are a quantity."""


def find_model_problems(body: JsonObject, name: str) -> Iterator[Problem]:
    """Yield every problem that the client's model ``name`` has with a document.

    Raises UnsupportedError where the client is not installed.
    """
    try:
        import kubernetes.client
        from pydantic import ValidationError
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            "manifests of core kinds are checked with the Python package kubernetes, which Kerf's image does not "
            "have: run the demo where Kerf is installed with pip"
        ) from error
    model = getattr(kubernetes.client, name)
    try:
        model.model_validate(body)
    except ValidationError as error:
        for found in error.errors():
            if not _is_number_as_quantity(found):
                yield Problem(_path(found["loc"]), _describe(found, model))


def _is_number_as_quantity(found: Mapping[str, Any]) -> bool:
    location, given = found["loc"], found["input"]
    is_quantity = location[-1] in _QUANTITIES or (len(location) > 1 and location[-2] in _QUANTITY_MAPS)
    return (
        is_quantity
        and found["type"] == "string_type"
        and isinstance(given, int | float)
        and not isinstance(given, bool)
    )


def _path(location: Iterable[str | int]) -> str:
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def _describe(found: Mapping[str, Any], model: Any) -> str:  # noqa: ANN401  (a class of the client)
    match found["type"]:
        case "extra_forbidden":
            *parents, field = found["loc"]
            return f"unknown field; {suggest(str(field), _fields_at(model, parents))}"
        case "missing":
            return "is required"
        case _:
            return f"{str(found['msg']).removeprefix('Input ')}, not {show_name(repr(found['input']))}"


def _fields_at(model: Any, parents: Sequence[str | int]) -> list[str]:  # noqa: ANN401  (as _describe)
    """Return the names of the fields of the model that is at ``parents``, a path from ``model``."""
    for part in parents:
        if isinstance(part, str) and hasattr(model, "model_fields"):
            fields = {field.serialization_alias or name: field for name, field in model.model_fields.items()}
            model = fields[part].annotation if part in fields else None
        model = _unwrap(model)
    return [field.serialization_alias or name for name, field in getattr(model, "model_fields", {}).items()]


def _unwrap(annotation: Any) -> Any:  # noqa: ANN401  (as _describe)
    """Return the model that an optional one, a list of it or a map to it holds."""
    while (origin := typing.get_origin(annotation)) is not None:
        held = [each for each in typing.get_args(annotation) if each is not types.NoneType]
        annotation = held[-1] if origin in (list, dict, typing.Union, types.UnionType) and held else None
    return annotation
