"""Where drivers allocate (KEP-3063): claims are allocated and deallocated, and nodes negotiated with the scheduler.

Terms, of KEP-3063: a claim is *reserved* for the pods that use it; a PodSchedulingContext holds the scheduler's
*potential nodes* and *selected node*, and for each of the pod's claims the drivers' *unsuitable nodes*.

A change queues claims and contexts (``event_handlers``). ``reconciler`` writes what ``claims`` and
``scheduling_contexts`` plan, over ``requirements`` (what is requested), ``allocator`` and ``placement`` (which devices)
and ``state`` (what is free). What is in use is derived from the claims (``usage``). Only ``app``, ``api`` and
``reconciler`` do I/O.
"""
