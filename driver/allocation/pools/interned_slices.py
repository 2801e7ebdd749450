"""``InternedSlices``: all slices of a cluster in interned form, each of which can be restored as it was published.

Problem: the decoded slices of a node with eight GPUs take a megabyte. In interned form they take some kilobytes, and a
slice is restored in a fraction of the time in which it was decoded; so a reader restores one pool at a time, and keeps
none.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import overload

from msgspec.structs import replace

from kerf_dra.api.model.devices import ResourcePool, ResourceSlice, ResourceSliceSpec
from kerf_dra.api.model.metadata import Object, ObjectMeta
from kerf_dra.driver.allocation.pools.interning import InternedSlice, PublishedSlice, SliceInterner
from kerf_dra.driver.allocation.semantics.allocated_state import PoolId


class CompactSlice(Object):
    """One slice in interned form, with what it takes to restore it."""

    pool: ResourcePool
    published: PublishedSlice

    @property
    def pool_id(self) -> PoolId:
        return PoolId(self.published.interned.spec.driver, self.pool.name)

    def restore(self) -> ResourceSlice:
        """Return the slice as it was published."""
        published = self.published
        spec = replace(
            published.interned.spec,
            pool=self.pool,
            node_name=published.node_name,
            devices=tuple(published.interned.restore_devices(published.strings)),
        )
        return ResourceSlice(metadata=self.metadata, spec=spec)


def pool_id_of(slice_: ResourceSlice | CompactSlice) -> PoolId:
    """Return the pool of a slice in either form."""
    return slice_.pool_id if isinstance(slice_, CompactSlice) else PoolId.of(slice_)


class SliceCompactor:
    """Turns slices into their interned form, one by one."""

    def __init__(self) -> None:
        self.interner = SliceInterner()

    def compact(self, slice_: ResourceSlice) -> CompactSlice:
        return CompactSlice(metadata=slice_.metadata, pool=slice_.spec.pool, published=self.interner.intern(slice_))


class InternedSlices(Sequence[ResourceSlice]):
    """The slices of a cluster, in their order. Reading one restores it; equal to any sequence of the same slices."""

    def __init__(self, slices: Iterable[CompactSlice], interner: SliceInterner) -> None:
        """``interner`` is the one with which ``slices`` were made."""
        self.compact = tuple(slices)
        """The slices in interned form."""
        self.interner = interner

    @classmethod
    def of(cls, slices: Iterable[ResourceSlice]) -> "InternedSlices":
        """Return ``slices`` in interned form, which they may have already."""
        if isinstance(slices, InternedSlices):
            return slices
        compactor = SliceCompactor()
        return cls(map(compactor.compact, slices), compactor.interner)

    def __len__(self) -> int:
        return len(self.compact)

    def __iter__(self) -> Iterator[ResourceSlice]:
        return (each.restore() for each in self.compact)

    @overload
    def __getitem__(self, index: int) -> ResourceSlice: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[ResourceSlice, ...]: ...

    def __getitem__(self, index: int | slice) -> ResourceSlice | tuple[ResourceSlice, ...]:
        if isinstance(index, slice):
            return tuple(each.restore() for each in self.compact[index])
        return self.compact[index].restore()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(self) != len(other):
            return NotImplemented
        return all(one == another for one, another in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # as of every sequence that is compared by its content

    def map_metadata(self, change: Callable[[ObjectMeta], ObjectMeta]) -> "InternedSlices":
        """Return the slices with changed metadata."""
        changed = (replace(each, metadata=change(each.metadata)) for each in self.compact)
        return InternedSlices(changed, self.interner)

    @cached_property
    def by_pool(self) -> Mapping[PoolId, Sequence[CompactSlice]]:
        """The slices of each pool, of all generations, in interned form."""
        by_pool: dict[PoolId, list[CompactSlice]] = defaultdict(list)
        for each in self.compact:
            by_pool[each.pool_id].append(each)
        return dict(by_pool)

    def of_pool(self, pool: PoolId) -> tuple[ResourceSlice, ...]:
        """Restore the slices of all generations of a pool."""
        return tuple(each.restore() for each in self.by_pool.get(pool, ()))

    def newest_of_pool(self, pool: PoolId) -> tuple[ResourceSlice, ...]:
        """Restore the slices of the newest generation of a pool."""
        slices = self.by_pool.get(pool, ())
        newest = max((each.pool.generation for each in slices), default=0)
        return tuple(each.restore() for each in slices if each.pool.generation == newest)

    @cached_property
    def contents(self) -> tuple[ResourceSliceSpec, ...]:
        """Each different content once: specs whose pool, node name and attribute strings must not be read."""
        interned: dict[InternedSlice, None] = dict.fromkeys(each.published.interned for each in self.compact)
        return tuple(each.spec for each in interned)

    def restore_one_of_each(self) -> Iterator[ResourceSlice]:
        """Restore the first slice of each different content; others differ from it in attribute strings and names."""
        first = {each.published.interned: each for each in reversed(self.compact)}
        return (each.restore() for each in first.values())
