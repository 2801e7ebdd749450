"""The controller, one for each cluster: it serves the generation of DRA that the cluster has.

Terms: *structured* parameters, where kube-scheduler allocates (KEP-4381, Kubernetes 1.32 and later), and *classic* DRA,
where drivers do (KEP-3063, 1.27 to 1.31). ``app`` discovers which generation the cluster has; ``candidate`` has the
parts that both run around their work, ``device_types`` the rules by which both reject hardware that cannot exist,
``node_choice`` those by which both choose nodes, ``settings`` are for both. The data flow of each generation:

    informers -> event handlers -> work queue of keys -> reconciler (in the leader) -> plan (pure) -> writes, events

``structured`` and ``classic`` never import one another; nothing here imports the kubelet plugin or the embedded
cluster.
"""
