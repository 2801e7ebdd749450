"""Why a pod or a claim waits for devices: the obstacles on each node, and which claims would have to end.

Data flow: ``pod_claims`` (the pod's claims) -> ``node_check`` (the obstacles on one node) -> ``victims`` (claims whose
end would help) -> ``why`` (the verdict); ``report`` has the types of the document that results.
"""
