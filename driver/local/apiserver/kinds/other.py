"""Workloads, CustomResourceDefinitions, admission policies and RBAC kinds; roles are stored without effect."""

from collections.abc import Sequence
from typing import Final

from kerf_dra.driver.local.apiserver.crd.definitions import DEFINITION_STRATEGY, DEFINITIONS
from kerf_dra.driver.local.apiserver.kinds import builtin_merge_schemas as merge_schemas
from kerf_dra.driver.local.apiserver.kinds.kind_definition import define_kind, define_version
from kerf_dra.driver.local.apiserver.kinds.printers import columns
from kerf_dra.driver.local.apiserver.kinds.types import ResourceType
from kerf_dra.driver.local.apiserver.kinds.validation.core import ROLE_BINDINGS
from kerf_dra.driver.local.apiserver.meta.names import path_segment

_RBAC: Final = "rbac.authorization.k8s.io"
_ADMISSION: Final = "admissionregistration.k8s.io"
_DEFINITION: Final = define_version(
    strategy=DEFINITION_STRATEGY,
    columns=columns.CUSTOM_RESOURCE_DEFINITIONS,
    merge_schema=merge_schemas.CONDITIONED,
    has_status=True,
    zero_spec={"names": {}, "versions": []},
)
_ROLE: Final = define_version(columns=columns.ROLES)
_BINDING: Final = define_version(
    strategy=ROLE_BINDINGS, columns=columns.BINDINGS, merge_schema=merge_schemas.ROLE_BINDING
)

_WORKLOAD: Final = define_version(columns=columns.WORKLOADS, has_status=True)

OTHER_KINDS: Final[Sequence[ResourceType]] = (
    *(
        define_kind("apps", kind, _WORKLOAD, short_names=(short,), categories=("all",), counts_generation=True)
        for kind, short in (("Deployment", "deploy"), ("ReplicaSet", "rs"), ("StatefulSet", "sts"))
    ),
    define_kind("batch", "Job", _WORKLOAD, categories=("all",), counts_generation=True),
    define_kind(
        DEFINITIONS.group,
        "CustomResourceDefinition",
        _DEFINITION,
        namespaced=False,
        any_finalizer=True,
        short_names=("crd", "crds"),
        categories=("api-extensions",),
        counts_generation=True,
        allow_unconditional_update=False,
    ),
    define_kind(_RBAC, "Role", _ROLE, name_check=path_segment, allow_create_on_update=True),
    define_kind(_RBAC, "RoleBinding", _BINDING, name_check=path_segment, allow_create_on_update=True),
    define_kind(_RBAC, "ClusterRole", _ROLE, namespaced=False, name_check=path_segment, allow_create_on_update=True),
    define_kind(
        _RBAC, "ClusterRoleBinding", _BINDING, namespaced=False, name_check=path_segment, allow_create_on_update=True
    ),
    *(
        define_kind(
            _ADMISSION,
            kind,
            version,
            namespaced=False,
            counts_generation=True,
            allow_unconditional_update=False,
            categories=("api-extensions",),
        )
        for kind, version in (
            ("ValidatingAdmissionPolicy", define_version(merge_schema=merge_schemas.ADMISSION_POLICY, has_status=True)),
            ("ValidatingAdmissionPolicyBinding", define_version(merge_schema=merge_schemas.ADMISSION_POLICY_BINDING)),
            ("MutatingAdmissionPolicy", define_version(merge_schema=merge_schemas.ADMISSION_POLICY)),
            ("MutatingAdmissionPolicyBinding", define_version(merge_schema=merge_schemas.ADMISSION_POLICY_BINDING)),
        )
    ),
)
