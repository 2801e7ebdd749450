"""Why a pod or a claim waits, does not start or does not end, and what to do about it.

Data flow: ``pod_claims`` (the pod's claims) -> what holds it up: ``node_check`` and ``victims`` before allocation (the
obstacles on each node, the claims whose end would help), ``class_faults``, then ``pod_start``, ``device_faults`` and
``double_allocation`` until it runs, ``deletion`` at its end; ``events`` (what kubelets, runtimes and plugins report) at
each stage; ``classic_claims`` where drivers allocate -> ``why`` (the verdict). ``report`` has the types of the document
that results, and the closed list of reason codes.
"""
