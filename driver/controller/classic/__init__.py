"""The controller that allocates claims itself (KEP-3063) and negotiates nodes with the scheduler.

Terms, of KEP-3063: a claim is *reserved* for the pods that use it; a PodSchedulingContext holds the scheduler's
*potential nodes* and *selected node*, and for each of the pod's claims the drivers' *unsuitable nodes*.

A change queues claims and contexts (``event_handlers``). ``reconciler`` writes the plans of ``claims`` and
``scheduling_contexts``, which follow from ``requirements`` (the requested devices), ``allocator`` and ``placement``
(the chosen devices) and ``state`` (the free devices). Devices in use are derived from the claims (``usage``). Only
``app``, ``api`` and ``reconciler`` do I/O.
"""
