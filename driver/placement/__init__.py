"""The choice of a node for a pod by its devices: pure functions over the allocator's view of a cluster.

Data flow: claims and ResourceClasses -> ``class_placement`` (which placement the pod has: Packed, Spread or None) ->
``node_ranks`` (a rank for each node on which it fits, by ``placement_value``, what its devices take from later pods, or
by ``class_use``, what its classes hold) -> ``node_scores`` (the scores of kube-scheduler's extenders). The controller's
extender applies the rule, and diagnostics predict and explain it. Must never do I/O, or import the programs that use
it.

Terms: a card's *placement value* and a placement's *loss* are those of the publish order
(``kerf_dra.driver.partitions.unit_map``); a *rank* orders nodes, the lower one is better; a *score* is what
kube-scheduler adds to its own, the higher one is better.
"""
