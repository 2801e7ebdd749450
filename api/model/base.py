"""The base class of model values."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, dataclass_transform

import msgspec

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object with a schema that is not the model's, kept unchanged."""


def as_mapping(value: object) -> Mapping[str, Any]:
    """Return a part of a document that should be an object; empty: it is something else, which a check reports."""
    return value if isinstance(value, Mapping) else {}


def as_list(value: object) -> Sequence[Any]:
    """Return a part of a document that should be a list; empty: it is something else, which a check reports."""
    return value if isinstance(value, list) else ()


class _KeywordOnly(msgspec.StructMeta):
    """A metaclass that makes ``kw_only`` apply to subclasses: msgspec inherits every other option, but not this one."""

    def __new__(cls, *args: Any, **options: Any) -> "_KeywordOnly":  # noqa: ANN401, PYI034  (handed through)
        return super().__new__(cls, *args, **{"kw_only": True, **options})


# For type checkers: the dataclass transform of msgspec's metaclass does not apply to subclasses of it.
@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Value(msgspec.Struct, metaclass=_KeywordOnly, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """An immutable value whose fields are encoded in camel case and constructed by keyword.

    ``gc=False``: values are acyclic, so the cyclic garbage collector need not visit the hundreds of thousands of them
    in a large cluster. Maps are never changed after construction.
    """
