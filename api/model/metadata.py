"""Types that objects of all kinds share: metadata, conditions, node selectors."""

import sys
from collections.abc import Mapping
from typing import Final, TypeVar

from kerf_dra.api.model.base import Value
from kerf_dra.api.model.names import ObjectRef


class OwnerReference(Value):
    """An owner of an object, which is garbage-collected after its last owner."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


_MOST_DIGITS: Final = 20
"""The most digits of a resource version: those of etcd are 64-bit numbers."""


def version_number(resource_version: str) -> int:
    """A resource version as a number, which is comparable (KEP-5504); 0 for a text that is none."""
    is_number = resource_version.isascii() and resource_version.isdecimal() and len(resource_version) <= _MOST_DIGITS
    return int(resource_version) if is_number else 0


class ObjectMeta(Value):
    """The fields of ``metadata`` that Kerf uses. Times are RFC 3339 strings as the server wrote them."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()

    @property
    def version(self) -> int:
        """``resource_version`` as a number, which is comparable (KEP-5504); 0 before the object is written."""
        return version_number(self.resource_version)


class Object(Value):
    """An API object: a value with ``metadata``. Its kind and version belong to its codec
    (``kerf_dra.api.wire.Kind``).
    """

    metadata: ObjectMeta = ObjectMeta()

    @property
    def ref(self) -> ObjectRef:
        return ObjectRef(self.metadata.namespace, self.metadata.name)

    @property
    def is_terminating(self) -> bool:
        return self.metadata.deletion_timestamp is not None


ObjectT = TypeVar("ObjectT", bound=Object)


def share_texts(texts: Mapping[str, str]) -> dict[str, str]:
    """Return labels or annotations whose equal texts, of all objects, are one text (``sys.intern``)."""
    return {sys.intern(name): sys.intern(text) for name, text in texts.items()}


class Condition(Value):
    """One entry of ``status.conditions`` (``metav1.Condition``). ``status`` is the string True, False or Unknown."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int | None = None


class LabelSelectorRequirement(Value):
    """One expression of a label selector; ``operator``: In, NotIn, Exists, DoesNotExist; in text form also Gt, Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeSelectorRequirement(Value):
    """One requirement of a node selector; ``operator``: In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Value):
    """Requirements on labels and on fields (``metadata.name``), all AND-ed; an empty term matches nothing."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Value):
    """``core/v1 NodeSelector``: the terms are OR-ed."""

    node_selector_terms: tuple[NodeSelectorTerm, ...]
