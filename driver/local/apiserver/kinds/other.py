"""CustomResourceDefinitions, and kinds that are stored without effect, as rows."""

from typing import Final

from driver.local.apiserver.crd.definitions import DEFINITION_RULES, DEFINITIONS
from driver.local.apiserver.kinds import merge_keys
from driver.local.apiserver.kinds.printers import columns
from driver.local.apiserver.kinds.rows import kind, version
from driver.local.apiserver.kinds.types import ResourceType
from driver.local.apiserver.kinds.validation import core
from driver.local.apiserver.meta.names import path_segment

RBAC: Final = "rbac.authorization.k8s.io"
ADMISSION: Final = "admissionregistration.k8s.io"


def definition_type() -> ResourceType:
    """CustomResourceDefinition."""
    return kind(
        DEFINITIONS.group,
        DEFINITIONS.plural,
        "CustomResourceDefinition",
        [
            version(
                "v1",
                rules=DEFINITION_RULES,
                columns_=columns.CUSTOM_RESOURCE_DEFINITIONS,
                shape=merge_keys.CONDITIONED,
                status=True,
                zero_spec={"names": {}, "versions": []},
            )
        ],
        namespaced=False,
        any_finalizer=True,
        short_names=("crd", "crds"),
        categories=("api-extensions",),
        generation=True,
        unconditional_update=False,
    )


def stored_only_types() -> list[ResourceType]:
    """Kinds that are kept as they are: roles have no effect, as there is no authorization in this cluster."""
    return [
        kind(
            RBAC,
            "roles",
            "Role",
            [version("v1", columns_=columns.ROLES)],
            name_check=path_segment,
            create_on_update=True,
        ),
        kind(
            RBAC,
            "rolebindings",
            "RoleBinding",
            [version("v1", rules=core.ROLE_BINDINGS, columns_=columns.BINDINGS, shape=merge_keys.ROLE_BINDING)],
            name_check=path_segment,
            create_on_update=True,
        ),
        kind(
            RBAC,
            "clusterroles",
            "ClusterRole",
            [version("v1", columns_=columns.ROLES)],
            namespaced=False,
            name_check=path_segment,
            create_on_update=True,
        ),
        kind(
            RBAC,
            "clusterrolebindings",
            "ClusterRoleBinding",
            [version("v1", rules=core.ROLE_BINDINGS, columns_=columns.BINDINGS, shape=merge_keys.ROLE_BINDING)],
            namespaced=False,
            name_check=path_segment,
            create_on_update=True,
        ),
        kind(
            ADMISSION,
            "validatingadmissionpolicies",
            "ValidatingAdmissionPolicy",
            [version("v1", shape=merge_keys.ADMISSION_POLICY, status=True)],
            singular="validatingadmissionpolicy",
            namespaced=False,
            generation=True,
            unconditional_update=False,
            categories=("api-extensions",),
        ),
        kind(
            ADMISSION,
            "validatingadmissionpolicybindings",
            "ValidatingAdmissionPolicyBinding",
            [version("v1", shape=merge_keys.ADMISSION_POLICY_BINDING)],
            namespaced=False,
            generation=True,
            unconditional_update=False,
            categories=("api-extensions",),
        ),
    ]
