"""The choice of nodes in a snapshot: which node Kerf prefers for a pod and why, and what packing would gain.

``node_preference`` ranks nodes by the rule of the scheduler extender (``kerf_dra.driver.placement``), where it is in
effect: ``kerf plan`` places pods by it. ``preferred_node`` explains it for one pod (``kerf why``), ``packed_cluster``
tries it for all claims at once (``kerf frag``). Must never do I/O.
"""
