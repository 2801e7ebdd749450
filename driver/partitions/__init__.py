"""Partitions of GPUs and FPGAs: which partitions a card can have, and how they are published. The package is pure.

Terms: a *unit* is a memory slice of a GPU (NVIDIA MIG) or a slot of an FPGA; a *placement* is a contiguous run of
units; a *profile* is a MIG GPU-instance profile; a *function* is an FPGA image; a *partition* is a profile, a function
or a bare run of slots at a placement, or the whole card. Pools, slices, devices and counter sets are those of KEP-4381
and KEP-4815.

Data flow: ``catalog`` or a backend gives a card's ``geometry``; ``partition_specs`` lists its possible partitions;
``unit_map`` computes with sets of its units; ``publish_order`` sorts the partitions; ``pool_compiler`` makes a pool of
devices from them, with ``device_names``, ``device_attributes`` and ``shared_devices``; ``slice_limits`` checks it.
``fragmentation`` measures the free units of cards.

The package imports no wire formats, no ``driver.kube``, no ``driver.runtime`` and nothing that does I/O.
"""
