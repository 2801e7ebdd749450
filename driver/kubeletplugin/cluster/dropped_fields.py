"""Finds the fields of a ResourceSlice that the API server drops, before anything is published.

A server that is too old for a field, or whose feature gate is off, drops it silently (KEP-4381), and without its
counters a partition looks independent of those that it overlaps. A dry run stores nothing and answers with what would
be stored (KEP-576), so one shows which fields are kept.
"""

import logging
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Final

import anyio

from kerf_dra.api.errors import TransientError
from kerf_dra.api.model.device_attributes import ATTRIBUTE_NUMA_NODE, ATTRIBUTE_PCIE_ROOT, pool_name
from kerf_dra.api.model.devices import (
    Attribute,
    Capacity,
    CapacityRange,
    CapacityRequestPolicy,
    Counter,
    CounterSet,
    Device,
    DeviceCounterConsumption,
    DeviceTaint,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.api.wire import Kind, to_builtins
from kerf_dra.driver.kube.dropped_fields import find_dropped_fields
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.errors import ApiError, UnreachableError
from kerf_dra.driver.kube.slice_plan import slice_name
from kerf_dra.driver.kubeletplugin.inventory.binding_conditions import BindingConditions
from kerf_dra.driver.kubeletplugin.inventory.devices import PublishTarget
from kerf_dra.driver.partitions.slice_limits import SliceLayout

_PROBE: Final = "probe"
"""The kind of devices in the dry run's pool, which is never published."""

_PROBED_WORDS: Final = frozenset(
    {
        *("consumesCounters", "allowMultipleAllocations", "requestPolicy"),
        *("bindingConditions", "bindingFailureConditions", "taints"),
    }
)
"""The fields that every dry run has."""
_ASK_AGAIN_S: Final = 600.0
"""Seconds between two dry runs while fields are dropped: 5,000 nodes make eight small requests a second in all, and
who has switched on a gate waits ten minutes at most."""

_log = logging.getLogger(__name__)


class GatesChangedError(TransientError):
    """The API server keeps fields that it dropped when the plugin started: the plugin is to start again."""

    def __init__(self, fields: Iterable[str]) -> None:
        super().__init__(f"the API server keeps {', '.join(sorted(fields))} now: the plugin starts again to publish it")


async def probe_dropped_fields(client: Client, kind: Kind[ResourceSlice], target: PublishTarget) -> frozenset[str]:
    """Return the paths, in ``spec``, of what the API server drops from slices like those for ``target``.

    The set is also empty where the server refuses the dry run, for example because an admission webhook has side
    effects: then the fields are missing in the first written slice, and claims can be prepared meanwhile. Raises
    UnreachableError.
    """
    try:
        return await _ask_for_dropped_fields(client, kind, target)
    except UnreachableError:
        raise
    except ApiError as error:
        _log.warning("cannot find out which fields of slices the API server keeps: %s", error)
        return frozenset()


async def watch_dropped_fields(
    client: Client, kind: Kind[ResourceSlice], target: PublishTarget, dropped: Collection[str]
) -> None:
    """Ask again at intervals whether the API server still drops what is in the live view ``dropped``.

    Gates change with a restart of the API server, whose version stays the same. Nothing is asked while nothing is
    dropped: what is dropped from then on, the next slice shows. Raises GatesChangedError.
    """
    while True:
        await anyio.sleep(_ASK_AGAIN_S)
        wanted = _list_words(dropped) & _PROBED_WORDS
        with suppress(ApiError):  # it says nothing now: the next time
            if wanted and (kept := wanted - _list_words(await _ask_for_dropped_fields(client, kind, target))):
                raise GatesChangedError(kept)


def _list_words(paths: Iterable[str]) -> frozenset[str]:
    """Return the last words of paths of fields: what is above them differs between the dry run and a slice."""
    return frozenset(path.rpartition(".")[2] for path in paths)


async def _ask_for_dropped_fields(client: Client, kind: Kind[ResourceSlice], target: PublishTarget) -> frozenset[str]:
    sent = _build_full_slice(target)
    kept = await client.create(kind, sent, dry_run=True)
    return frozenset(find_dropped_fields(to_builtins(sent.spec), to_builtins(kept.spec)))


async def probe_list_attributes(client: Client, kind: Kind[ResourceSlice], target: PublishTarget) -> bool:
    """Return whether the API server takes attributes with lists (KEP-5491).

    With the gate DRAListTypeAttributes off it drops the lists, and then refuses the whole slice because of attributes
    without a value. Raises UnreachableError.
    """
    lists = {ATTRIBUTE_PCIE_ROOT: Attribute(strings=("pci0000:00",)), ATTRIBUTE_NUMA_NODE: Attribute(ints=(0,))}
    sent = _build_slice(target, (Device(name="listed", attributes=lists),))
    try:
        kept = await client.create(kind, sent, dry_run=True)
    except UnreachableError:
        raise
    except ApiError as error:
        _log.warning("PCIe root and NUMA node are published as single values: the API server takes no lists: %s", error)
        return False
    if find_dropped_fields(to_builtins(sent.spec), to_builtins(kept.spec)):
        _log.warning("PCIe root and NUMA node are published as single values: the API server drops lists")
        return False
    return True


def _build_full_slice(target: PublishTarget) -> ResourceSlice:
    """Build a slice with every field that a server may drop and Kerf's devices need, each in a device of its own."""
    conditions = BindingConditions.of_driver(target.driver)
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
        Device(name="tainted", taints=(DeviceTaint(key=f"{target.driver}/probe", effect="NoSchedule"),)),
    )
    is_combined = target.layout is SliceLayout.COMBINED
    return _build_slice(target, devices, (CounterSet(name="card", counters=counters),) if is_combined else ())


def _build_slice(
    target: PublishTarget, devices: tuple[Device, ...], counters: tuple[CounterSet, ...] = ()
) -> ResourceSlice:
    pool = pool_name(target.node, _PROBE)
    return ResourceSlice(
        metadata=ObjectMeta(name=slice_name(0, target.driver, target.node, pool)),
        spec=ResourceSliceSpec(
            driver=target.driver,
            pool=ResourcePool(name=pool, generation=1, resource_slice_count=1),
            node_name=target.node,
            devices=devices,
            shared_counters=counters,
        ),
    )
