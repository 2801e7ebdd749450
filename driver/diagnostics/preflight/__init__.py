"""The checks of `kerf check`: what Kerf needs of a cluster and of a node, before and after it is installed.

Data flow: the command reads facts (``cluster.ClusterFacts``, ``node.NodeFacts``) -> checks, pure functions over them ->
``results.CheckResult``, each with what to do. A fact that could not be read is the reason why, as a string in place of
the value: a check says so, and does not guess.

Must never do I/O: the readers of the facts are in ``driver/cli/check``.
"""
