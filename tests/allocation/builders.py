"""Builders of the objects of a test case."""

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from kerf_dra.api.model.claims import (
    CapacityRequirements,
    CelSelector,
    DeviceClaim,
    DeviceClaimConfiguration,
    DeviceClass,
    DeviceClassConfiguration,
    DeviceClassSpec,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    ExactDeviceRequest,
    OpaqueDeviceConfiguration,
    ResourceClaim,
    ResourceClaimSpec,
)
from kerf_dra.api.model.devices import (
    Attribute,
    Capacity,
    Counter,
    CounterSet,
    Device,
    DeviceCounterConsumption,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from kerf_dra.api.model.metadata import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ObjectMeta
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.allocation import AllocatedState, Budget, Features, NodeView, Outcome, PoolIndex, allocate

DRIVER = "gpu.example.com"
NODE = NodeView("node-1", {"zone": "east", "rank": "5"})
BUDGET = Budget()
ALL_FEATURES = Features(
    list_type_attributes=True, derived_attributes=True, compatibility_groups=True, optional_node_operations=True
)


def device(
    name: str,
    *,
    attributes: Mapping[str, Any] | None = None,
    capacity: Mapping[str, str | Capacity] | None = None,
    uses: Mapping[str, Mapping[str, int]] | None = None,
    groups: Mapping[str, Sequence[str]] | None = None,
    **fields: Any,
) -> Device:
    """Build a device; ``attributes`` as plain values or Attributes, ``uses`` as amounts by counter set and counter."""
    return Device(
        name=name,
        attributes={
            key: value if isinstance(value, Attribute) else Attribute.of(value)
            for key, value in (attributes or {}).items()
        },
        capacity={
            key: value if isinstance(value, Capacity) else Capacity(value=Quantity(value))
            for key, value in (capacity or {}).items()
        },
        consumes_counters=tuple(
            DeviceCounterConsumption(
                counter_set=set_,
                counters=counters(amounts),
                compatibility_groups=tuple((groups or {}).get(set_, ())),
            )
            for set_, amounts in (uses or {}).items()
        ),
        **fields,
    )


def counters(amounts: Mapping[str, int]) -> dict[str, Counter]:
    return {name: Counter(value=Quantity(amount)) for name, amount in amounts.items()}


def slice_(
    *devices: Device,
    name: str = "slice",
    driver: str = DRIVER,
    pool: str = "pool",
    generation: int = 1,
    slices: int = 1,
    sets: Mapping[str, Mapping[str, int]] | None = None,
    **where: Any,
) -> ResourceSlice:
    """A slice of the pool, for ``NODE`` unless ``where`` says otherwise."""
    return ResourceSlice(
        metadata=ObjectMeta(name=name),
        spec=ResourceSliceSpec(
            driver=driver,
            pool=ResourcePool(name=pool, generation=generation, resource_slice_count=slices),
            devices=devices,
            shared_counters=tuple(
                CounterSet(name=set_, counters=counters(amounts)) for set_, amounts in (sets or {}).items()
            ),
            **(where or {"node_name": NODE.name}),
        ),
    )


def partitioned(*devices: Device, sets: Mapping[str, Mapping[str, int]], **fields: Any) -> list[ResourceSlice]:
    """A pool of the layout of Kubernetes 1.35: the counter sets in a slice of their own."""
    return [
        slice_(*devices, name="devices", slices=2, **fields),
        slice_(name="counters", slices=2, sets=sets, **fields),
    ]


def class_(name: str = "any", *selectors: str, parameters: Sequence[Mapping[str, Any]] = ()) -> DeviceClass:
    return DeviceClass(
        metadata=ObjectMeta(name=name),
        spec=DeviceClassSpec(
            selectors=selecting(*selectors),
            config=tuple(
                DeviceClassConfiguration(opaque=OpaqueDeviceConfiguration(driver=DRIVER, parameters=dict(each)))
                for each in parameters
            ),
        ),
    )


def selecting(*expressions: str) -> tuple[DeviceSelector, ...]:
    return tuple(DeviceSelector(cel=CelSelector(expression=expression)) for expression in expressions)


def _asking(
    count: int | None, selectors: Sequence[str], capacity: Mapping[str, str] | None, fields: Mapping[str, Any]
) -> dict[str, Any]:
    is_all = count is None
    return {
        "device_class_name": "any",
        "allocation_mode": "All" if is_all else "ExactCount",
        "count": count,
        "selectors": selecting(*selectors),
        "capacity": capacity
        and CapacityRequirements(requests={name: Quantity(amount) for name, amount in capacity.items()}),
        **fields,
    }


def request(
    name: str,
    *selectors: str,
    count: int | None = 1,
    capacity: Mapping[str, str] | None = None,
    **fields: Any,
) -> DeviceRequest:
    """Build a request for ``count`` devices, None: for all."""
    return DeviceRequest(name=name, exactly=ExactDeviceRequest(**_asking(count, selectors, capacity, fields)))


def alternative(
    name: str,
    *selectors: str,
    count: int | None = 1,
    capacity: Mapping[str, str] | None = None,
    **fields: Any,
) -> DeviceSubRequest:
    return DeviceSubRequest(name=name, **_asking(count, selectors, capacity, fields))


def first_of(name: str, *alternatives: DeviceSubRequest) -> DeviceRequest:
    return DeviceRequest(name=name, first_available=alternatives)


def claim(
    *requests: DeviceRequest,
    name: str = "claim",
    constraints: Sequence[DeviceConstraint] = (),
    config: Sequence[DeviceClaimConfiguration] = (),
) -> ResourceClaim:
    return ResourceClaim(
        metadata=ObjectMeta(name=name, namespace="default", uid=f"uid-{name}"),
        spec=ResourceClaimSpec(
            devices=DeviceClaim(requests=requests, constraints=tuple(constraints), config=tuple(config))
        ),
    )


def same(attribute: str, *requests: str) -> DeviceConstraint:
    return DeviceConstraint(match_attribute=attribute, requests=requests)


def distinct(attribute: str, *requests: str) -> DeviceConstraint:
    return DeviceConstraint(distinct_attribute=attribute, requests=requests)


def labelled(key: str, operator: str, *values: str) -> NodeSelector:
    requirement = NodeSelectorRequirement(key=key, operator=operator, values=values)
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=(requirement,)),))


def share_ids() -> Callable[[], str]:
    numbers = count()
    return lambda: f"share-{next(numbers)}"


def decide(
    slices: Sequence[ResourceSlice],
    *claims: ResourceClaim,
    classes: Sequence[DeviceClass] = (),
    allocated: AllocatedState | None = None,
    features: Features = ALL_FEATURES,
    node: NodeView = NODE,
    budget: Budget = BUDGET,
    **rules: Any,
) -> Outcome:
    """Return the allocator's answer; the class ``any`` is always there."""
    return allocate(
        PoolIndex.build(slices, **rules),
        claims,
        node,
        {each.metadata.name: each for each in (class_(), *classes)},
        allocated or AllocatedState(),
        features,
        share_id=share_ids(),
        budget=budget,
    )
