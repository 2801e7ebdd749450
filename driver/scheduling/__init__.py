"""Rules of kube-scheduler that several of Kerf's programs apply: pure functions of API objects.

``node_filter`` is its Filter step without devices, ``resource_fit`` its count of CPU, memory and other resources,
``binding_conditions`` its PreBind step (KEP-5007), ``extended_resources`` its implicit claims (KEP-5004),
``scheduler_faults`` the known faults of its releases; ``label_selector`` is ``metav1.LabelSelector``;
``ineffective_fields`` finds what it allocates and no container gets, ``size_notes`` sizes that were hardly meant,
``selector_problems`` CEL that the API server would refuse. The embedded scheduler, diagnostics, the controller and the
kubelet plugin use them. Must never import ``kerf_dra.driver.kube`` or do I/O.
"""
