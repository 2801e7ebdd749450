"""Where kube-scheduler allocates: ResourceClasses (``kerf.dev``) are compiled into DeviceClasses (KEP-4381).

A change of a class, slice or node queues class names (``event_handlers``). ``reconciler`` has ``plan`` and
``class_compiler`` decide, ``writer`` write, ``matching_devices`` count and ``status`` say what came of it.
``orphaned_slices`` deletes the slices of deleted nodes.
"""
