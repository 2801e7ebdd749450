"""CEL over the devices of one family, and the family's own DeviceClass. Pure.

The conditions name only what the vocabulary has, so that they are defined on all devices of the family. On devices of
other drivers they are run-time errors, so ``of_driver`` has to come before them, in a selector or in a class.

The family's own DeviceClass has the name of its driver. Users choose from it by CEL of their own
(docs/asking-for-devices.md), so it leaves out what a claim should get only if an administrator has a class for it:
shares of a partition, and monitor devices.
"""

from collections.abc import Iterable

import msgspec

from kerf_dra.api.model import device_attributes as v
from kerf_dra.api.model.claims import CelSelector, DeviceClass, DeviceClassSpec, DeviceSelector
from kerf_dra.api.model.devices import AttributeValue
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.families.base import Family


def of_driver(family: Family) -> str:
    """Return the condition that a device is of ``family``."""
    return f"device.driver == {_literal(family.driver)}"


def attribute_is(family: Family, name: str, value: AttributeValue) -> str:
    """Return the condition that the attribute ``name`` is ``value``.

    >>> from kerf_dra.driver.families.gpu import GPU
    >>> attribute_is(GPU, "profile", "1g.10gb")
    'device.attributes["gpu.kerf.dev"].profile == "1g.10gb"'
    """
    return f"{attribute_path(family, name)} == {_literal(value)}"


def attribute_is_one_of(family: Family, name: str, values: Iterable[AttributeValue]) -> str:
    """Return the condition that the attribute ``name`` is one of ``values``."""
    return f"{attribute_path(family, name)} in [{', '.join(map(_literal, values))}]"


def attribute_is_not(family: Family, name: str, value: AttributeValue) -> str:
    """Return the condition that the attribute ``name`` is another one than ``value``."""
    return f"{attribute_path(family, name)} != {_literal(value)}"


def version_at_least(family: Family, name: str, version: str) -> str:
    """Return the condition that the attribute ``name`` is the semantic version ``version`` or a later one."""
    return f"{attribute_path(family, name)}.compareTo(semver({_literal(version)})) >= 0"


def capacity_at_least(family: Family, name: str, amount: Quantity) -> str:
    """Return the condition that a device has ``amount`` of the capacity ``name``.

    >>> from kerf_dra.driver.families.gpu import GPU
    >>> capacity_at_least(GPU, "memory", Quantity("18Gi"))
    'device.capacity["gpu.kerf.dev"].memory.compareTo(quantity("18Gi")) >= 0'
    """
    return f"{capacity_path(family, name)}.compareTo(quantity({_literal(str(amount))})) >= 0"


def attribute_path(family: Family, name: str) -> str:
    """Return the CEL for the value of the attribute ``name``, which may have a domain of its own."""
    domain, _, short = name.rpartition("/")
    return f"device.attributes[{_literal(domain or family.driver)}].{short}"


def capacity_path(family: Family, name: str) -> str:
    """Return the CEL for the value of the capacity ``name``, a quantity."""
    domain, _, short = name.rpartition("/")
    return f"device.capacity[{_literal(domain or family.driver)}].{short}"


def build_device_class(family: Family) -> DeviceClass:
    """Return the family's own DeviceClass: every device that a claim can have to itself and without parameters."""
    conditions = [of_driver(family), attribute_is_not(family, v.ATTRIBUTE_CUT, v.CUT_MONITOR)]
    if v.ATTRIBUTE_SHARED in family.attributes:
        conditions.append(attribute_is(family, v.ATTRIBUTE_SHARED, False))
    return DeviceClass(
        metadata=ObjectMeta(name=family.driver, labels={"app.kubernetes.io/part-of": "kerf"}),
        spec=DeviceClassSpec(selectors=build_selectors(conditions)),
    )


def build_selectors(conditions: list[str]) -> tuple[DeviceSelector, ...]:
    """Return one selector for each of ``conditions``: the scheduler tries them in order until one does not hold."""
    return tuple(DeviceSelector(cel=CelSelector(expression=condition)) for condition in conditions)


def _literal(value: AttributeValue) -> str:
    """A CEL literal: the escapes of CEL include those of JSON."""
    return msgspec.json.encode(value).decode()
