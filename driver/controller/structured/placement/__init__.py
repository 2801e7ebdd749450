"""The scheduler extender: it scores nodes by what the partitions that a pod would get there take from later pods.

Problem: kube-scheduler chooses a pod's node by scores that ignore devices, so partitions end up on all cards, and few
cards stay whole. A kubelet plugin orders the devices of its own node only (``publish_order``).

Goal: of the nodes on which a pod fits, prefer the one where the rank of the pod's placement is best
(``kerf_dra.driver.placement.node_ranks``): by default, and where its ResourceClasses say ``Packed``, the least loss of
placement value, then the fullest card (KEEP, docs/placement.md). Whatever happens to the extender, kube-scheduler
allocates, and schedules as it does without one.

Non-goals: to filter nodes, to bind pods, to reserve or allocate devices, to take account of what is loaded on FPGAs
(the publish order of the node does) or of DeviceTaintRules.

Interface: the scheduler extender of kube-scheduler (``k8s.io/kube-scheduler/extender/v1``), ``prioritize`` only, over
HTTPS with client certificates, in every replica of the controller, leading or not::

    {"Pod": {...}, "NodeNames": ["a", "b"]}  ->  [{"Host": "a", "Score": 10}, {"Host": "b", "Score": 9}]

Data flow: informers -> ``placement_index`` (the allocator over all nodes) -> ``kerf_dra.driver.placement`` (the rank
of what a node would give, and the scores, pure) -> ``scheduler_extender`` (one request) -> ``extender_server`` (TLS and
limits).

What can go wrong, and what follows: the extender is stopped, slow or refuses: kube-scheduler ignores errors of
``prioritize`` and times out. The informers lag behind the scheduler, or slices are incomplete: a node gets a score for
devices that it no longer has, or none; the scheduler filters and allocates by itself. Time runs out: nodes that were
not tried get the score 0. The pod has no devices, a claim that the informers do not show yet, or classes that ask for
no preference: every node gets 0.
Replicas see different states for a moment: each score is valid by itself.

Never imports the kubelet plugin, diagnostics, or the embedded cluster. Only imported where the extender is enabled,
because the allocator loads CEL (40 MB).
"""
