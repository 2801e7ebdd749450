"""The kubelet plugin: one process per node that partitions and loads cards, and prepares devices for claims.

An *instance* is one process; in a rolling update two overlap, of which one is *active* (``handover``). ``app`` starts
the process and ``instance`` its sockets; while it is active, ``plugin`` wires the parts that do the work. The kubelet's
calls pass ``grpc``, ``handover``, ``claims`` and ``backends``; cards pass ``backends``, ``inventory`` and ``cluster``
on their way to the API server. The package never imports ``kerf_dra.driver.controller``.
"""
