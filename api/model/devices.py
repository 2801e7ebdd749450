"""Published devices, counters and pools, and device taints (``resource.k8s.io/v1`` ResourceSlice, DeviceTaintRule)."""

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from kerf_dra.api.model.base import Value
from kerf_dra.api.model.metadata import Condition, NodeSelector, Object
from kerf_dra.api.model.quantity import Quantity

AttributeValue: TypeAlias = int | bool | str | tuple[int, ...] | tuple[bool, ...] | tuple[str, ...]


class Attribute(Value):
    """A device attribute: exactly one field is set. Lists need the feature DRAListTypeAttributes (KEP-5491)."""

    int_value: int | None = msgspec.field(default=None, name="int")
    bool_value: bool | None = msgspec.field(default=None, name="bool")
    string: str | None = None
    version: str | None = None
    ints: tuple[int, ...] | None = None
    bools: tuple[bool, ...] | None = None
    strings: tuple[str, ...] | None = None
    versions: tuple[str, ...] | None = None

    @classmethod
    def of(cls, value: int | bool | str) -> "Attribute":
        if isinstance(value, bool):
            return cls(bool_value=value)
        return cls(int_value=value) if isinstance(value, int) else cls(string=value)

    @property
    def value(self) -> AttributeValue | None:
        """The one value that is set; None: the attribute is invalid, and the reader must reject it."""
        for field in (self.int_value, self.bool_value, self.string, self.version):
            if field is not None:
                return field
        for fields in (self.ints, self.bools, self.strings, self.versions):
            if fields is not None:
                return fields
        return None


class CapacityRange(Value):
    """Amounts from ``min`` to ``max`` in steps of ``step`` (KEP-5075)."""

    min: Quantity
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(Value):
    """How the requested share of a capacity is rounded and limited (KEP-5075)."""

    default: Quantity | None = None
    valid_values: tuple[Quantity, ...] = ()
    valid_range: CapacityRange | None = None


class Capacity(Value):
    """An amount of a resource that a device has."""

    value: Quantity
    request_policy: CapacityRequestPolicy | None = None


class Counter(Value):
    """An amount in a counter set, or consumed from it."""

    value: Quantity


class CounterSet(Value):
    """The shared counters of one card: partitions whose sum exceeds them cannot coexist (KEP-4815)."""

    name: str
    counters: dict[str, Counter] = {}


class DeviceCounterConsumption(Value):
    """A device's consumption from one counter set. ``compatibility_groups``: KEP-5963, alpha in 1.37."""

    counter_set: str
    counters: dict[str, Counter] = {}
    compatibility_groups: tuple[str, ...] = ()


class DeviceTaint(Value):
    """A taint that excludes claims (NoSchedule) or also evicts pods (NoExecute); effect None informs (KEP-5055)."""

    key: str
    value: str = ""
    effect: str
    time_added: str | None = None


class DeviceToleration(Value):
    """A toleration of taints: ``operator`` Exists or Equal; empty key: every key; empty effect: every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None

    def tolerates(self, taint: DeviceTaint) -> bool:
        return (
            (not self.effect or self.effect == taint.effect)
            and (not self.key or self.key == taint.key)
            and (self.operator == "Exists" or self.value == taint.value)
        )


class Device(Value):
    """One allocatable device: a whole card or one possible partition. Names are unique within a pool."""

    name: str
    attributes: dict[str, Attribute] = {}
    capacity: dict[str, Capacity] = {}
    consumes_counters: tuple[DeviceCounterConsumption, ...] = ()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool | None = None
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool | None = None


class ResourcePool(Value):
    """The pool of a slice. Only slices of its highest generation count, and only when all of them exist."""

    name: str
    generation: int
    resource_slice_count: int


class ResourceSliceSpec(Value):
    """A part of a pool. From 1.35 on a slice holds devices or shared counters, not both."""

    driver: str
    pool: ResourcePool
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()
    partition_type_attribute: str | None = None
    skip_node_operations: tuple[str, ...] = ()


class ResourceSlice(Object):
    """A part of a driver's published devices (cluster-scoped)."""

    spec: ResourceSliceSpec


def select_current_slices(slices: Sequence[ResourceSlice]) -> Sequence[ResourceSlice]:
    """Return the slices of a pool's newest generation if they are complete, else all, the newest last.

    ``slices`` are those of one pool, at least one. While its driver replaces one after the other, a device that no
    change concerns is in one of an earlier generation.
    """
    by_age = sorted(slices, key=lambda each: each.spec.pool.generation)
    pool = by_age[-1].spec.pool
    newest = [each for each in by_age if each.spec.pool.generation == pool.generation]
    return newest if len(newest) >= pool.resource_slice_count else by_age


class SliceContent(Value):
    """The content of one slice of a pool, before it has a name and a generation."""

    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()


class Pool(Value):
    """All devices that a driver publishes under one pool name, in an order that matters: the scheduler is first-fit."""

    name: str
    slices: tuple[SliceContent, ...]


class DeviceTaintSelector(Value):
    """The devices that a rule taints: all set fields must match."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(Value):
    """A taint and the devices that get it; no selector: every device."""

    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint


class DeviceTaintRuleStatus(Value):
    """The eviction controller's report on a rule."""

    conditions: tuple[Condition, ...] = ()


class DeviceTaintRule(Object):
    """An administrator's taint on devices (KEP-5055)."""

    spec: DeviceTaintRuleSpec
    status: DeviceTaintRuleStatus = DeviceTaintRuleStatus()
