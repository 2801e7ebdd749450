"""The kinds of ``resource.k8s.io/v1alpha2`` as rows, for clusters whose drivers allocate (Kubernetes 1.27 to 1.30)."""

from typing import Final

from driver.local.apiserver.kinds import merge_keys, rows
from driver.local.apiserver.kinds.printers import columns
from driver.local.apiserver.kinds.types import ApiVersion, Column, ResourceType
from driver.local.apiserver.kinds.validation import classic

RESOURCE: Final = "resource.k8s.io"
VERSION: Final = "v1alpha2"

_CLAIM_COLUMNS: Final = (
    columns.NAME_AND_AGE[0],
    Column(name="ResourceClassName", cell=lambda body, _: str(body["spec"].get("resourceClassName", ""))),
    Column(name="AllocationMode", cell=lambda body, _: str(body["spec"].get("allocationMode", ""))),
    columns.NAME_AND_AGE[1],
)
_CLASS_COLUMNS: Final = (
    columns.NAME_AND_AGE[0],
    Column(name="DriverName", cell=lambda body, _: str(body.get("driverName", ""))),
    columns.NAME_AND_AGE[1],
)
_CONTEXT_COLUMNS: Final = (
    columns.NAME_AND_AGE[0],
    Column(name="SelectedNode", cell=lambda body, _: str((body.get("spec") or {}).get("selectedNode", ""))),
    columns.NAME_AND_AGE[1],
)


def classic_types() -> list[ResourceType]:
    """The kinds that a cluster of that time serves in place of the newer ones."""
    return [
        rows.kind(
            RESOURCE,
            "resourceclaims",
            "ResourceClaim",
            [
                rows.version(
                    VERSION,
                    rules=classic.CLAIMS,
                    columns_=_CLAIM_COLUMNS,
                    shape=merge_keys.RESOURCE_CLAIM,
                    status=True,
                )
            ],
            returns_deleted=True,
        ),
        rows.kind(
            RESOURCE,
            "resourceclaimtemplates",
            "ResourceClaimTemplate",
            [
                rows.version(
                    VERSION,
                    rules=classic.TEMPLATES,
                    shape=merge_keys.RESOURCE_CLAIM_TEMPLATE,
                    zero_spec={"metadata": {}, "spec": {}},
                )
            ],
            returns_deleted=True,
        ),
        rows.kind(
            RESOURCE,
            "resourceclasses",
            "ResourceClass",
            [ApiVersion(name=VERSION, rules=classic.CLASSES, columns=_CLASS_COLUMNS)],
            namespaced=False,
            returns_deleted=True,
        ),
        rows.kind(
            RESOURCE,
            "podschedulingcontexts",
            "PodSchedulingContext",
            [rows.version(VERSION, rules=classic.CONTEXTS, columns_=_CONTEXT_COLUMNS, status=True)],
            returns_deleted=True,
        ),
    ]
