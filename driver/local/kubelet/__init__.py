"""A stand-in for the kubelet: all that it does with devices, over the real sockets, with containers that run nothing.

It follows ``k8s.io/kubernetes/pkg/kubelet/cm/dra`` and ``pkg/kubelet/pluginmanager``: plugins are found by their
sockets and used in the first supported version of their list; claims are prepared before the containers of a pod start
and unprepared after they have ended; what is prepared is forgotten at a restart; ResourceSlices of the node are deleted
at start and when a driver stays away. In place of a container it writes the OCI runtime spec that a runtime would get.

Extended resources follow ``pkg/kubelet/cm/devicemanager``: device plugins register at a socket and list devices, which
are allocated when a pod is admitted, and ``v1.PodResourcesLister`` says what pods have.

``node`` reconciles pods with ``claims`` (prepared claims) over ``plugins`` (registration), ``device_allocations``
(allocated devices, by ``device_choice``, pure) over ``device_plugins`` (registration and lists), and ``containers``
(bundles); ``pod_resources`` serves the account of both.
"""

from kerf_dra.driver.local.kubelet.node import Kubelet, KubeletSettings

__all__ = ["Kubelet", "KubeletSettings"]
