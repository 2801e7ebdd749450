"""The plan of writes that turn the published ResourceSlices of a pool into the desired ones (KEP-4381).

A consumer accepts a pool when it has seen as many slices of the pool's highest generation as ``resourceSliceCount``
says. From this follow the rules:

- A slice is identified by its name, which is the same for the same position in the same pool. It begins with the
  position: the scheduler takes slices by name, and so in the order of the pool.
- One changed slice is one update at the same generation: it is atomic for every consumer. The same holds for slices
  that are missing or of an older generation: until the last of them is written the pool is incomplete.
- Every other change raises the generation, and every slice is written again.
- Deletes go first, then updates, then creates, so that there are never too many slices. After an interruption between
  any two writes the next plan continues from there.
- Taints keep the time that the server gave them when they were added, wherever in the pool their device moves.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from msgspec.structs import replace

from kerf_dra.api.errors import Problem
from kerf_dra.api.model.devices import (
    CounterSet,
    Device,
    DeviceTaint,
    Pool,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
    SliceContent,
)
from kerf_dra.api.model.metadata import ObjectMeta, OwnerReference
from kerf_dra.api.model.names import MAX_SUBDOMAIN

_DIGEST: Final = 8
"""Hex digits that distinguish pools and shortened names: a node has a handful of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedSlice:
    """A slice from which the server dropped fields: writing it again would change nothing."""

    sent: ResourceSliceSpec
    kept: ResourceSliceSpec
    dropped: tuple[str, ...]
    """The paths of the dropped fields in ``spec``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceContext:
    """The owner of the slices, and what is known of earlier writes."""

    driver: str
    node_name: str
    owner: OwnerReference
    generations: Mapping[str, int]
    """The highest generation ever written, by pool."""
    accepted: Mapping[str, AcceptedSlice]
    """The slices from which the server dropped fields, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSlice:
    """The creation of a slice."""

    value: ResourceSlice


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateSlice:
    """The replacement of a slice that is still at the resource version in ``value``."""

    value: ResourceSlice


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteSlice:
    """The deletion of a slice that is still as it was seen."""

    name: str
    uid: str
    resource_version: str


Write: TypeAlias = DeleteSlice | UpdateSlice | CreateSlice


def plan_pool(pool: Pool | None, existing: Iterable[ResourceSlice], context: SliceContext) -> tuple[Write, ...]:
    """Return the writes, in the order to do them, that turn the ``existing`` slices of one pool into ``pool``.

    ``pool`` is None when it should not exist. The result is empty when nothing is to be written.
    """
    existing = sorted(existing, key=lambda value: value.spec.pool.generation)
    names = _names(pool, context)
    ours = {value.metadata.name: value for value in existing if value.metadata.name in names}
    deletes = [_delete(value) for value in existing if value.metadata.name not in names]
    if pool is None:
        return tuple(deletes)
    used = context.generations.get(pool.name, 0)
    highest = max((used, *(value.spec.pool.generation for value in existing)))
    current = {name: value for name, value in ours.items() if value.spec.pool.generation == highest}

    times = _times(existing)
    wanted = dict(zip(names, _specs(pool, context, highest, times), strict=True))
    stale = {name for name, value in current.items() if not _is_as_wanted(value, wanted[name], context)}
    missing = [name for name in names if name not in current]
    keeps_generation = bool(current) and (not stale or (len(stale) == 1 and not missing))
    if not keeps_generation:
        wanted = dict(zip(names, _specs(pool, context, highest + 1, times), strict=True))

    to_write = [name for name in names if not keeps_generation or name in stale or name not in current]
    updates = [UpdateSlice(value=_updated(ours[name], wanted[name], context)) for name in to_write if name in ours]
    creates = [CreateSlice(value=_created(name, wanted[name], context)) for name in to_write if name not in ours]
    return (*deletes, *updates, *creates)


def slice_name(index: int, driver: str, node_name: str, pool: str) -> str:
    """Return a name such as ``00002-kerf.dev-node-1-3fa8c1d2``: sorted by ``index``, and the same in every process.

    Names that would be too long are shortened; the digest of all parts keeps them distinct.
    """
    digest = hashlib.sha256(f"{driver}\n{node_name}\n{pool}".encode()).hexdigest()[:_DIGEST]
    readable = f"{index:05x}-{driver}-{node_name}"[: MAX_SUBDOMAIN - _DIGEST - 1].rstrip("-.")
    return f"{readable}-{digest}"


