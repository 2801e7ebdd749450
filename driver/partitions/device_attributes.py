"""Attributes and capacities of devices, which selectors match: every device has all those of its family's vocabulary.

A value comes from the partition, the card or its geometry, else it is the vocabulary's neutral one.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from kerf_dra.api.model import device_attributes as v
from kerf_dra.api.model.devices import Attribute, Capacity
from kerf_dra.api.model.semver import coerce_version
from kerf_dra.driver.partitions.geometry import NOTHING, Amounts, Card, Geometry, PartitionSpec, Placement
from kerf_dra.driver.partitions.slice_limits import CompileError

_SIZES: Final = 256
"""The most sets of capacities kept: more than the partitions of a geometry have, so that devices of one size share
theirs."""
_LISTABLE: Final[tuple[str, ...]] = (v.ATTRIBUTE_PCIE_ROOT, v.ATTRIBUTE_NUMA_NODE)
"""The attributes of which a card may have several values, and which may be published as lists (KEP-5491)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """The attributes and capacities that all devices of a family have, no more and no fewer.

    A missing attribute is a run-time error in CEL that aborts a pod's whole scheduling attempt.
    """

    kind: str
    """The name of the family."""
    attributes: Mapping[str, Attribute]
    """The neutral value of each attribute; its type is the attribute's type."""
    capacities: frozenset[str]
    retired: frozenset[str] = frozenset()
    """Names of earlier vocabularies: a card may state them, and no device has them."""

    def with_lists(self) -> "Vocabulary":
        """Return the vocabulary in which PCIe root and NUMA node are lists, of all devices alike."""
        lists = {name: _to_list(self.attributes[name]) for name in _LISTABLE if name in self.attributes}
        return replace(self, attributes={**self.attributes, **lists})


def check_vocabulary(card: Card, vocabulary: Vocabulary) -> None:
    """Check that the devices of ``card`` can be described in ``vocabulary``.

    Raises CompileError when the card is of another family, or an attribute or capacity is none of the vocabulary's or
    of another type than there.
    """
    name = f"{card.kind}-{card.index}"
    if card.kind != vocabulary.kind:
        raise CompileError(card=name, reason=f"it is no card of the family {vocabulary.kind!r}")
    attributes = {**card.attributes, **card.whole_attributes}
    problem = _geometry_problem(card.geometry, vocabulary) or _attributes_problem(attributes, vocabulary)
    if problem:
        raise CompileError(card=name, reason=f"{problem} (family {vocabulary.kind!r})")


def is_describable(card: Card, vocabularies: Mapping[str, Vocabulary]) -> bool:
    """Whether the devices of ``card`` can be described in the vocabulary of its family."""
    if card.kind not in vocabularies:
        return False
    try:
        check_vocabulary(card, vocabularies[card.kind])
    except CompileError:
        return False
    return True


def mark_simulated(card: Card) -> Card:
    """Return ``card`` as one whose devices say that they are simulated: by name and by attribute."""
    product = {**dict(card.geometry.attributes), **card.attributes}.get(v.ATTRIBUTE_PRODUCT_NAME)
    name = f"{product.string if product is not None else ''} (simulated)".strip()
    marks = {v.ATTRIBUTE_PRODUCT_NAME: Attribute.of(name), v.ATTRIBUTE_SIMULATED: Attribute.of(True)}
    return replace(card, attributes={**card.attributes, **marks})


def card_attributes(card: Card, node: str, vocabulary: Vocabulary) -> dict[str, Attribute]:
    """Return the attributes that all devices of one card share, with the neutral values of all others."""
    generic = {
        v.ATTRIBUTE_MODEL: Attribute.of(card.geometry.model),
        v.ATTRIBUTE_UUID: Attribute.of(card.uuid),
        v.ATTRIBUTE_NODE: Attribute.of(v.node_attribute(node)),
        v.ATTRIBUTE_DRIVER_VERSION: Attribute(version=coerce_version(card.driver_version)),
        v.ATTRIBUTE_PCI_BUS_ID: Attribute.of(card.pci_bus_id),
        v.ATTRIBUTE_PCIE_ROOT: Attribute.of(card.pcie_root),
        v.ATTRIBUTE_NUMA_NODE: Attribute.of(card.numa_node),
    }
    values = {
        **vocabulary.attributes,
        **{name: value for name, value in generic.items() if name in vocabulary.attributes},
        **_select_present(dict(card.geometry.attributes), vocabulary),
        **_select_present(card.attributes, vocabulary),
    }
    listable = {name: _fit(name, values[name], vocabulary) for name in _LISTABLE if name in values}
    return {**values, **listable}


