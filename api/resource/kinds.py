"""The kinds of a version of ``resource.k8s.io`` in which the scheduler allocates claims."""

from dataclasses import dataclass
from typing import Final

from kerf_dra.api.model.claims import AllocatedClaim, DeviceClass, ResourceClaim, ResourceClaimTemplate
from kerf_dra.api.model.devices import DeviceTaintRule, ResourceSlice
from kerf_dra.api.model.metadata import ObjectT
from kerf_dra.api.wire import Kind, identity_kind

GROUP: Final = "resource.k8s.io"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceKinds:
    """The kinds of one version. ``device_taint_rules`` may be served in another version, or not at all."""

    version: str
    resource_claims: Kind[ResourceClaim]
    resource_claim_templates: Kind[ResourceClaimTemplate]
    device_classes: Kind[DeviceClass]
    resource_slices: Kind[ResourceSlice]
    device_taint_rules: Kind[DeviceTaintRule]


def allocated_claim_kind(version: str) -> Kind[AllocatedClaim]:
    """Build the kind of claims without their specs; their status has the same shape in every version."""
    return identity_kind(
        AllocatedClaim, group=GROUP, version=version, plural="resourceclaims", namespaced=True, kind="ResourceClaim"
    )


def kinds_of_model_shape(version: str) -> ResourceKinds:
    """Build the kinds of a version whose JSON has the model's own shape."""

    def kind(type_: type[ObjectT], plural: str, *, namespaced: bool) -> Kind[ObjectT]:
        return identity_kind(type_, group=GROUP, version=version, plural=plural, namespaced=namespaced)

    return ResourceKinds(
        version=version,
        resource_claims=kind(ResourceClaim, "resourceclaims", namespaced=True),
        resource_claim_templates=kind(ResourceClaimTemplate, "resourceclaimtemplates", namespaced=True),
        device_classes=kind(DeviceClass, "deviceclasses", namespaced=False),
        resource_slices=kind(ResourceSlice, "resourceslices", namespaced=False),
        device_taint_rules=kind(DeviceTaintRule, "devicetaintrules", namespaced=False),
    )