def find_pool_problems(pool: Pool) -> tuple[Problem, ...]:
    """Find problems for which consumers would reject the whole pool: the API server does not check across slices."""
    devices = [device for content in pool.slices for device in content.devices]
    sets = [counters for content in pool.slices for counters in content.shared_counters]
    counters_of = {counters.name: counters.counters for counters in sets}
    return (
        *(Problem(f"devices[{name}]", "two devices have this name") for name in _repeated(devices)),
        *(Problem(f"sharedCounters[{name}]", "two counter sets have this name") for name in _repeated(sets)),
        *(
            Problem(
                f"devices[{device.name}].consumesCounters", f"the pool has no counter {counters.counter_set}/{name}"
            )
            for device in devices
            for counters in device.consumes_counters
            for name in counters.counters
            if name not in counters_of.get(counters.counter_set, {})
        ),
    )


def _repeated(named: Iterable[Device | CounterSet]) -> Iterator[str]:
    return (name for name, times in Counter(item.name for item in named).items() if times > 1)


def _contents(pool: Pool) -> tuple[SliceContent, ...]:
    """Return the content of each slice, of at least one: a pool without slices would be an unknown one."""
    return pool.slices or (SliceContent(),)


def _names(pool: Pool | None, context: SliceContext) -> list[str]:
    if pool is None:
        return []
    return [slice_name(i, context.driver, context.node_name, pool.name) for i, _ in enumerate(_contents(pool))]


_TaintKey: TypeAlias = tuple[str, str, str, str]


def _taint_key(device: Device, taint: DeviceTaint) -> _TaintKey:
    return (device.name, taint.key, taint.value, taint.effect)


def _times(existing: Iterable[ResourceSlice]) -> dict[_TaintKey, str]:
    """Return when taints were added; of several generations the last one in ``existing`` decides."""
    return {
        _taint_key(device, taint): taint.time_added
        for value in existing
        for device in value.spec.devices
        for taint in device.taints
        if taint.time_added is not None
    }


def _specs(
    pool: Pool, context: SliceContext, generation: int, times: Mapping[_TaintKey, str]
) -> Iterator[ResourceSliceSpec]:
    contents = _contents(pool)
    place = ResourcePool(name=pool.name, generation=generation, resource_slice_count=len(contents))
    for content in contents:
        yield ResourceSliceSpec(
            driver=context.driver,
            pool=place,
            node_name=context.node_name,
            devices=tuple(_with_times(device, times) for device in content.devices),
            shared_counters=content.shared_counters,
        )


def _with_times(device: Device, times: Mapping[_TaintKey, str]) -> Device:
    if not device.taints:
        return device
    taints = (
        replace(taint, time_added=taint.time_added or times.get(_taint_key(device, taint))) for taint in device.taints
    )
    return replace(device, taints=tuple(taints))


def _is_as_wanted(value: ResourceSlice, wanted: ResourceSliceSpec, context: SliceContext) -> bool:
    if context.owner not in value.metadata.owner_references:
        return False
    if value.spec == wanted:
        return True
    accepted = context.accepted.get(value.metadata.name)
    return accepted is not None and value.spec == accepted.kept and _timeless(wanted) == _timeless(accepted.sent)


def _timeless(spec: ResourceSliceSpec) -> ResourceSliceSpec:
    devices = (
        replace(device, taints=tuple(replace(taint, time_added=None) for taint in device.taints))
        for device in spec.devices
    )
    return replace(spec, devices=tuple(devices))


def _delete(value: ResourceSlice) -> DeleteSlice:
    metadata = value.metadata
    return DeleteSlice(name=metadata.name, uid=metadata.uid, resource_version=metadata.resource_version)


def _updated(value: ResourceSlice, spec: ResourceSliceSpec, context: SliceContext) -> ResourceSlice:
    """Return ``value`` with ``spec``; labels, annotations and finalizers of others stay."""
    return ResourceSlice(metadata=replace(value.metadata, owner_references=(context.owner,)), spec=spec)


def _created(name: str, spec: ResourceSliceSpec, context: SliceContext) -> ResourceSlice:
    return ResourceSlice(metadata=ObjectMeta(name=name, owner_references=(context.owner,)), spec=spec)