def partition_attributes(card: Card, spec: PartitionSpec, vocabulary: Vocabulary) -> dict[str, Attribute]:
    """Return the attributes that distinguish the devices of one card."""
    placement = spec.placement or Placement(0, card.units)
    generic = {
        v.ATTRIBUTE_CUT: _text("partition" if spec.placement else "whole"),
        v.ATTRIBUTE_PROFILE: _text(spec.profile or ""),
        v.ATTRIBUTE_FUNCTION: _text(spec.function or ""),
        v.ATTRIBUTE_LOADED_FUNCTION: _text(card.loaded.get(placement, "")),
        v.ATTRIBUTE_LOAD_SECONDS: Attribute.of(math.ceil(spec.load_s)),
    }
    own = {} if spec.placement else card.whole_attributes
    known = {name: value for name, value in generic.items() if name in vocabulary.attributes}
    return {**known, **_select_present({**dict(spec.attributes), **own}, vocabulary)}


def capacities(spec: PartitionSpec, vocabulary: Vocabulary) -> dict[str, Capacity]:
    """Return the device's capacities; one that the partition does not have is 0."""
    return _capacities(vocabulary.capacities, spec.capacity)


def no_capacity(vocabulary: Vocabulary) -> dict[str, Capacity]:
    """Return every capacity with the value 0."""
    return _capacities(vocabulary.capacities, ())


def _geometry_problem(geometry: Geometry, vocabulary: Vocabulary) -> str:
    if v.ATTRIBUTE_CUT not in vocabulary.attributes:
        return f"devices need the attribute {v.ATTRIBUTE_CUT!r}"
    if geometry.shareable and not (
        geometry.shareable in vocabulary.capacities and v.ATTRIBUTE_SHARED in vocabulary.attributes
    ):
        return f"shares need the capacity {geometry.shareable!r} and the attribute {v.ATTRIBUTE_SHARED!r}"
    for spec in geometry.specs:
        known = vocabulary.capacities | vocabulary.retired
        unknown = [name for name, _ in spec.capacity if name not in known]
        unknown += [
            name
            for name, value in ((v.ATTRIBUTE_PROFILE, spec.profile), (v.ATTRIBUTE_FUNCTION, spec.function))
            if value is not None and name not in vocabulary.attributes
        ]
        if unknown:
            return f"{', '.join(map(repr, unknown))} of a partition is not in the vocabulary"
        if problem := _attributes_problem(dict(spec.attributes), vocabulary):
            return problem
    return _attributes_problem(dict(geometry.attributes), vocabulary)


def _attributes_problem(attributes: Mapping[str, Attribute], vocabulary: Vocabulary) -> str:
    for name, value in _select_present(attributes, vocabulary).items():
        neutral = vocabulary.attributes.get(name)
        if neutral is None:
            return f"attribute {name!r} is not in the vocabulary"
        if _type(_fit(name, value, vocabulary)) != _type(neutral):
            return f"attribute {name!r} is {_type(value)}, but {_type(neutral)} in the vocabulary"
    return ""


def _select_present(attributes: Mapping[str, Attribute], vocabulary: Vocabulary) -> Mapping[str, Attribute]:
    """Return ``attributes`` without those that the vocabulary no longer has."""
    if vocabulary.retired.isdisjoint(attributes):
        return attributes
    return {name: value for name, value in attributes.items() if name not in vocabulary.retired}


def _fit(name: str, attribute: Attribute, vocabulary: Vocabulary) -> Attribute:
    """Return a listable attribute as a list or as its first value, whichever the vocabulary has."""
    if name not in _LISTABLE:
        return attribute
    is_list = isinstance(attribute.value, tuple)
    if is_list == isinstance(vocabulary.attributes[name].value, tuple):
        return attribute
    return _to_scalar(attribute, vocabulary.attributes[name]) if is_list else _to_list(attribute)


def _to_list(attribute: Attribute) -> Attribute:
    if attribute.string is not None:
        return Attribute(strings=(attribute.string,))
    return attribute if attribute.int_value is None else Attribute(ints=(attribute.int_value,))


def _to_scalar(attribute: Attribute, neutral: Attribute) -> Attribute:
    values = attribute.ints if attribute.strings is None else attribute.strings
    return Attribute.of(values[0]) if values else neutral


def _type(attribute: Attribute) -> str:
    value = attribute.value
    if isinstance(value, tuple):
        return f"a list of type {type(value[0]).__name__}" if value else "an empty list"
    return "a version" if attribute.version is not None else f"of type {type(value).__name__}"


@lru_cache(maxsize=_SIZES)
def _text(value: str) -> Attribute:
    return Attribute.of(value)


@lru_cache(maxsize=_SIZES)
def _capacities(names: frozenset[str], amounts: Amounts) -> dict[str, Capacity]:
    known = dict(amounts)
    return {name: Capacity(value=known.get(name, NOTHING)) for name in sorted(names)}
