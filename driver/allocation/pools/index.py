"""``PoolIndex``: all published slices, by pool and by node.

The order of pools and devices decides what first-fit takes: driver, pool name, slice name, position in the slice; pools
with binding conditions come last (``k8s.io/dynamic-resource-allocation/structured``, GatherPools).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kerf_dra.api.model.devices import DeviceTaintRule, DeviceTaintRuleSpec, ResourceSlice
from kerf_dra.driver.allocation.pools.gather import Pool, PoolView, TemplateInterner
from kerf_dra.driver.allocation.pools.interned_slices import CompactSlice, InternedSlices, pool_id_of
from kerf_dra.driver.allocation.pools.interning import PublishedSlice, SliceInterner
from kerf_dra.driver.allocation.semantics.allocated_state import PoolId
from kerf_dra.driver.allocation.semantics.outcomes import Features, NodeView


@dataclass(frozen=True, slots=True, eq=False)
class PoolIndex:
    """All published slices. Immutable: a change makes a new index, which shares every pool that did not change."""

    _pools: Mapping[PoolId, Pool]
    _of_node: Mapping[str, frozenset[PoolId]]
    """For each node the pools that have slices for this node by name."""
    _shared: frozenset[PoolId]
    """The pools with slices that are not for one node by name."""
    _rules: tuple[DeviceTaintRuleSpec, ...]
    _slices: SliceInterner
    _templates: TemplateInterner

    @classmethod
    def build(cls, slices: Iterable[ResourceSlice], taint_rules: Iterable[DeviceTaintRule] = ()) -> "PoolIndex":
        """Build the index of ``slices``, with the taints of ``taint_rules`` added to the devices.

        The slices themselves are not kept: an iterator may yield them without holding all of them in memory.
        """
        interned, templates = InternedSlices.of(slices), TemplateInterner()
        rules = tuple(rule.spec for rule in taint_rules)
        pools = {
            id_: Pool(id_, (each.published for each in of_pool), _rules_of(id_, rules), templates)
            for id_, of_pool in interned.by_pool.items()
        }
        of_node: dict[str, set[PoolId]] = defaultdict(set)
        for id_, pool in pools.items():
            for node in pool.nodes:
                of_node[node].add(id_)
        return cls(
            pools,
            {node: frozenset(ids) for node, ids in of_node.items()},
            frozenset(id_ for id_, pool in pools.items() if pool.is_shared),
            rules,
            interned.interner,
            templates,
        )

    def with_slice(self, changed: ResourceSlice | CompactSlice) -> "PoolIndex":
        """Return an index with one slice added, or replaced by name."""
        published = changed.published if isinstance(changed, CompactSlice) else self._slices.intern(changed)
        return self._with_pool(pool_id_of(changed), [*self._others(changed), published])

    def without_slice(self, removed: ResourceSlice | CompactSlice) -> "PoolIndex":
        """Return an index without the slice of that name and pool."""
        return self._with_pool(pool_id_of(removed), self._others(removed))

    def with_taint_rules(self, taint_rules: Iterable[DeviceTaintRule]) -> "PoolIndex":
        """Return an index with these taint rules in place of all others."""
        rules = tuple(rule.spec for rule in taint_rules)
        pools = {
            id_: Pool(id_, pool.slices, _rules_of(id_, rules), self._templates) for id_, pool in self._pools.items()
        }
        return replace(self, _pools=pools, _rules=rules)

    def nodes_of(self, pool: PoolId) -> frozenset[str]:
        """The nodes for which a pool has slices by name."""
        return found.nodes if (found := self._pools.get(pool)) is not None else frozenset()

    def is_shared(self, pool: PoolId) -> bool:
        """Whether a pool has slices that are not for one node by name."""
        return pool in self._shared

    def views(self, node: NodeView, features: Features) -> list[PoolView]:
        """The views of the pools that ``node`` can use some device of, in search order.

        Raises InvalidNodeSelectorError if a published node selector is invalid.
        """
        ids = {*self._of_node.get(node.name, ()), *self._shared}
        views = [view for id_ in sorted(ids) if (view := self._pools[id_].view(node, features)) is not None]
        return sorted(views, key=lambda view: view.template.device_sets.conditional != 0)

    def _others(self, slice_: ResourceSlice | CompactSlice) -> list[PublishedSlice]:
        pool = self._pools.get(pool_id_of(slice_))
        return [each for each in pool.slices if each.name != slice_.metadata.name] if pool else []

    def _with_pool(self, id_: PoolId, slices: Sequence[PublishedSlice]) -> "PoolIndex":
        before = self._pools.get(id_)
        pool = Pool(id_, slices, _rules_of(id_, self._rules), self._templates)
        pools = {**self._pools, id_: pool}
        if not slices:
            del pools[id_]
        of_node = dict(self._of_node)
        for node in before.nodes if before else ():
            of_node[node] -= {id_}
        for node in pool.nodes:
            of_node[node] = of_node.get(node, frozenset()) | {id_}
        shared = self._shared | {id_} if pool.is_shared else self._shared - {id_}
        return replace(self, _pools=pools, _of_node=of_node, _shared=shared)


def _rules_of(pool: PoolId, rules: Iterable[DeviceTaintRuleSpec]) -> tuple[DeviceTaintRuleSpec, ...]:
    """The rules that taint devices of a pool: a selector restricts only by what it names."""
    return tuple(
        rule
        for rule in rules
        if (selector := rule.device_selector) is None
        or (selector.driver in (None, pool.driver) and selector.pool in (None, pool.name))
    )
