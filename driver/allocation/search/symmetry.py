"""Interchangeable devices: which devices can replace each other for the rest of a search.

Problem: devices of a node differ in little but names, and a choice that fails with one of them fails with each. They
are *interchangeable values* (Freuder, "Eliminating Interchangeable Values in Constraint Satisfaction Problems", 1991):

- *Devices* of a component are interchangeable when no remaining request, no constraint and no counter distinguishes
  them.
- A *component* is a set of devices tied by counter sets: a card with its partitions, or a device by itself. Components
  that differ in names only are of one class and can be exchanged as a whole, even where constraints compare values that
  only one component has, such as the UUID of a card.
- A *value group* is the components whose devices share one value of a constrained attribute, such as a NUMA node.
  Groups with components of the same classes can be exchanged, if each component has only one such value.

Invariant: an exchange turns each solution of the remaining requests into a solution. Building costs one pass over the
devices of these requests and what constraints compare of each.

Example: two NUMA nodes with four equal cards each, and a request for two cards with matchAttribute ``numaNode``: the
cards are eight components of one class in two equal value groups.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kerf_dra.driver.allocation.search.constraints import NOT_COMPARABLE, Value, Values
from kerf_dra.driver.allocation.search.problem import (
    AllocationProblem,
    ComparedAttribute,
    RequestAlternative,
    UnanswerableError,
)
from kerf_dra.driver.allocation.semantics.bitset import iter_bits

_GroupName: TypeAlias = tuple[str, Value]
"""The attribute and the value that the components of a value group share."""


@dataclass(frozen=True, slots=True, eq=False)
class Component:
    """The devices that take from the same counter sets, directly or through others."""

    devices: int
    """The bitset of all devices of the component."""
    interchangeable: tuple[int, ...]
    """The bitsets of interchangeable devices, in the same order in all components of a class."""
    sets: tuple[int, ...]
    """The counter sets, in the same order in all components of a class."""
    shareable: tuple[int, ...]
    """The devices of the component that can be allocated several times."""
    values: tuple[Mapping[Value, int], ...]
    """For each constraint of the current claim: the values that no other component has, numbered."""


@dataclass(frozen=True, slots=True, eq=False)
class ValueGroup:
    """The components that share one value of a constrained attribute, or all components that have none."""

    classes: tuple[tuple[Component, ...], ...]
    """The components by class, in the same order in all equal groups."""
    values: tuple[Value | None, ...]
    """For each constraint of the current claim: the value of the group, None if it compares another attribute."""


@dataclass(frozen=True, slots=True)
class Symmetry:
    """The symmetry of the requests that remain at some position of a search."""

    groups: tuple[tuple[ValueGroup, ...], ...]
    """The value groups, with equal ones in one tuple."""
    claim: int
    """The claim of the current request."""
    constraints: tuple[int, ...]
    """The indices of that claim's constraints that still matter."""
    common: tuple[frozenset[Value], ...]
    """For each of these constraints: the values that several components have, if value groups overlap."""
    options: int
    """The bitset of devices that the current alternative tries."""


def symmetry_key(alternative: RequestAlternative) -> Hashable:
    """The properties of an alternative that decide which devices are interchangeable."""
    capacities = alternative.spec.capacity.requests if alternative.spec.capacity else {}
    return (
        alternative.claim,
        alternative.candidates,
        alternative.usable,
        alternative.failing,
        alternative.constraints,
        alternative.spec.derived_attributes if alternative.constraints else (),
        tuple(sorted(capacities.items())),
    )


