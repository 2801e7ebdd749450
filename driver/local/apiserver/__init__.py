"""A Kubernetes API server in memory, for ``kerf demo`` and for tests.

It stores objects as JSON documents, so that unknown fields survive, and behaves like kube-apiserver 1.37 in what
clients can see: status codes and messages, resource versions, watches, patches, field ownership, admission.
Authentication, authorization and webhooks are left out.

A request passes ``http`` (path, options, verbs), ``registry`` (create, update, patch, delete, get, list, watch) and
``storage``. On the way the ``kinds`` (built-in) or ``crd`` (custom) give it a kind with strategy, merge schema and
printer columns; ``admission`` may deny it; ``meta`` does the work on documents. It imports of ``driver`` only
``kerf_dra.driver.cel`` and ``kerf_dra.driver.allocation``, whose CEL compiler checks device selectors.
"""

from kerf_dra.driver.local.apiserver.faults import FaultPlan, InjectedFault
from kerf_dra.driver.local.apiserver.http.server import ApiServer
from kerf_dra.driver.local.apiserver.settings import ApiServerSettings

__all__ = ["ApiServer", "ApiServerSettings", "FaultPlan", "InjectedFault"]
