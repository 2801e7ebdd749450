"""``admissionregistration.k8s.io/v1``: whether an admission policy is in force, which its binding says."""

from kerf_dra.api.model.metadata import Object
from kerf_dra.api.wire import Kind, identity_kind


class MutatingAdmissionPolicyBinding(Object):
    """Puts a MutatingAdmissionPolicy into force (stable in Kubernetes 1.36); its spec is not read."""


MUTATING_ADMISSION_POLICY_BINDINGS: Kind[MutatingAdmissionPolicyBinding] = identity_kind(
    MutatingAdmissionPolicyBinding,
    group="admissionregistration.k8s.io",
    version="v1",
    plural="mutatingadmissionpolicybindings",
    namespaced=False,
)
