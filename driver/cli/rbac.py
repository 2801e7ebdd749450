"""``kerf rbac``: the permissions of the kubelet plugin for the drivers of some families, as YAML.

``deploy/manifests/15-permissions.yaml`` is what it prints for Kerf's own families (``python -m tests.generate``).
"""

from string import Template
from typing import Final

import click

from driver.cli.options import option
from driver.families.registry import BUILT_IN, BUILT_IN_BY_NAME, find_families, load_families

_TEMPLATE: Final = Template("""\
# What the kubelet plugin may do for the drivers $plain: printed by `kerf rbac$arguments`.
# It reads single claims, which the kubelet names, and writes the slices of its own node and drivers; RBAC cannot
# restrict a role to the own node, so the policy below does.
apiVersion: v1
kind: ServiceAccount
metadata:
  name: $name
  namespace: $namespace
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: $name
rules:
- apiGroups: [""]
  resources: [nodes] # slices are owned by their node
  verbs: [get]
- apiGroups: [resource.k8s.io]
  resources: [resourceclaims]
  verbs: [get]
- apiGroups: [resource.k8s.io]
  resources: [resourceslices]
  verbs: [list, watch, create, update, delete]
- apiGroups: [kerf.dev]
  resources: [resourceclasses] # which devices to publish as shared or monitor devices
  verbs: [list, watch]
- apiGroups: [""]
  resources: [events] # about the node, and about claims and pods that the hardware refuses, in their namespaces
  verbs: [create, patch]
- apiGroups: [""]
  resources: [pods] # whether a refused pod has an owner that would replace it
  verbs: [get]
- apiGroups: [resource.k8s.io]
  resources: [resourceclaims] # whether a claim has what somebody else holds
  verbs: [list]
# For early preparation (docs/early-loading.md); without slow functions the first of these rules is not needed. The
# others are also for what claims got (docs/claim-status.md).
- apiGroups: [resource.k8s.io]
  resources: [resourceclaims]
  verbs: [list, watch]
- apiGroups: [resource.k8s.io]
  resources: [resourceclaims/status]
  verbs: [patch]
- apiGroups: [resource.k8s.io]
  resources: [resourceclaims/driver] # from 1.36: only these drivers' devices, only of claims on this node
  verbs: ["associated-node:patch"]
  resourceNames: [$plain]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: $name
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: $name
subjects:
- kind: ServiceAccount
  name: $name
  namespace: $namespace
---
# A kubelet plugin may write the slices of its own node and drivers only, so that an attacker who controls a node cannot
# publish devices that do not exist, or remove those of other nodes or drivers. The node is in the token (KEP-4193).
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: $name-slices
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - apiGroups: [resource.k8s.io]
      apiVersions: ["*"]
      operations: [CREATE, UPDATE, DELETE]
      resources: [resourceslices]
  matchConditions:
  - name: is-a-kubelet-plugin-of-kerf
    expression: request.userInfo.username == "system:serviceaccount:$namespace:$name"
  variables:
  - name: userNode
    expression: request.userInfo.extra[?"authentication.kubernetes.io/node-name"][0].orValue("")
  - name: sliceNode
    expression: >-
      (request.operation == "DELETE" ? oldObject : object).spec.?nodeName.orValue("")
  - name: sliceDriver
    expression: >-
      (request.operation == "DELETE" ? oldObject : object).spec.driver
  validations:
  - expression: variables.userNode != ""
    message: >-
      this token names no node: the kubelet plugin of Kerf must use the token of its own pod, or one that is bound to
      its node
    reason: Forbidden
  - expression: variables.sliceNode == variables.userNode
    messageExpression: >-
      "the kubelet plugin of node \\"" + variables.userNode + "\\" may not write a ResourceSlice of node \\"" +
      variables.sliceNode + "\\""
    reason: Forbidden
  - expression: variables.sliceDriver in [$quoted]
    messageExpression: >-
      "the kubelet plugin of Kerf may not write a ResourceSlice of driver \\"" + variables.sliceDriver + "\\""
    reason: Forbidden
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: $name-slices
spec:
  policyName: $name-slices
  validationActions: [Deny]
""")
NAME: Final = "kerf-kubelet-plugin"
"""The service account of the plugin in ``deploy/manifests``; role and policy are named after it."""
NAMESPACE: Final = "kerf-system"


@click.command(short_help="Print the permissions of the kubelet plugin for the drivers of families.")
@option(
    "--family",
    "families",
    multiple=True,
    help="A family that the plugin hosts; `kerf families` lists them. Repeatable. [default: Kerf's own]",
)
@option("--name", default=NAME, help="Name of the service account, of its role and policy.")
@option("--namespace", default=NAMESPACE, help="Namespace of the service account.")
def command(families: tuple[str, ...], name: str, namespace: str) -> None:
    """Print the permissions of the kubelet plugin for the drivers of families, as YAML for `kubectl apply`.

    These are a service account with its role, and a policy that restricts it to slices of its own node and drivers.
    """
    click.echo(build_permissions(families, name=name, namespace=namespace), nl=False)


def build_permissions(families: tuple[str, ...] = (), *, name: str = NAME, namespace: str = NAMESPACE) -> str:
    """Return the manifests for ``families``, without any for Kerf's own.

    Raises FamilyUnavailableError for one that is not installed.
    """
    known = BUILT_IN_BY_NAME if BUILT_IN_BY_NAME.keys() >= {*families} else load_families()
    drivers = [family.driver for family in find_families(families, known) or BUILT_IN]
    arguments = [f" --family={family}" for family in dict.fromkeys(families)]
    arguments += [f" --name={name}"] if name != NAME else []
    arguments += [f" --namespace={namespace}"] if namespace != NAMESPACE else []
    return _TEMPLATE.substitute(
        name=name,
        namespace=namespace,
        arguments="".join(arguments),
        plain=", ".join(drivers),
        quoted=", ".join(f'"{driver}"' for driver in drivers),
    )
