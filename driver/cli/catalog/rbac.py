"""``kerf rbac``: the permissions of the kubelet plugin for the drivers of some families, as YAML.

``deploy/manifests/15-permissions.yaml`` is what it prints for Kerf's own families, ``deploy/early-loading`` what
``--early-loading`` adds (``python -m tools.generate``). docs/security.md says what each account may do.
"""

from string import Template
from typing import Final

import click

from kerf_dra.driver.cli.options import SubdomainParameter, option
from kerf_dra.driver.families.registry import BUILT_IN, BUILT_IN_BY_NAME, find_families, installed_families

_PERMISSIONS: Final = Template("""\
# What the kubelet plugin may do for the drivers $plain: printed by `kerf rbac$arguments`.
# It reads single claims, which the kubelet names, writes the slices of its own node and drivers, and the status of
# devices that claims have there; RBAC cannot restrict a role to the own node, so the policies below do.
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
- apiGroups: [kerf.dev]
  resources: [fpgashells, fpgaimages] # what FPGA cards are, and what they may load
  verbs: [get, list, watch]
- apiGroups: [kerf.dev]
  resources: [cardmaintenances] # which cards of its node get no new claims
  verbs: [list, watch]
- apiGroups: [kerf.dev]
  resources: [cardmaintenances/status] # status.work of those of its node: see the policy $name-maintenances
  verbs: [patch]
- apiGroups: [kerf.dev]
  resources: [discoveryconfigurations] # which devices to look for
  verbs: [get, list, watch]
- apiGroups: [kerf.dev]
  resources: [discovereddevices] # what this node sees: see the policy $name-devices
  verbs: [get, list, watch, create, patch]
- apiGroups: [""]
  resources: [events] # about the node, and about claims and pods that the hardware refuses, in their namespaces
  verbs: [create, patch]
- apiGroups: [""]
  resources: [pods] # whether a refused pod has an owner that would replace it
  verbs: [get]
- apiGroups: [resource.k8s.io]
  resources: [resourceclaims/status] # status.devices of claims on its node: see the policy $name-claims
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
# A kubelet plugin may write the slices of its own node and drivers only, in pools with the node's name, so that an
# attacker who controls a node cannot publish devices that do not exist, or remove those of other nodes or drivers. The
# node is in the token (KEP-4193).
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
  - expression: request.operation == "DELETE" || object.spec.pool.name.startsWith(variables.userNode + "/")
    messageExpression: >-
      "the kubelet plugin of node \\"" + variables.userNode + "\\" may only write pools whose names begin with \\"" +
      variables.userNode + "/\\""
    reason: Forbidden
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: $name-slices
spec:
  policyName: $name-slices
  validationActions: [Deny]
---
# In a claim's status a kubelet plugin may write status.devices only, of its own drivers, and only when the claim has
# devices of its node. From 1.36 the API server demands the permission for resourceclaims/driver as well (KEP-4817).
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: $name-claims
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - apiGroups: [resource.k8s.io]
      apiVersions: ["*"]
      operations: [UPDATE]
      resources: [resourceclaims, resourceclaims/status]
  matchConditions:
  - name: is-a-kubelet-plugin-of-kerf
    expression: request.userInfo.username == "system:serviceaccount:$namespace:$name"
  variables:
  - name: userNode
    expression: request.userInfo.extra[?"authentication.kubernetes.io/node-name"][0].orValue("")
  - name: before
    expression: dyn(oldObject).?status.orValue(dyn({}))
  - name: after
    expression: dyn(object).?status.orValue(dyn({}))
  - name: othersBefore # what is not the plugin's own
    expression: >-
      variables.before.?devices.orValue([]).filter(entry,
      !(entry.driver in [$quoted] && entry.pool.startsWith(variables.userNode + "/")))
  - name: othersAfter
    expression: >-
      variables.after.?devices.orValue([]).filter(entry,
      !(entry.driver in [$quoted] && entry.pool.startsWith(variables.userNode + "/")))
  validations:
  - expression: variables.userNode != ""
    message: >-
      this token names no node: the kubelet plugin of Kerf must use the token of its own pod, or one that is bound to
      its node
    reason: Forbidden
  - expression: >-
      variables.before.?allocation.?devices.?results.orValue([]).exists(result,
      result.driver in [$quoted] && result.pool.startsWith(variables.userNode + "/"))
    messageExpression: >-
      "the kubelet plugin of node \\"" + variables.userNode +
      "\\" may not write the status of a claim that has none of its devices"
    reason: Forbidden
  - expression: >-
      variables.after.all(field, field == "devices" ||
      field in variables.before && variables.after[field] == variables.before[field]) &&
      variables.before.all(field, field == "devices" || field in variables.after)
    message: the kubelet plugin of Kerf may only write status.devices of a claim
    reason: Forbidden
  - expression: >-
      variables.othersAfter.all(entry, entry in variables.othersBefore) &&
      variables.othersBefore.all(entry, entry in variables.othersAfter)
    messageExpression: >-
      "the kubelet plugin of node \\"" + variables.userNode +
      "\\" may not write the status of devices of other drivers or nodes"
    reason: Forbidden
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: $name-claims
spec:
  policyName: $name-claims
  validationActions: [Deny]
---
# Of a CardMaintenance a kubelet plugin may write status.work only, and only of a card of its node: what it writes has
# no card of another node reset, and no pod evicted.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: $name-maintenances
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - apiGroups: [kerf.dev]
      apiVersions: ["*"]
      operations: [CREATE, UPDATE, DELETE]
      resources: [cardmaintenances, cardmaintenances/status]
  matchConditions:
  - name: is-a-kubelet-plugin-of-kerf
    expression: request.userInfo.username == "system:serviceaccount:$namespace:$name"
  variables:
  - name: userNode
    expression: request.userInfo.extra[?"authentication.kubernetes.io/node-name"][0].orValue("")
  - name: node
    expression: >-
      (request.operation == "CREATE" ? dyn(object) : dyn(oldObject)).?spec.?nodeName.orValue("")
  - name: before
    expression: >-
      request.operation == "CREATE" ? dyn({}) : dyn(oldObject).?status.orValue(dyn({}))
  - name: after
    expression: >-
      request.operation == "DELETE" ? dyn({}) : dyn(object).?status.orValue(dyn({}))
  validations:
  - expression: variables.userNode != ""
    message: >-
      this token names no node: the kubelet plugin of Kerf must use the token of its own pod, or one that is bound to
      its node
    reason: Forbidden
  - expression: variables.node == variables.userNode
    messageExpression: >-
      "the kubelet plugin of node \\"" + variables.userNode +
      "\\" may not write the maintenance of a card of node \\"" + variables.node + "\\""
    reason: Forbidden
  - expression: >-
      request.operation == "UPDATE" && dyn(object).spec == dyn(oldObject).spec &&
      variables.after.all(field, field == "work" ||
      field in variables.before && variables.after[field] == variables.before[field]) &&
      variables.before.all(field, field == "work" || field in variables.after)
    message: the kubelet plugin of Kerf may only write status.work of a CardMaintenance
    reason: Forbidden
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: $name-maintenances
spec:
  policyName: $name-maintenances
  validationActions: [Deny]
---
# In a DiscoveredDevice a kubelet plugin adds and removes its own node only, and describes only what it sees itself: a
# device of its own node, or a shared one that it finds first, whose description holds until an administrator changes
# it. The paths of a device are those of one node, which has named them: a device that several nodes reach has none. Of
# its status a plugin writes only users, and only those of its own node. Whether a name is that of the device cannot be
# computed here: the controller removes objects with other names, and those that are more than a node may make.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: $name-devices
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - apiGroups: [kerf.dev]
      apiVersions: ["*"]
      operations: [CREATE, UPDATE]
      resources: [discovereddevices, discovereddevices/status]
  matchConditions:
  - name: is-a-kubelet-plugin-of-kerf
    expression: request.userInfo.username == "system:serviceaccount:$namespace:$name"
  variables:
  - name: userNode
    expression: request.userInfo.extra[?"authentication.kubernetes.io/node-name"][0].orValue("")
  - name: before
    expression: >-
      request.operation == "CREATE" ? dyn({}) : dyn(oldObject).spec
  - name: nodesBefore
    expression: variables.before.?nodes.orValue(dyn([]))
  - name: nodesAfter
    expression: dyn(object).spec.?nodes.orValue(dyn([]))
  - name: isShared
    expression: dyn(object).spec.shared
  - name: metadata
    expression: dyn(object).metadata
  - name: metadataBefore
    expression: >-
      request.operation == "CREATE" ? dyn({}) : dyn(oldObject).metadata
  - name: labelBefore
    expression: variables.metadataBefore.?labels[?"kerf.dev/node"].orValue("")
  - name: labelAfter
    expression: variables.metadata.?labels[?"kerf.dev/node"].orValue("")
  - name: ownLabels # names that are too long for a label have a digest there, which cannot be computed here
    expression: >-
      variables.isShared ? ["Shared"] :
      size(variables.userNode) <= 63 ? [variables.userNode] :
      [variables.labelAfter].filter(label, label.startsWith("sha256-"))
  - name: isOfOwnNode
    expression: >-
      variables.before.?foundBy.orValue(variables.userNode) == variables.userNode &&
      (variables.labelBefore == "" || variables.labelBefore in variables.ownLabels) &&
      variables.nodesBefore.all(node, node == variables.userNode)
  - name: describes # whether more changes than the nodes
    expression: >-
      request.operation == "CREATE" ||
      !dyn(object).spec.all(field, field == "nodes" ||
      field in variables.before && variables.before[field] == dyn(object).spec[field]) ||
      !variables.before.all(field, field == "nodes" || field in dyn(object).spec) ||
      !["labels", "annotations", "ownerReferences", "finalizers"].all(field,
      variables.metadata[?field] == variables.metadataBefore[?field])
  - name: statusBefore
    expression: >-
      request.operation == "CREATE" ? dyn({}) : dyn(oldObject).?status.orValue(dyn({}))
  - name: statusAfter # of a new object the API server keeps none
    expression: >-
      request.operation == "CREATE" ? dyn({}) : dyn(object).?status.orValue(dyn({}))
  - name: othersBefore
    expression: variables.statusBefore.?users.orValue([]).filter(user, user.node != variables.userNode)
  - name: othersAfter
    expression: variables.statusAfter.?users.orValue([]).filter(user, user.node != variables.userNode)
  validations:
  - expression: variables.userNode != ""
    message: >-
      this token names no node: the kubelet plugin of Kerf must use the token of its own pod, or one that is bound to
      its node
    reason: Forbidden
  - expression: >-
      variables.nodesAfter.all(node, node == variables.userNode || node in variables.nodesBefore) &&
      variables.nodesBefore.all(node, node == variables.userNode || node in variables.nodesAfter)
    messageExpression: >-
      "the kubelet plugin of node \\"" + variables.userNode + "\\" may not add or remove other nodes of a device"
    reason: Forbidden
  - expression: >-
      request.operation == "CREATE" ? dyn(object).spec.?foundBy.orValue("") == variables.userNode :
      ["configurationName", "deviceID", "shared", "foundBy"].all(field,
      variables.before[?field] == dyn(object).spec[?field])
    messageExpression: >-
      request.operation == "CREATE" ? "spec.foundBy must be \\"" + variables.userNode + "\\", the node of the token" :
      "a device cannot become another one"
    reason: Forbidden
  - expression: variables.isShared || variables.isOfOwnNode
    messageExpression: >-
      "the kubelet plugin of node \\"" + variables.userNode + "\\" may not write a device of another node"
    reason: Forbidden
  - expression: >-
      !variables.describes || variables.userNode in variables.nodesAfter
    messageExpression: >-
      "the kubelet plugin of node \\"" + variables.userNode + "\\" may not describe a device that it does not see"
    reason: Forbidden
  - expression: >-
      !variables.describes || !variables.isShared || request.operation == "CREATE"
    message: >-
      what a shared device says is what the node has said that found it first, until an administrator changes it
    reason: Forbidden
  - expression: >-
      !variables.describes || variables.labelAfter in variables.ownLabels
    messageExpression: >-
      "the label kerf.dev/node of a device must be " + (variables.isShared ? "Shared" : "that of node \\"" +
      variables.userNode + "\\"")
    reason: Forbidden
  - expression: >-
      variables.before[?"capacity"] == dyn(object).spec[?"capacity"]
    message: how many may use a device is the administrator's to say
    reason: Forbidden
  - expression: >-
      ["annotations", "finalizers"].all(field, variables.metadata[?field] == variables.metadataBefore[?field]) &&
      variables.metadata.?labels.orValue({}).all(label, label == "kerf.dev/node" ||
      label in variables.metadataBefore.?labels.orValue({})) &&
      (request.operation == "CREATE" ? size(variables.metadata.?ownerReferences.orValue([])) <= 1 :
      variables.metadata[?"ownerReferences"] == variables.metadataBefore[?"ownerReferences"])
    message: >-
      of the metadata of a device the kubelet plugin of Kerf may only write the label kerf.dev/node, and name one owner
      when it creates it
    reason: Forbidden
  - expression: >-
      variables.statusAfter.all(field, field == "users" ||
      field in variables.statusBefore && variables.statusAfter[field] == variables.statusBefore[field]) &&
      variables.statusBefore.all(field, field == "users" || field in variables.statusAfter)
    message: the kubelet plugin of Kerf may only write status.users of a device
    reason: Forbidden
  - expression: variables.othersAfter == variables.othersBefore
    messageExpression: >-
      "the kubelet plugin of node \\"" + variables.userNode + "\\" may not write the users of other nodes"
    reason: Forbidden
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: $name-devices
spec:
  policyName: $name-devices
  validationActions: [Deny]
""")
_EARLY_LOADING: Final = Template("""\
# What the kubelet plugin needs to prepare devices before pods are bound (docs/early-loading.md), and to know whether a
# claim has what is in use outside of Kerf (docs/held-hardware.md), in addition to its other permissions: printed by
# `kerf rbac --early-loading$arguments`. It may then read all claims of the cluster.
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: $name-early-loading
rules:
- apiGroups: [resource.k8s.io]
  resources: [resourceclaims]
  verbs: [list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: $name-early-loading
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: $name-early-loading
subjects:
- kind: ServiceAccount
  name: $name
  namespace: $namespace
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
@option("--name", type=SubdomainParameter(), default=NAME, help="Name of the service account, of its role and policy.")
@option("--namespace", type=SubdomainParameter(), default=NAMESPACE, help="Namespace of the service account.")
@option("--early-loading", is_flag=True, help="Also print the role to list and watch all claims.")
def command(families: tuple[str, ...], name: str, namespace: str, early_loading: bool) -> None:
    """Print the permissions of the kubelet plugin for the drivers of families, as YAML for `kubectl apply`.

    These are a service account with its role, and policies that restrict it to its own node and drivers. With
    --early-loading it may also read all claims, as it must to prepare devices before their pods are bound.
    """
    click.echo(build_permissions(families, name=name, namespace=namespace), nl=False)
    if early_loading:
        click.echo("---\n" + build_early_loading(families, name=name, namespace=namespace), nl=False)


def build_permissions(families: tuple[str, ...] = (), *, name: str = NAME, namespace: str = NAMESPACE) -> str:
    """Return the manifests for ``families``, without any for Kerf's own.

    Raises FamilyUnavailableError for one that is not installed.
    """
    known = BUILT_IN_BY_NAME if BUILT_IN_BY_NAME.keys() >= {*families} else installed_families()
    drivers = [family.driver for family in find_families(families, known) or BUILT_IN]
    return _PERMISSIONS.substitute(
        name=name,
        namespace=namespace,
        arguments=_format_arguments(families, name, namespace),
        plain=", ".join(drivers),
        quoted=", ".join(f'"{driver}"' for driver in drivers),
    )


def build_early_loading(families: tuple[str, ...] = (), *, name: str = NAME, namespace: str = NAMESPACE) -> str:
    """Return the manifests that early loading adds."""
    arguments = _format_arguments(families, name, namespace)
    return _EARLY_LOADING.substitute(name=name, namespace=namespace, arguments=arguments)


def _format_arguments(families: tuple[str, ...], name: str, namespace: str) -> str:
    """Return the command's arguments, without those that are the defaults."""
    arguments = [f" --family={family}" for family in dict.fromkeys(families)]
    arguments += [f" --name={name}"] if name != NAME else []
    arguments += [f" --namespace={namespace}"] if namespace != NAMESPACE else []
    return "".join(arguments)
