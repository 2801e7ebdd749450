"""A stand-in for the kubelet: all that it does with DRA, over the real sockets, with containers that run nothing.

It follows ``k8s.io/kubernetes/pkg/kubelet/cm/dra`` and ``pkg/kubelet/pluginmanager``: plugins are found by their
sockets and used in the first supported version of their list; claims are prepared before the containers of a pod start
and unprepared after they have ended; what is prepared is forgotten at a restart; ResourceSlices of the node are deleted
at start and when a driver stays away. In place of a container it writes the OCI runtime spec that a runtime would get.

``node`` reconciles pods with ``claims`` (prepared claims) over ``plugins`` (registration) and ``containers`` (bundles).
"""

from kerf_dra.driver.local.kubelet.node import Kubelet, KubeletSettings

__all__ = ["Kubelet", "KubeletSettings"]
