"""What a version of ``resource.k8s.io`` offers: one kind descriptor for each object that Kerf reads or writes."""

from dataclasses import dataclass
from typing import Final

from api.model.claims import AllocatedClaim, DeviceClass, ResourceClaim, ResourceClaimTemplate
from api.model.devices import DeviceTaintRule, ResourceSlice
from api.wire import Kind, identity_kind

GROUP: Final = "resource.k8s.io"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceKinds:
    """The DRA kinds of one wire version. ``device_taint_rules`` may be served in another version, or not at all."""

    version: str
    resource_claims: Kind[ResourceClaim]
    resource_claim_templates: Kind[ResourceClaimTemplate]
    device_classes: Kind[DeviceClass]
    resource_slices: Kind[ResourceSlice]
    device_taint_rules: Kind[DeviceTaintRule]


def allocated_claim_kind(version: str) -> Kind[AllocatedClaim]:
    """Claims by what they got, which has the same shape in every version."""
    return identity_kind(
        AllocatedClaim, group=GROUP, version=version, plural="resourceclaims", namespaced=True, kind="ResourceClaim"
    )


def kinds_of_model_shape(version: str) -> ResourceKinds:
    """The kinds of a version whose JSON is the model's own shape."""
    return ResourceKinds(
        version=version,
        resource_claims=identity_kind(
            ResourceClaim, group=GROUP, version=version, plural="resourceclaims", namespaced=True
        ),
        resource_claim_templates=identity_kind(
            ResourceClaimTemplate, group=GROUP, version=version, plural="resourceclaimtemplates", namespaced=True
        ),
        device_classes=identity_kind(
            DeviceClass, group=GROUP, version=version, plural="deviceclasses", namespaced=False
        ),
        resource_slices=identity_kind(
            ResourceSlice, group=GROUP, version=version, plural="resourceslices", namespaced=False
        ),
        device_taint_rules=identity_kind(
            DeviceTaintRule, group=GROUP, version=version, plural="devicetaintrules", namespaced=False
        ),
    )
