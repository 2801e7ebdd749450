"""The two walks over a snapshot: what words it has, and its copy with pseudonyms.

What is no text stays: numbers, truth values, quantities. Every text is replaced, whatever field it is in, so that a
field which a later version adds is not forgotten.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec

from kerf_dra.api.core.v1 import ObjectReference
from kerf_dra.api.kerf.node_inventory import InventoryAmount, InventoryAttribute
from kerf_dra.api.model.devices import ResourcePool
from kerf_dra.api.model.metadata import ObjectMeta, OwnerReference
from kerf_dra.driver.diagnostics.anonymization.pseudonyms import Pseudonyms, SnapshotWords, split_cel
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.dump import POD_TEMPLATE_HASH

ValueT = TypeVar("ValueT")

_DRIVERS: Final = frozenset({"driver", "driver_name"})
"""The fields that hold a driver's name."""
_QUALIFIED: Final = frozenset({"attributes", "capacity"})
"""The maps whose keys are names of attributes or capacities."""
_EXPRESSION: Final = "expression"
"""The fields that hold CEL."""


def anonymize(state: ClusterState) -> tuple[ClusterState, Mapping[str, str]]:
    """Return ``state``, which is redacted, with pseudonyms in place of all words that are not public.

    The second value is what each pseudonym stands for, which is as secret as the words are.
    """
    state = msgspec.structs.replace(state, slices=tuple(state.slices))  # as a whole: every text of them is read
    pseudonyms = Pseudonyms(collect_words(state))
    return replace_texts(state, pseudonyms), pseudonyms.meanings


def collect_words(state: ClusterState) -> SnapshotWords:
    """Return the names and texts of ``state``."""
    walk = _Walk()
    walk.visit(state)
    inventories = state.classic.inventories if state.classic else ()
    nodes = {
        *(node.metadata.name for node in state.nodes),
        *(pod.spec.node_name for pod in state.pods if pod.spec.node_name),
        *(slice_.spec.node_name for slice_ in state.slices if slice_.spec.node_name),
        *(inventory.spec.node for inventory in inventories),
    }
    derived = frozenset(_derived_names(state))
    expressions = {part for expression in walk.expressions for part in split_cel(expression)}
    return SnapshotWords(
        kept=frozenset(part for name in walk.kept for part in name.split("/")),
        nodes=frozenset(nodes),
        names=frozenset(part for name in walk.names for part in name.split("/") if part),
        derived=derived,
        texts=frozenset(walk.texts | expressions | {part for pair in derived for part in pair}),
    )


def replace_texts(value: ValueT, pseudonyms: Pseudonyms, field: str = "") -> ValueT:
    """Return ``value`` with every text in it replaced; ``field`` is the name of its field."""
    changed: Any = value
    match value:
        case str():
            changed = (pseudonyms.replace_cel if field == _EXPRESSION else pseudonyms.replace)(value)
        case msgspec.Struct():
            fields = {name: getattr(value, name) for name in value.__struct_fields__}
            new = {name: replace_texts(each, pseudonyms, name) for name, each in fields.items()}
            changed = msgspec.structs.replace(value, **new)
        case tuple() | list():
            changed = type(value)(replace_texts(each, pseudonyms, field) for each in value)
        case dict():
            changed = {
                replace_texts(key, pseudonyms): replace_texts(each, pseudonyms, field) for key, each in value.items()
            }
    return changed  # type: ignore[no-any-return]  # of the same type


class _Walk:
    """What is in a snapshot: its texts, those of them that are CEL, names of objects, and names that stay."""

    def __init__(self) -> None:
        self.texts: set[str] = set()
        self.expressions: set[str] = set()
        self.names: set[str] = set()
        self.kept: set[str] = set()

    def visit(self, value: object, field: str = "") -> None:
        match value:
            case str():
                (self.expressions if field == _EXPRESSION else self.texts).add(value)
            case msgspec.Struct():
                self._note(value)
                for name in value.__struct_fields__:
                    self._visit_field(name, getattr(value, name))
            case tuple() | list():
                for each in value:
                    self.visit(each, field)
            case dict():
                self.texts.update(value)
                for each in value.values():
                    self.visit(each, field)

    def _visit_field(self, name: str, value: object) -> None:
        if name in _DRIVERS and isinstance(value, str):
            self.kept.add(value)
        elif name in _QUALIFIED and isinstance(value, dict):
            self.kept.update(value)
        if value is not None:
            self.visit(value, name)

    def _note(self, struct: msgspec.Struct) -> None:
        if isinstance(struct, InventoryAttribute | InventoryAmount):
            self.kept.add(struct.name)
        elif isinstance(struct, ObjectMeta | OwnerReference | ObjectReference | ResourcePool):
            self.names.add(struct.name)
            if isinstance(struct, ObjectMeta | ObjectReference):
                self.names.add(struct.namespace)


def _derived_names(state: ClusterState) -> Iterator[tuple[str, str]]:
    """Yield the names of ReplicaSets (Deployment and hash) and of Jobs (CronJob and minute), in their parts."""
    for pod in state.pods:
        for owner in pod.metadata.owner_references:
            base, _, end = owner.name.rpartition("-")
            is_of_deployment = owner.kind == "ReplicaSet" and end == pod.metadata.labels.get(POD_TEMPLATE_HASH)
            if base and (is_of_deployment or (owner.kind == "Job" and end.isdecimal())):
                yield base, end
