"""A Kubernetes API server in memory: the one of ``kerf demo``, and of tests.

It keeps objects as JSON documents, so that fields it has never heard of survive, and behaves like kube-apiserver 1.37
in what clients can see: status codes and messages, resource versions, watches, patches, field ownership, admission.
Left out on purpose: authentication, authorization, protobuf, webhooks.
"""

from driver.local.apiserver.faults import FaultPlan, InjectedFault
from driver.local.apiserver.http.server import ApiServer
from driver.local.apiserver.settings import ApiServerSettings

__all__ = ["ApiServer", "ApiServerSettings", "FaultPlan", "InjectedFault"]
