"""Partitions of cards: which partitions a card can have, and how they are published. The package is pure.

Terms: a *unit* is the smallest part of a card, such as a memory slice of a GPU (NVIDIA MIG) or a slot of an FPGA; a
*placement* is a set of units, mostly a run; a *layout* is one of several ways in which a card can be divided into
units, of which it has one at a time; a *profile* is a kind of partition that the hardware knows, a *function* one that
is loaded; a *partition* is a profile, a function or a bare set of units at a placement, or the whole card. Pools,
slices, devices and counter sets are those of KEP-4381 and KEP-4815. The package knows no family of devices: what a card
can be partitioned into is a ``Geometry``, which attributes its devices have a ``Vocabulary``.

Data flow: a family or a backend gives a card's ``geometry`` with its possible partitions; ``unit_map`` computes with
sets of its units; ``publish_order`` sorts the partitions; ``pool_compiler`` makes a pool of devices from them, with
``device_names``, ``device_attributes`` and ``shared_devices``; ``slice_limits`` checks it. ``fragmentation`` measures
the free units of cards. ``records`` and ``recorded_cards`` convert partitions and cards to what records of claims have
of them, and back. ``card_pictures`` draws the cards of any driver from what is published and allocated.

There is one pool for each node and family (``node-1/gpu``). One shared counter for each unit keeps overlapping
partitions apart, and layouts of which a card has one at a time; a GPU's devices also consume its ``memory`` and
``multiprocessors``, so that a quota system can sum one counter. kube-scheduler takes the first device that matches, so
the order in slices is Kerf's packing policy: the smallest partition first, within a size by the KEEP rule (least loss
of future placements), loaded functions first, whole cards last. Every device has exactly the attributes and capacities
of its vocabulary, with a neutral value where one has no meaning: in CEL a missing attribute is a run-time error, which
ends a pod's scheduling attempt. ``tests/partitions`` compares all this by brute force with a geometry of its own.

The package imports no wire formats, no ``kerf_dra.driver.kube``, no
``kerf_dra.driver.runtime`` and nothing that does I/O.
"""
