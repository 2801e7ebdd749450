"""The kubelet's plugin registration service."""
