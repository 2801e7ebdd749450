"""The kubelet's own account of the pods that run on its node, and of what they have (KEP-606)."""
