"""The controller of structured DRA: it compiles ResourceClasses (``kerf.dev``) into DeviceClasses (KEP-4381).

A change of a class, slice or node queues class names (``event_handlers``). ``reconciler`` calls ``plan`` and
``class_compiler`` to decide, ``writer`` to write, ``matching_devices`` to count the groups of devices that
``device_groups`` keeps of slices, and ``status`` to report the result. ``orphaned_slices`` deletes the slices of
deleted nodes. ``placement`` is the scheduler extender; ``placement_verdict`` judges whether it, or the policy that
``graded_placement`` looks for, puts the placement of a class into effect.
"""
