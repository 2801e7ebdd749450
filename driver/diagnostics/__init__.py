"""Diagnostics of a cluster's devices: why a pod waits, what would fit, and how fragmented the cards are.

Data flow: ``collector`` (the only I/O) or a ``dump`` -> ``cluster_state`` (a snapshot) -> ``cluster_index`` (indexes,
and the allocator over them) -> a report of ``explain`` (``kerf why``), ``plan`` or ``frag``. Reports are pure functions
of the snapshot. Everything that they state has been verified with the allocator, which agrees with kube-scheduler.

Must never import ``kerf_dra.driver.local``, ``kerf_dra.driver.controller`` or ``kerf_dra.driver.kubeletplugin``; only
``collector`` imports ``kerf_dra.driver.kube``.
"""
