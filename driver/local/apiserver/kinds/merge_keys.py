"""How the built-in kinds merge, where that differs from "objects merge, lists are replaced".

Source: ``x-kubernetes-list-type``, ``-list-map-keys``, ``-map-type``, ``-patch-merge-key`` and ``-patch-strategy`` in
the OpenAPI document of Kubernetes 1.37 (``api/openapi-spec/swagger.json``).
"""

from collections.abc import Mapping
from typing import Final

from driver.local.apiserver.meta.merge_keys import ATOMIC, CONDITIONS, METADATA_ROWS, Shape, keyed, shape_of

_NAMED: Final = keyed("name")
_UNIQUE: Final = Shape(unique=True)
_PORTS: Final = keyed("containerPort", "protocol", defaults={"protocol": "TCP"})

_CONTAINER: Final[Mapping[str, Shape]] = {
    "env": _NAMED,
    "env[].valueFrom.configMapKeyRef": ATOMIC,
    "env[].valueFrom.fieldRef": ATOMIC,
    "env[].valueFrom.fileKeyRef": ATOMIC,
    "env[].valueFrom.resourceFieldRef": ATOMIC,
    "env[].valueFrom.secretKeyRef": ATOMIC,
    "ports": _PORTS,
    "resources.claims": keyed("name", patch=""),
    "volumeDevices": keyed("devicePath"),
    "volumeMounts": keyed("mountPath"),
}


def _containers(field: str) -> dict[str, Shape]:
    return {f"spec.{field}": _NAMED, **{f"spec.{field}[].{path}": shape for path, shape in _CONTAINER.items()}}


POD: Final = shape_of(
    {
        **METADATA_ROWS,
        **_containers("containers"),
        **_containers("initContainers"),
        **_containers("ephemeralContainers"),
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution": ATOMIC,
        "spec.hostAliases": keyed("ip"),
        "spec.imagePullSecrets": _NAMED,
        "spec.imagePullSecrets[]": ATOMIC,
        "spec.nodeSelector": ATOMIC,
        "spec.resourceClaims": keyed("name"),
        "spec.resources.claims": keyed("name", patch=""),
        "spec.schedulingGates": _NAMED,
        "spec.topologySpreadConstraints": keyed("topologyKey", "whenUnsatisfiable"),
        "spec.topologySpreadConstraints[].labelSelector": ATOMIC,
        "spec.volumes": keyed("name"),
        "status.conditions": CONDITIONS,
        "status.hostIPs": Shape(patch_key="ip"),
        "status.podIPs": keyed("ip"),
        "status.nodeAllocatableResourceClaimStatuses": keyed("resourceClaimName"),
        "status.resourceClaimStatuses": keyed("name"),
    }
)
NODE: Final = shape_of(
    {
        **METADATA_ROWS,
        "spec.podCIDRs": Shape(unique=True, patch_key="*"),
        "status.addresses": keyed("type"),
        "status.conditions": CONDITIONS,
    }
)
CONDITIONED: Final = shape_of({**METADATA_ROWS, "status.conditions": CONDITIONS})
NAMESPACE: Final = CONDITIONED
EVENT: Final = shape_of({**METADATA_ROWS, "involvedObject": ATOMIC, "related": ATOMIC})
EVENTS_GROUP_EVENT: Final = shape_of({**METADATA_ROWS, "regarding": ATOMIC, "related": ATOMIC})
SERVICE_ACCOUNT: Final = shape_of({**METADATA_ROWS, "secrets": _NAMED, "secrets[]": ATOMIC})
RESOURCE_CLAIM: Final = shape_of(
    {
        **METADATA_ROWS,
        "status.allocation.nodeSelector": ATOMIC,
        "status.devices": keyed("driver", "device", "pool", "shareID", patch=""),
        "status.devices[].conditions": keyed("type", patch=""),
        "status.devices[].data": ATOMIC,
        "status.reservedFor": keyed("uid"),
    }
)
RESOURCE_CLAIM_TEMPLATE: Final = shape_of(
    {**METADATA_ROWS, **{f"spec.{path}": shape for path, shape in METADATA_ROWS.items()}}
)
RESOURCE_SLICE: Final = shape_of({**METADATA_ROWS, "spec.nodeSelector": ATOMIC, "spec.skipNodeOperations": _UNIQUE})
ROLE_BINDING: Final = shape_of({**METADATA_ROWS, "roleRef": ATOMIC})
ADMISSION_POLICY: Final = shape_of(
    {
        **METADATA_ROWS,
        "spec.matchConditions": _NAMED,
        "spec.matchConstraints": ATOMIC,
        "spec.paramKind": ATOMIC,
        "spec.variables": _NAMED,
        "spec.variables[]": ATOMIC,
        "status.conditions": keyed("type", patch=""),
    }
)
ADMISSION_POLICY_BINDING: Final = shape_of(
    {
        **METADATA_ROWS,
        "spec.matchResources": ATOMIC,
        "spec.paramRef": ATOMIC,
        "spec.validationActions": _UNIQUE,
    }
)