class SymmetryBuilder:
    """A builder of the symmetry of the remaining ``alternatives``, of which those of ``claim`` come first."""

    def __init__(self, problem: AllocationProblem, claim: int, alternatives: Sequence[RequestAlternative]) -> None:
        self._problem = problem
        self._node_devices = problem.node_devices
        self._claim = claim
        self._alternatives = alternatives
        self._devices = 0
        self._compared_by: dict[ComparedAttribute, tuple[RequestAlternative, int, int]] = {}
        """For each attribute an alternative and its constraint that compare it, and the devices for which any does."""
        for alternative in alternatives:
            tried = alternative.candidates | alternative.failing
            self._devices |= tried
            for index in alternative.constraints:
                attribute = problem.compared_attribute(alternative, index)
                first, its_index, devices = self._compared_by.get(attribute, (alternative, index, 0))
                self._compared_by[attribute] = first, its_index, devices | tried
        self._component_of: dict[int, int] = {}
        """The number of each device's component."""
        self._owners: dict[str, dict[Value, int | None]] = defaultdict(dict)
        """The component that alone has a value of an attribute; None: several have it."""
        self._group_of: dict[int, _GroupName] = {}
        """The value group of each component that is in one; empty if groups overlap."""

    def build(self, options: int) -> Symmetry:
        """Return the symmetry of a position where the current alternative tries ``options``."""
        members = self._members()
        for number, devices in enumerate(members):
            self._component_of |= dict.fromkeys(devices, number)
        self._find_owners()
        self._find_groups()
        current = (each for each in self._alternatives if each.claim == self._claim)
        constraints = tuple(sorted({index for each in current for index in each.constraints}))
        attributes = [self._problem.constraints[self._claim][index].attribute for index in constraints]
        groups: dict[_GroupName | None, dict[Hashable, list[Component]]] = defaultdict(lambda: defaultdict(list))
        for number, devices in enumerate(members):
            class_, component = self._component(number, devices, attributes)
            groups[self._group_of.get(number)][class_].append(component)
        common = (
            frozenset(value for value, owner in self._owners[attribute].items() if owner is None)
            for attribute in attributes
        )
        return Symmetry(
            groups=_equal_groups(groups, attributes),
            claim=self._claim,
            constraints=constraints,
            common=tuple(frozenset() if self._group_of else values for values in common),
            options=options,
        )

    def _members(self) -> list[list[int]]:
        """The devices of each component, ascending: the connected components by counter sets (union-find)."""
        parents: dict[int, int] = {}

        def root(set_: int) -> int:
            while (parent := parents.setdefault(set_, set_)) != set_:
                set_ = parent
            return set_

        for device in iter_bits(self._devices):
            first, *others = [use.set for use in self._node_devices.uses(device)] or [-1]
            for other in others:
                parents[root(other)] = root(first)
        members: dict[tuple[int, int], list[int]] = defaultdict(list)
        for device in iter_bits(self._devices):
            uses = self._node_devices.uses(device)
            members[(root(uses[0].set), 0) if uses else (-1, device)].append(device)
        return list(members.values())

    def _find_owners(self) -> None:
        for device in iter_bits(self._devices):
            component = self._component_of[device]
            for compared, values in self._compared(device):
                owners = self._owners[compared.attribute]
                for value in values or ():
                    if owners.setdefault(value, component) != component or self._problem.may_fail:
                        owners[value] = None

    def _find_groups(self) -> None:
        common: dict[int, set[_GroupName]] = defaultdict(set)
        for device in iter_bits(self._devices):
            for compared, values in self._compared(device):
                for value in values or ():
                    if self._owners[compared.attribute][value] is None:
                        common[self._component_of[device]].add((compared.attribute, value))
        if not self._problem.may_fail and all(len(names) == 1 for names in common.values()):
            self._group_of = {component: name for component, (name,) in common.items()}

    def _compared(self, device: int) -> Iterator[tuple[ComparedAttribute, Values | None]]:
        """Yield the attributes and values of a device that the constraints on all alternatives compare."""
        for compared, (alternative, index, devices) in self._compared_by.items():
            if devices >> device & 1:
                try:
                    yield compared, self._problem.values(alternative, index, device)
                except UnanswerableError:  # the search will meet it
                    yield compared, NOT_COMPARABLE

    def _component(self, number: int, devices: Sequence[int], attributes: Iterable[str]) -> tuple[Hashable, Component]:
        """The key of the component's class, and the component."""
        sets: dict[int, int] = {}
        own: dict[str, dict[Value, int]] = defaultdict(dict)
        interchangeable: dict[Hashable, int] = defaultdict(int)
        for device in devices:
            interchangeable[self._description(number, device, sets, own)] |= 1 << device
        class_ = (
            tuple((description, bitset.bit_count()) for description, bitset in interchangeable.items()),
            tuple(tuple(self._node_devices.fields(set_).items()) for set_ in sets),
        )
        return class_, Component(
            devices=sum(1 << device for device in devices),
            interchangeable=tuple(interchangeable.values()),
            sets=tuple(sets),
            shareable=tuple(device for device in devices if self._node_devices.shareable >> device & 1),
            values=tuple(own[attribute] for attribute in attributes),
        )

    def _description(
        self, component: int, device: int, sets: dict[int, int], own: dict[str, dict[Value, int]]
    ) -> Hashable:
        """All remaining properties of a device; sets and values of its own component go by their numbers."""
        uses = self._node_devices.uses(device)
        # Which of two failures is reported depends on the order of devices: then no device stands for another.
        if self._problem.may_fail:
            for use in uses:
                sets.setdefault(use.set, len(sets))
            return device
        compared_values: list[Hashable] = []
        for compared, values in self._compared(device):
            names: list[Hashable] = []
            owners, numbers = self._owners[compared.attribute], own[compared.attribute]
            for value in sorted(values or (), key=str):
                if owners[value] == component:
                    names.append(numbers.setdefault(value, len(numbers)))
                else:
                    names.append(None if self._group_of else value)  # which group it is does not matter
            compared_values.append((compared, None if values is None else frozenset(names)))
        return (
            tuple([(sets.setdefault(use.set, len(sets)), use.amount, use.groups) for use in uses]),
            tuple([(each.candidates >> device & 1, each.usable >> device & 1) for each in self._alternatives]),
            tuple(compared_values),
            self._shares(device) if self._node_devices.shareable >> device & 1 else None,
        )

    def _shares(self, device: int) -> Hashable:
        """The properties of a shareable device: whether it is shared, what remains of it, what alternatives take."""
        consumed = self._node_devices.consumed.get(device, {})
        capacity = self._node_devices.device(device).capacity
        left = [(name, each.value.nano - consumed.get(name, 0)) for name, each in capacity.items()]
        demands = (each.demands.get(device) for each in self._alternatives)
        amounts = [demand and tuple(sorted(demand.amounts.items())) for demand in demands]
        return self._node_devices.shared >> device & 1, tuple(left), tuple(amounts)


def _equal_groups(
    groups: Mapping[_GroupName | None, Mapping[Hashable, list[Component]]], attributes: Sequence[str]
) -> tuple[tuple[ValueGroup, ...], ...]:
    """The value groups, those together that have equally many components of the same classes."""
    equal: dict[Hashable, tuple[Sequence[Hashable], list[ValueGroup]]] = {}
    for name, classes in groups.items():
        attribute, value = name or ("", None)
        key = attribute, frozenset((class_, len(components)) for class_, components in classes.items())
        order, together = equal.setdefault(key, (list(classes), []))
        values = tuple(value if each == attribute else None for each in attributes)
        together.append(ValueGroup(tuple(tuple(classes[class_]) for class_ in order), values))
    return tuple(tuple(together) for _, together in equal.values())
