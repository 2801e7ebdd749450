"""Why a pod or a claim waits, does not start or does not end, and what to do about it.

Data flow: ``pod_claims`` (the pod's claims) -> what holds it up: ``node_check`` and ``victims`` before allocation (the
obstacles on each node, the claims whose end would help), ``class_faults``, ``node_events`` (cards that plugins of Kerf
withhold), then ``pod_start``, ``device_faults``, ``container_devices`` (what the pod's status and the runtime say) and
``double_allocation``, ``deletion`` at its end; ``classic_claims`` where drivers allocate -> ``why`` (the verdict).
``kubelet_messages`` tells a kubelet's own errors from those of a driver's plugin. ``report`` has the types of the
document that results, and the closed list of reason codes.
"""
