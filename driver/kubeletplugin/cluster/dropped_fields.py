"""Which fields of a ResourceSlice the API server keeps, asked before anything is published.

A server that is too old for a field, or whose feature gate is off, drops it without a word (KEP-4381), and without its
counters a partition looks free of those that it overlaps. So nothing is published that might lose them: the answer to a
dry run, which is stored nowhere (KEP-576), has all that would be stored.
"""

import logging
from typing import Final

from api.model.devices import (
    Capacity,
    CapacityRange,
    CapacityRequestPolicy,
    Counter,
    CounterSet,
    Device,
    DeviceCounterConsumption,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from api.model.metadata import ObjectMeta
from api.model.quantity import Quantity
from api.wire import Kind, to_builtins
from driver.kube.dropped_fields import find_dropped_fields
from driver.kube.http.client import Client
from driver.kube.http.errors import ApiError, UnreachableError
from driver.kube.slice_plan import slice_name
from driver.kubeletplugin.inventory.binding_conditions import Conditions
from driver.kubeletplugin.inventory.devices import Place
from driver.partitions.slice_limits import SliceLayout

_POOL: Final = "probe"
"""Never published."""

_log = logging.getLogger(__name__)


async def fields_lost(client: Client, kind: Kind[ResourceSlice], place: Place) -> frozenset[str]:
    """Paths, in ``spec``, of what the server drops from slices as they are published at ``place``.

    Empty also where it refuses the dry run, because an admission webhook has side effects for example: then what is
    lost shows once it was written, and claims can be prepared meanwhile. Raises UnreachableError.
    """
    asked = _with_every_field(place)
    try:
        kept = await client.create(kind, asked, dry_run=True)
    except UnreachableError:
        raise
    except ApiError as error:
        _log.warning("cannot ask which fields of slices the API server keeps: %s", error)
        return frozenset()
    return frozenset(find_dropped_fields(to_builtins(asked.spec), to_builtins(kept.spec)))


def _with_every_field(place: Place) -> ResourceSlice:
    """A slice that uses, in a device for each, all that some server may drop and devices cannot do without."""
    conditions = Conditions.of(place.driver)
    one, two = Quantity(1), Quantity(2)
    counters = {"unit": Counter(value=one)}
    policy = CapacityRequestPolicy(default=one, valid_range=CapacityRange(min=one, step=one))
    devices = (
        Device(
            name="counted",
            consumes_counters=(DeviceCounterConsumption(counter_set="card", counters=counters),),
        ),
        Device(
            name="shared",
            capacity={"memory": Capacity(value=two, request_policy=policy)},
            allow_multiple_allocations=True,
        ),
        Device(
            name="conditional",
            binding_conditions=(conditions.loaded,),
            binding_failure_conditions=(conditions.failed,),
        ),
    )
    is_combined = place.layout is SliceLayout.COMBINED
    return ResourceSlice(
        metadata=ObjectMeta(name=slice_name(0, place.driver, place.node, _POOL)),
        spec=ResourceSliceSpec(
            driver=place.driver,
            pool=ResourcePool(name=_POOL, generation=1, resource_slice_count=1),
            node_name=place.node,
            devices=devices,
            shared_counters=(CounterSet(name="card", counters=counters),) if is_combined else (),
        ),
    )
