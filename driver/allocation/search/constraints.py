"""Constraints over the devices of a claim: matchAttribute and distinctAttribute.

A constraint is a fold over the devices chosen so far. Its state is an immutable value, so a search backtracks by
restoring the earlier state. With list attributes (KEP-5491) values are sets: devices match while some
element is common to all, and are distinct while no element occurs twice; a scalar is a set of one.

Example: matchAttribute ``numaNode`` over a device with NUMA node 0 has the state ``(1, {("int", 0)})``, and refuses a
device with NUMA node 1, because the two have no value in common.
"""

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from kerf_dra.api.model.claims import DerivedAttribute, DeviceConstraint
from kerf_dra.api.model.devices import Attribute
from kerf_dra.driver.allocation.pools.gather import PublishedDevice
from kerf_dra.driver.cel.compile import compile_attribute

Value: TypeAlias = tuple[str, int | bool | str]
"""One comparable value with its type: the string ``1``, the number 1 and true all differ."""
Values: TypeAlias = frozenset[Value]
"""The elements of a list attribute, or the one value of a scalar."""

NOT_COMPARABLE: Final[Values] = frozenset()
"""The values of an attribute without elements, or of a list while the feature for list attributes is disabled."""


class ConstraintState(NamedTuple):
    """The state of a constraint over the devices chosen so far."""

    devices: int
    """The number of these devices."""
    values: Values
    """For matchAttribute the values that all devices have in common, for distinctAttribute those that any has."""


INITIAL_STATE: Final = ConstraintState(devices=0, values=frozenset())


@dataclass(frozen=True, slots=True)
class Constraint:
    """One constraint of a claim."""

    kind: Literal["match", "distinct"]
    attribute: str
    requests: frozenset[str]
    """The names of the requests (or ``request/subrequest``) to which the constraint applies; empty: all."""
    with_lists: bool
    """Whether the feature for list attributes is enabled."""

    @classmethod
    def of(cls, constraint: DeviceConstraint, *, with_lists: bool) -> "Constraint | None":
        """Convert ``constraint``; None: it sets neither field, so it is of a kind that is not known yet."""
        requests = frozenset(constraint.requests)
        if constraint.match_attribute is not None:
            return cls("match", constraint.match_attribute, requests, with_lists)
        if constraint.distinct_attribute is not None:
            return cls("distinct", constraint.distinct_attribute, requests, with_lists)
        return None

    def applies_to(self, request: str) -> bool:
        """Whether the constraint applies to ``request``, which may be ``request/subrequest``."""
        return not self.requests or request in self.requests or request.partition("/")[0] in self.requests

    def admit(self, state: ConstraintState, values: Values | None) -> ConstraintState | None:
        """Return the state with one more device, which has those ``values``; None: the constraint rejects the device.

        ``values`` None: the device lacks the attribute, which no constraint accepts.
        """
        if values is None or (not values and (state.devices or self.with_lists)):
            return None
        if not state.devices:
            return ConstraintState(1, values)
        common = state.values & values
        if self.kind == "match":
            return ConstraintState(state.devices + 1, common) if common else None
        return None if common else ConstraintState(state.devices + 1, state.values | values)

    def values(self, published: PublishedDevice, derived: tuple[DerivedAttribute, ...]) -> Values | None:
        """The values that the constraint compares of a device; None: the device lacks the attribute.

        A derived attribute of the request takes precedence over a published one (KEP-6080). Raises
        ExpressionCompileError, ExpressionRuntimeError or UnsupportedExpressionError if it cannot be evaluated.
        """
        for attribute in derived:
            if attribute.name == self.attribute:
                expression = compile_attribute(attribute.expression)
                return _values(expression.derive(published.id.driver, published.device), with_lists=self.with_lists)
        found = _published(published, self.attribute)
        return None if found is None else _values(found, with_lists=self.with_lists)

    def __str__(self) -> str:
        return f"{self.kind}Attribute {self.attribute}"


def _published(published: PublishedDevice, name: str) -> Attribute | None:
    """An attribute by its qualified name; the driver's own may be published without its domain."""
    domain, _, id_ = name.partition("/")
    return published.attribute(name) or (published.attribute(id_) if domain == published.id.driver else None)


def _values(attribute: Attribute, *, with_lists: bool) -> Values:
    # Versions compare as strings: semver allows one spelling of each.
    lists = (("int", attribute.ints), ("bool", attribute.bools), ("string", attribute.strings))
    for kind, elements in (*lists, ("version", attribute.versions)):
        if elements is not None:
            return frozenset((kind, element) for element in elements) if with_lists and elements else NOT_COMPARABLE
    scalars = (("int", attribute.int_value), ("bool", attribute.bool_value), ("string", attribute.string))
    for kind, scalar in (*scalars, ("version", attribute.version)):
        if scalar is not None:
            return frozenset({(kind, scalar)})
    return NOT_COMPARABLE
