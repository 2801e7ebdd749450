"""What the drivers publish, as one node sees it.

The order decides what first-fit takes: driver, pool name, slice name, position in the slice; pools with binding
conditions come last (``k8s.io/dynamic-resource-allocation/structured``, GatherPools).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from api.model.devices import DeviceTaintRule, DeviceTaintRuleSpec, ResourceSlice
from driver.allocation.pools.gather import Layouts, Pool
from driver.allocation.pools.interning import PublishedSlice, Shapes
from driver.allocation.pools.pool_view import PoolView
from driver.allocation.semantics.allocated_state import PoolId
from driver.allocation.semantics.outcomes import Features, NodeView


class Inventory:
    """All published slices. Immutable: a change gives a new inventory, which shares every pool that did not change."""

    def __init__(
        self,
        pools: Mapping[PoolId, Pool],
        of_node: Mapping[str, frozenset[PoolId]],
        shared: frozenset[PoolId],
        rules: tuple[DeviceTaintRuleSpec, ...],
        shapes: Shapes,
        layouts: Layouts,
    ) -> None:
        self._pools = pools
        self._of_node = of_node
        """Pools with slices for one node by its name."""
        self._shared = shared
        """Pools with other slices."""
        self._rules = rules
        self._shapes = shapes
        self._layouts = layouts

    @classmethod
    def build(cls, slices: Iterable[ResourceSlice], taint_rules: Iterable[DeviceTaintRule] = ()) -> "Inventory":
        """The inventory of all ``slices``, with the taints of ``taint_rules`` added to the devices.

        The slices themselves are not kept: given one after the other, they need not be in memory together.
        """
        shapes, layouts = Shapes(), Layouts()
        grouped: dict[PoolId, list[PublishedSlice]] = defaultdict(list)
        for slice_ in slices:
            grouped[PoolId.of(slice_)].append(shapes.publish(slice_))
        rules = tuple(rule.spec for rule in taint_rules)
        pools = {id_: Pool(id_, of_pool, _rules_of(id_, rules), layouts) for id_, of_pool in grouped.items()}
        of_node: dict[str, set[PoolId]] = defaultdict(set)
        for id_, pool in pools.items():
            for node in pool.nodes:
                of_node[node].add(id_)
        return cls(
            pools=pools,
            of_node={node: frozenset(ids) for node, ids in of_node.items()},
            shared=frozenset(id_ for id_, pool in pools.items() if pool.is_shared),
            rules=rules,
            shapes=shapes,
            layouts=layouts,
        )

    def with_slice(self, changed: ResourceSlice) -> "Inventory":
        """The same inventory with one slice added, or replaced by its name."""
        return self._with_pool(PoolId.of(changed), [*self._others(changed), self._shapes.publish(changed)])

    def without_slice(self, removed: ResourceSlice) -> "Inventory":
        """The same inventory without the slice of that name and pool."""
        return self._with_pool(PoolId.of(removed), self._others(removed))

    def with_taint_rules(self, taint_rules: Iterable[DeviceTaintRule]) -> "Inventory":
        """The same inventory with the taints of these rules in place of others."""
        rules = tuple(rule.spec for rule in taint_rules)
        pools = {id_: Pool(id_, pool.slices, _rules_of(id_, rules), self._layouts) for id_, pool in self._pools.items()}
        return Inventory(
            pools=pools,
            of_node=self._of_node,
            shared=self._shared,
            rules=rules,
            shapes=self._shapes,
            layouts=self._layouts,
        )

    def nodes_of(self, pool: PoolId) -> frozenset[str]:
        """The nodes that slices of a pool are for by name."""
        return found.nodes if (found := self._pools.get(pool)) is not None else frozenset()

    def is_shared(self, pool: PoolId) -> bool:
        """Whether a pool has slices that are not for one node by its name."""
        return pool in self._shared

    def views(self, node: NodeView, features: Features) -> list[PoolView]:
        """The pools that ``node`` can use something of, in search order. Raises InvalidNodeSelectorError."""
        ids = {*self._of_node.get(node.name, ()), *self._shared}
        views = [view for id_ in sorted(ids) if (view := self._pools[id_].view(node, features)) is not None]
        return sorted(views, key=lambda view: view.layout.traits.conditional != 0)

    def _others(self, slice_: ResourceSlice) -> list[PublishedSlice]:
        pool = self._pools.get(PoolId.of(slice_))
        return [each for each in pool.slices if each.name != slice_.metadata.name] if pool else []

    def _with_pool(self, id_: PoolId, slices: Sequence[PublishedSlice]) -> "Inventory":
        before = self._pools.get(id_)
        pool = Pool(id_, slices, _rules_of(id_, self._rules), self._layouts)
        pools = {**self._pools, id_: pool}
        if not slices:
            del pools[id_]
        of_node = dict(self._of_node)
        for node in before.nodes if before else ():
            of_node[node] -= {id_}
        for node in pool.nodes:
            of_node[node] = of_node.get(node, frozenset()) | {id_}
        shared = self._shared | {id_} if pool.is_shared else self._shared - {id_}
        return Inventory(
            pools=pools,
            of_node=of_node,
            shared=shared,
            rules=self._rules,
            shapes=self._shapes,
            layouts=self._layouts,
        )


def _rules_of(pool: PoolId, rules: Iterable[DeviceTaintRuleSpec]) -> tuple[DeviceTaintRuleSpec, ...]:
    """The rules that taint devices of a pool; what a rule does not name, it does not restrict."""
    return tuple(
        rule
        for rule in rules
        if (selector := rule.device_selector) is None
        or (selector.driver in (None, pool.driver) and selector.pool in (None, pool.name))
    )
