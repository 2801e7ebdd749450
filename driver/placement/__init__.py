"""The choice of a node for a pod by its devices: pure functions over the allocator's view of a cluster.

``placement_value`` ranks what the pod would get on a node by what that takes from later pods, ``node_scores`` makes
the scores of kube-scheduler's extenders of these ranks. The controller's extender applies the rule, and diagnostics
predict and explain it. Must never do I/O, or import the programs that use it.

Terms: a card's *placement value* and a placement's *loss* are those of the publish order
(``kerf_dra.driver.partitions.unit_map``); a *rank* orders nodes, the lower one is better; a *score* is what
kube-scheduler adds to its own, the higher one is better.
"""
