"""What every model struct has in common."""

from typing import Any, TypeAlias, dataclass_transform

import msgspec

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object of somebody else's schema, carried as it is."""


class _KeywordOnly(msgspec.StructMeta):
    """Hands ``kw_only`` on to subclasses: msgspec inherits every other option, but not this one."""

    def __new__(cls, *args: Any, **options: Any) -> "_KeywordOnly":  # noqa: ANN401, PYI034  (handed through)
        return super().__new__(cls, *args, **{"kw_only": True, **options})


# Repeats for type checkers what the options below tell msgspec: its own transform does not reach subclasses.
@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Value(msgspec.Struct, metaclass=_KeywordOnly, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """An immutable value that reads and writes itself in Kubernetes' JSON spelling. Fields are given by name.

    ``gc=False``: values are acyclic, so the cyclic collector need not visit the hundreds of thousands of them that a
    large cluster has. Maps inside are never changed after construction.
    """
