"""The merge schemas of built-in kinds, i.e. the places that do not merge by default.

Source: ``x-kubernetes-list-type``, ``-list-map-keys``, ``-map-type``, ``-patch-merge-key`` and ``-patch-strategy`` in
the OpenAPI document of Kubernetes 1.37 (``api/openapi-spec/swagger.json``).
"""

from collections.abc import Mapping
from typing import Final

from kerf_dra.driver.local.apiserver.meta.merge_schema import (
    ATOMIC,
    CONDITIONS,
    METADATA_ROWS,
    MergeSchema,
    build_merge_schema,
    keyed_list,
)

_NAMED: Final = keyed_list("name")
_UNIQUE: Final = MergeSchema(unique=True)
_PORTS: Final = keyed_list("containerPort", "protocol", defaults={"protocol": "TCP"})

_CONTAINER: Final[Mapping[str, MergeSchema]] = {
    "env": _NAMED,
    "env[].valueFrom.configMapKeyRef": ATOMIC,
    "env[].valueFrom.fieldRef": ATOMIC,
    "env[].valueFrom.fileKeyRef": ATOMIC,
    "env[].valueFrom.resourceFieldRef": ATOMIC,
    "env[].valueFrom.secretKeyRef": ATOMIC,
    "ports": _PORTS,
    "resources.claims": keyed_list("name", patch=""),
    "volumeDevices": keyed_list("devicePath"),
    "volumeMounts": keyed_list("mountPath"),
}


def _containers(field: str) -> dict[str, MergeSchema]:
    return {
        f"spec.{field}": _NAMED,
        **{f"spec.{field}[].{path}": merge_schema for path, merge_schema in _CONTAINER.items()},
    }


POD: Final = build_merge_schema(
    {
        **METADATA_ROWS,
        **_containers("containers"),
        **_containers("initContainers"),
        **_containers("ephemeralContainers"),
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution": ATOMIC,
        "spec.hostAliases": keyed_list("ip"),
        "spec.imagePullSecrets": _NAMED,
        "spec.imagePullSecrets[]": ATOMIC,
        "spec.nodeSelector": ATOMIC,
        "spec.resourceClaims": keyed_list("name"),
        "spec.resources.claims": keyed_list("name", patch=""),
        "spec.schedulingGates": _NAMED,
        "spec.topologySpreadConstraints": keyed_list("topologyKey", "whenUnsatisfiable"),
        "spec.topologySpreadConstraints[].labelSelector": ATOMIC,
        "spec.volumes": keyed_list("name"),
        "status.conditions": CONDITIONS,
        "status.hostIPs": MergeSchema(patch_key="ip"),
        "status.podIPs": keyed_list("ip"),
        "status.nodeAllocatableResourceClaimStatuses": keyed_list("resourceClaimName"),
        "status.resourceClaimStatuses": keyed_list("name"),
    }
)
NODE: Final = build_merge_schema(
    {
        **METADATA_ROWS,
        "spec.podCIDRs": MergeSchema(unique=True, patch_key="*"),
        "status.addresses": keyed_list("type"),
        "status.conditions": CONDITIONS,
    }
)
CONDITIONED: Final = build_merge_schema({**METADATA_ROWS, "status.conditions": CONDITIONS})
EVENT: Final = build_merge_schema({**METADATA_ROWS, "involvedObject": ATOMIC, "related": ATOMIC})
EVENTS_GROUP_EVENT: Final = build_merge_schema({**METADATA_ROWS, "regarding": ATOMIC, "related": ATOMIC})
SERVICE_ACCOUNT: Final = build_merge_schema({**METADATA_ROWS, "secrets": _NAMED, "secrets[]": ATOMIC})
RESOURCE_CLAIM: Final = build_merge_schema(
    {
        **METADATA_ROWS,
        "status.allocation.nodeSelector": ATOMIC,
        "status.devices": keyed_list("driver", "device", "pool", "shareID", patch=""),
        "status.devices[].conditions": keyed_list("type", patch=""),
        "status.devices[].data": ATOMIC,
        "status.reservedFor": keyed_list("uid"),
    }
)
RESOURCE_CLAIM_TEMPLATE: Final = build_merge_schema(
    {**METADATA_ROWS, **{f"spec.{path}": merge_schema for path, merge_schema in METADATA_ROWS.items()}}
)
RESOURCE_SLICE: Final = build_merge_schema(
    {**METADATA_ROWS, "spec.nodeSelector": ATOMIC, "spec.skipNodeOperations": _UNIQUE}
)
ROLE_BINDING: Final = build_merge_schema({**METADATA_ROWS, "roleRef": ATOMIC})
ADMISSION_POLICY: Final = build_merge_schema(
    {
        **METADATA_ROWS,
        "spec.matchConditions": _NAMED,
        "spec.matchConstraints": ATOMIC,
        "spec.paramKind": ATOMIC,
        "spec.variables": _NAMED,
        "spec.variables[]": ATOMIC,
        "status.conditions": keyed_list("type", patch=""),
    }
)
ADMISSION_POLICY_BINDING: Final = build_merge_schema(
    {**METADATA_ROWS, "spec.matchResources": ATOMIC, "spec.paramRef": ATOMIC, "spec.validationActions": _UNIQUE}
)
