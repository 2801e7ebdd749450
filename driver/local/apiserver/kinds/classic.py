"""The kinds of ``resource.k8s.io/v1alpha2``, for clusters whose drivers allocate (Kubernetes 1.27 to 1.30)."""

from collections.abc import Sequence
from typing import Final

from kerf_dra.driver.local.apiserver.kinds import builtin_merge_schemas as merge_schemas
from kerf_dra.driver.local.apiserver.kinds.kind_definition import define_kind, define_version
from kerf_dra.driver.local.apiserver.kinds.printers.columns import AGE, NAME, field
from kerf_dra.driver.local.apiserver.kinds.types import ApiVersion, ResourceType
from kerf_dra.driver.local.apiserver.kinds.validation import classic

RESOURCE: Final = "resource.k8s.io"
VERSION: Final = "v1alpha2"
_CLAIM: Final = define_version(
    VERSION,
    strategy=classic.CLAIMS,
    columns=(
        NAME,
        field("ResourceClassName", "spec", "resourceClassName"),
        field("AllocationMode", "spec", "allocationMode"),
        AGE,
    ),
    merge_schema=merge_schemas.RESOURCE_CLAIM,
    has_status=True,
)
_TEMPLATE: Final = define_version(
    VERSION,
    strategy=classic.TEMPLATES,
    merge_schema=merge_schemas.RESOURCE_CLAIM_TEMPLATE,
    zero_spec={"metadata": {}, "spec": {}},
)
_CLASS: Final = ApiVersion(
    name=VERSION, strategy=classic.CLASSES, columns=(NAME, field("DriverName", "driverName"), AGE)
)
_CONTEXT: Final = define_version(
    VERSION,
    strategy=classic.CONTEXTS,
    columns=(NAME, field("SelectedNode", "spec", "selectedNode"), AGE),
    has_status=True,
)

CLASSIC_KINDS: Final[Sequence[ResourceType]] = (
    define_kind(RESOURCE, "ResourceClaim", _CLAIM, returns_deleted=True),
    define_kind(RESOURCE, "ResourceClaimTemplate", _TEMPLATE, returns_deleted=True),
    define_kind(RESOURCE, "ResourceClass", _CLASS, namespaced=False, returns_deleted=True),
    define_kind(RESOURCE, "PodSchedulingContext", _CONTEXT, returns_deleted=True),
)
