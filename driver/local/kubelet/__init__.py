"""A stand-in for the kubelet: everything it does with DRA, over the real sockets; its containers run nothing.

It follows ``k8s.io/kubernetes/pkg/kubelet/cm/dra`` and ``pkg/kubelet/pluginmanager``: plugins are found by their
sockets, the first supported version of the plugin's own list is used, claims are prepared before a pod's containers
start and unprepared after they have ended, what is prepared is forgotten at a restart, and the node's slices are
deleted at start and when a driver stays away. In place of a container it makes the OCI runtime spec of it.
"""

from driver.local.kubelet.node import Kubelet, KubeletSettings

__all__ = ["Kubelet", "KubeletSettings"]
