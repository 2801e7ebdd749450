"""The limits of Kerf's service accounts, enforced by the roles and policies of ``deploy/``.

CASES is the table of docs/security.md: who does what to which object, and what the API server says, on 1.34 and later.
``tests/e2e/classic/test_permissions.py`` has those of 1.30 and 1.31.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import pytest

from kerf_dra.api.kerf.discovery_objects import device_name
from tests.e2e.permission_cases import ALLOWED, CANNOT, Case, Who, clients, send, wait_said
from tests.e2e.permission_matrix import ACCOUNTS, find_allowed, find_rights, told
from tests.e2e.wait import eventually
from tools.realcluster.api import Api, Document, StatusError
from tools.realcluster.cluster import Cluster
from tools.realcluster.kerf import DEPLOY, NAMESPACE, PLUGIN, Kerf, manifests
from tools.realcluster.versions import KubernetesVersion

BARE_NODES = ("bare1",)
RESOURCE: Final = "resource.k8s.io/v1"
BEFORE_1_36: Final = ("1.34",)
"""The releases of ``tools/realcluster`` with ``v1`` in which the API server itself does not protect claims' status."""
KERF: Final = "kerf.dev/v1alpha1"
BINDINGS: Final = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"


def slice_of(node: str | None, driver: str = "gpu.kerf.dev", pool: str = "") -> Document:
    place: Document = {"nodeName": node} if node else {"allNodes": True}
    named = {"name": pool or f"{node}/by-hand", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, **place, "pool": named, "devices": [{"name": "d"}]}
    return {
        "apiVersion": RESOURCE,
        "kind": "ResourceSlice",
        "metadata": {"name": f"by-hand-{node or 'all'}"},
        "spec": spec,
    }


def entry(driver: str, node: str, **more: Any) -> Document:
    return {"driver": driver, "pool": f"{node}/{driver.partition('.')[0]}", "device": "d", **more}


GPU: Final = entry("gpu.kerf.dev", "node1")
READY: Final = entry(
    "gpu.kerf.dev",
    "node1",
    conditions=[
        {"type": "Ready", "status": "True", "reason": "r", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    ],
)
NIC: Final = entry("nic.example.com", "node1")
CLAIMS: Final[Mapping[str, list[Document]]] = {
    "here": [GPU],
    "there": [entry("gpu.kerf.dev", "bare1")],
    "nic": [NIC],
    "both": [GPU, NIC],
    "waiting": [],
}
"""The claims of the namespace default, with what each is allocated."""


def claim(name: str) -> Document:
    requests = [
        {"name": f"r{number}", "exactly": {"deviceClassName": "compiled"}} for number, _ in enumerate(CLAIMS[name])
    ]
    spec = {"devices": {"requests": requests}} if requests else {}
    return {
        "apiVersion": RESOURCE,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def allocation(name: str) -> Document:
    results = [{"request": f"r{number}", **one} for number, one in enumerate(CLAIMS[name])]
    node = CLAIMS[name][0]["pool"].partition("/")[0]
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
    return {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": terms}}


def device_of(node: str, id_: str = "", *, shared: bool = True, label: str = "", **spec: Any) -> Document:
    """The object of a device as the plugin of ``node`` makes it."""
    found = {"configurationName": "cameras", "deviceID": id_ or node, "shared": shared, "nodes": [node]}
    return {
        "apiVersion": KERF,
        "kind": "DiscoveredDevice",
        "metadata": {
            "name": device_name("cameras", id_ or node, node=None if shared else node),
            "labels": {"kerf.dev/node": label or ("Shared" if shared else node)},
        },
        "spec": {name: value for name, value in {**found, "foundBy": node, **spec}.items() if value is not None},
    }


DEVICES: Final = f"/apis/{KERF}/discovereddevices"
CAMERA: Final = device_of("node1", "camera")
JOINED: Final = device_of("node1", "joined", nodes=["bare1", "node1"])
USB: Final = device_of("node1", "usb", shared=False)
LEFT: Final = device_of("node1", "left", shared=False, nodes=[], foundBy=None)
NULL: Final = [{"hostPath": "/dev/null"}]
FOUND: Final = (CAMERA, JOINED, USB, LEFT)
"""The devices of the cluster, which are those of node1; bare1 has joined one that it shares, and only the label of the
last one says whose it is: of the others the schema does."""


def path_of(device: Document) -> str:
    return f"{DEVICES}/{device['metadata']['name']}"


def kept(device: Document) -> Document:
    """The device with a finalizer, by which its maker would keep it from being deleted."""
    return {**device, "metadata": {**device["metadata"], "finalizers": ["example.com/kept"]}}


SLICES: Final = f"/apis/{RESOURCE}/resourceslices"
CLASSES: Final = f"/apis/{RESOURCE}/deviceclasses"
IN_DEFAULT: Final = f"/apis/{RESOURCE}/namespaces/default/resourceclaims"
COMPILED: Final[Document] = {"apiVersion": RESOURCE, "kind": "DeviceClass", "metadata": {"name": "new"}, "spec": {}}
OWNER: Final[Document] = {"apiVersion": KERF, "kind": "ResourceClass", "name": "new", "uid": "0"}
LABEL: Final[Document] = {"metadata": {"labels": {"a": "b"}}}
EVIL: Final[Document] = {"spec": {"properties": {"LD_PRELOAD": "/evil.so"}}}
_SECOND: Final = "plugin of bare1"
_NODES: Final = "may not add or remove other nodes of a device"
_FIRST: Final = "what a shared device says is what the node has said that found it first"
_OTHERS: Final = "may not write a device of another node"
_OWN: Final = "must be that of node"
DEVICE_CASES: Final = (
    # A shared device: nodes join and leave it; what it says is what the first one has said.
    Case("plugin", "create", DEVICES, ALLOWED, device_of("node1", "a", **EVIL["spec"])),
    Case(_SECOND, "patch", path_of(CAMERA), ALLOWED, {"spec": {"nodes": ["bare1", "node1"]}}),
    Case(_SECOND, "patch", path_of(JOINED), ALLOWED, {"spec": {"nodes": ["node1"]}}),
    Case(_SECOND, "patch", path_of(JOINED), _NODES, {"spec": {"nodes": ["bare1"]}}),
    Case(_SECOND, "patch", path_of(JOINED), _FIRST, EVIL),
    Case("plugin", "patch", path_of(JOINED), _FIRST, EVIL),
    Case(_SECOND, "patch", path_of(JOINED), _FIRST, {"metadata": {"labels": {"kerf.dev/node": "bare1"}}}),
    Case(_SECOND, "patch", path_of(JOINED), _FIRST, {"spec": {"capacity": 1000}}),
    Case(_SECOND, "patch", path_of(JOINED), "cannot become another one", {"spec": {"foundBy": "bare1"}}),
    # A device of one node is this node's, also while it does not see it.
    Case("plugin", "create", DEVICES, ALLOWED, device_of("node1", "a", shared=False, deviceNodes=NULL)),
    Case("plugin", "patch", path_of(USB), ALLOWED, EVIL),
    Case("plugin", "patch", path_of(LEFT), ALLOWED, {"spec": {"nodes": ["node1"], "deviceNodes": NULL}}),
    Case(_SECOND, "patch", path_of(USB), _OTHERS, EVIL),
    Case(_SECOND, "patch", path_of(LEFT), _OTHERS, {"spec": {"nodes": ["bare1"]}}),
    # A new object is of the token's node, and has nothing that is not its to say.
    Case(_SECOND, "create", DEVICES, _NODES, device_of("node1", "a")),
    Case(_SECOND, "create", DEVICES, 'spec.foundBy must be "bare1"', device_of("bare1", "a", foundBy="node1")),
    Case(_SECOND, "create", DEVICES, _OWN, device_of("bare1", "a", shared=False, label="node1")),
    Case(_SECOND, "create", DEVICES, _OWN, device_of("bare1", "a", shared=False, label="Shared")),
    Case(_SECOND, "create", DEVICES, "is the administrator's to say", device_of("bare1", "a", capacity=1000)),
    Case(_SECOND, "create", DEVICES, "may only write the label kerf.dev/node", kept(device_of("bare1", "a"))),
    Case("plugin without node", "create", DEVICES, "this token names no node", device_of("node1", "a")),
)


def status(*devices: Document, **more: Any) -> Document:
    return {"status": {"devices": list(devices), **more}}


def _status(who: Who, name: str, said: str, policy: str, body: Document) -> Case:
    return Case(who, "patch", f"{IN_DEFAULT}/{name}/status", said, body, policy)


_DRIVER: Final = 'requires resource="resourceclaims/driver"'
_BINDING: Final = 'requires resource="resourceclaims/binding"'
_FOREIGN: Final = "may not write the status of devices of other drivers or nodes"
_NOT_HERE: Final = "may not write the status of a claim that has none of its devices"
_DEVICES_ONLY: Final = "may only write status.devices of a claim"
_RESERVED: Final = [{"resource": "pods", "name": "p", "uid": "1"}]
STATUS_CASES: Final = (
    _status("plugin", "both", _DRIVER, _FOREIGN, status(READY)),
    _status("plugin", "both", _DRIVER, _FOREIGN, status(GPU, {**NIC, "data": {}})),
    _status("plugin", "there", _DRIVER, _NOT_HERE, status(*CLAIMS["there"])),
    _status("plugin", "nic", _DRIVER, _NOT_HERE, status({**NIC, "data": {}})),
    _status("plugin", "waiting", _BINDING, _NOT_HERE, {"status": {"allocation": {}}}),
    _status("plugin", "here", _BINDING, _DEVICES_ONLY, {"status": {"allocation": None}}),
    _status("plugin", "here", _BINDING, _DEVICES_ONLY, {"status": {"reservedFor": _RESERVED}}),
    _status("plugin of bare1", "here", _DRIVER, _NOT_HERE, status(READY)),
    _status("plugin without node", "here", _DRIVER, "this token names no node", status(READY)),
)
CASES: Final = (
    # The plugin's slices: of its node, in pools with its name, of its drivers.
    Case("plugin", "list", SLICES, ALLOWED),
    Case("plugin", "create", SLICES, ALLOWED, slice_of("node1")),
    Case("plugin", "create", SLICES, 'may not write a ResourceSlice of node "bare1"', slice_of("bare1")),
    Case("plugin", "create", SLICES, 'may not write a ResourceSlice of node ""', slice_of(None, pool="node1/all")),
    Case("plugin", "create", SLICES, 'of driver "nic.example.com"', slice_of("node1", "nic.example.com")),
    Case("plugin", "create", SLICES, 'whose names begin with "node1/"', slice_of("node1", pool="bare1/gpu")),
    Case("plugin without node", "create", SLICES, "this token names no node", slice_of("node1")),
    Case("plugin of bare1", "create", SLICES, 'of node "node1"', slice_of("node1")),
    Case("plugin", "replace", f"{SLICES}/by-hand-bare1", 'of node "bare1"'),
    Case("plugin of bare1", "replace", f"{SLICES}/by-hand-bare1", ALLOWED),
    Case("plugin", "patch", f"{SLICES}/by-hand-bare1", CANNOT, LABEL),
    Case("plugin", "get", f"{SLICES}/by-hand-bare1", CANNOT),
    Case("plugin", "delete", f"{SLICES}/by-hand-bare1", 'of node "bare1"'),
    Case("plugin of bare1", "delete", f"{SLICES}/by-hand-bare1", ALLOWED),
    Case("plugin of bare1", "delete", f"{SLICES}/{{slice}}", 'of node "node1"'),
    Case("plugin", "delete", f"{SLICES}/{{slice}}", ALLOWED),
    Case("plugin", "delete", SLICES, "cannot deletecollection"),
    # Claims: any of them one at a time; the status of its own devices.
    Case("plugin", "get", f"{IN_DEFAULT}/there", ALLOWED),
    Case("plugin", "list", f"/apis/{RESOURCE}/resourceclaims", CANNOT),
    Case("plugin", "watch", f"/apis/{RESOURCE}/resourceclaims", CANNOT),
    Case("plugin", "patch", f"{IN_DEFAULT}/here", CANNOT, LABEL),
    Case("plugin", "delete", f"{IN_DEFAULT}/here", CANNOT),
    Case("plugin", "create", IN_DEFAULT, CANNOT, claim("waiting")),
    Case("plugin", "patch", f"{IN_DEFAULT}/here/status", ALLOWED, status(READY)),
    Case("plugin", "patch", f"{IN_DEFAULT}/both/status", ALLOWED, status(READY, NIC)),
    *STATUS_CASES,
    # Everything else of the plugin's.
    Case("plugin", "get", "/api/v1/nodes/bare1", ALLOWED),
    Case("plugin", "list", "/api/v1/nodes", CANNOT),
    Case("plugin", "delete", "/api/v1/nodes/node1", CANNOT),
    Case("plugin", "list", "/api/v1/pods", CANNOT),
    Case("plugin", "list", "/api/v1/secrets", CANNOT),
    Case("plugin", "list", f"/api/v1/namespaces/{NAMESPACE}/secrets", CANNOT),
    Case("plugin", "list", f"/apis/{KERF}/resourceclasses", ALLOWED),
    # FPGA shells and images: it reads them, and nothing else.
    Case("plugin", "list", f"/apis/{KERF}/fpgaimages", ALLOWED),
    Case("plugin", "list", f"/apis/{KERF}/fpgashells", ALLOWED),
    Case("plugin", "patch", f"/apis/{KERF}/fpgaimages/any", CANNOT, LABEL),
    Case("plugin", "patch", f"/apis/{KERF}/fpgaimages/any/status", CANNOT, LABEL),
    Case("plugin", "delete", f"/apis/{KERF}/fpgashells/any", CANNOT),
    Case("controller", "list", f"/apis/{KERF}/fpgaimages", ALLOWED),
    Case("controller", "patch", f"/apis/{KERF}/fpgaimages/any", CANNOT, LABEL),
    # Devices found by discovery: it enters its own node.
    Case("plugin", "list", f"/apis/{KERF}/discoveryconfigurations", ALLOWED),
    Case("plugin", "create", f"/apis/{KERF}/discoveryconfigurations", CANNOT, {}),
    *DEVICE_CASES,
    Case("plugin", "delete", f"{DEVICES}/any", CANNOT),
    Case("plugin", "patch", f"{DEVICES}/any/status", CANNOT, LABEL),
    Case("controller", "list", DEVICES, ALLOWED),
    Case("controller", "create", DEVICES, CANNOT, device_of("node1")),
    Case("plugin", "create", CLASSES, CANNOT, COMPILED),
    Case("plugin", "create", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{PLUGIN}/token", CANNOT, {}),
    # The controller's DeviceClasses: those that it has compiled.
    Case("controller", "create", CLASSES, "the object owns which it is named after", COMPILED),
    Case(
        "controller", "create", CLASSES, ALLOWED, {**COMPILED, "metadata": {"name": "new", "ownerReferences": [OWNER]}}
    ),
    Case(
        "controller",
        "create",
        CLASSES,
        "the object owns which it is named after",
        {**COMPILED, "metadata": {"name": "other", "ownerReferences": [OWNER]}},
    ),
    Case("controller", "patch", f"{CLASSES}/compiled", ALLOWED, LABEL),
    Case(
        "controller", "patch", f"{CLASSES}/compiled", "which it is named after", {"metadata": {"ownerReferences": []}}
    ),
    Case("controller", "patch", f"{CLASSES}/admins", "which it is named after", LABEL),
    Case(
        "controller",
        "patch",
        f"{CLASSES}/admins",
        "which it is named after",
        {"metadata": {"ownerReferences": [{**OWNER, "name": "admins"}]}},
    ),
    Case("controller", "delete", f"{CLASSES}/compiled", CANNOT),
    # The controller's slices: those that have lost their node.
    Case("controller", "delete", f"{SLICES}/{{slice}}", "that has lost its node"),
    Case("controller", "delete", f"{SLICES}/by-hand-bare1", ALLOWED),
    Case("controller", "delete", SLICES, "cannot deletecollection"),
    Case("controller", "create", SLICES, "that has lost its node", slice_of("node1")),
    # Everything else of the controller's.
    Case("controller", "list", f"/apis/{RESOURCE}/resourceclaims", CANNOT),
    Case("controller", "list", "/api/v1/nodes", ALLOWED),
    Case("controller", "get", f"{BINDINGS}/any", CANNOT),
    Case("controller", "list", BINDINGS, CANNOT),
    Case("controller", "list", "/api/v1/secrets", CANNOT),
    Case("controller", "list", "/api/v1/pods", CANNOT),
    Case("controller", "patch", f"/apis/{KERF}/resourceclasses/compiled", CANNOT, LABEL),
    Case("controller", "get", f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/any", CANNOT),
    Case("controller", "list", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", CANNOT),
)


@pytest.fixture(scope="module")
async def accounts(cluster: Cluster, api: Api, kerf: Kerf) -> AsyncIterator[Mapping[Who, Api]]:
    """A client for each identity."""
    node1, bare1 = await kerf.plugin_pod("node1"), await api.get("v1", "Node", "bare1")
    async with clients(cluster, kerf, node1, bare1) as opened:
        yield opened


@pytest.fixture(scope="module")
async def objects(api: Api, kerf: Kerf) -> str:
    """The objects that CASES name; returns the name of a slice of the plugin on node1."""
    spec = {"device": "gpu", "profile": "1g.10gb"}
    await api.apply({"apiVersion": KERF, "kind": "ResourceClass", "metadata": {"name": "compiled"}, "spec": spec})
    await api.create({**COMPILED, "metadata": {"name": "admins"}})
    await api.create(slice_of("bare1"))
    for found in FOUND:
        await api.create(found)
    for name, results in CLAIMS.items():
        await api.create(claim(name))
        if results:
            patch = {"status": {"allocation": allocation(name), "devices": [one for one in results if one == NIC]}}
            await api.patch(RESOURCE, "ResourceClaim", name, patch, "default", subresource="status")

    async def is_compiled() -> Document | None:
        return await api.find(RESOURCE, "DeviceClass", "compiled")

    async def slices() -> list[Document]:
        return await api.list(RESOURCE, "ResourceSlice", fieldSelector="spec.nodeName=node1")

    await eventually("the class is compiled", is_compiled)
    return str((await eventually("the plugin publishes", slices))[0]["metadata"]["name"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.who}: {case.verb} {case.what.rpartition('/')[2]}")
async def test_an_account_may_do_what_the_table_says(
    accounts: Mapping[Who, Api], objects: str, version: KubernetesVersion, case: Case
) -> None:
    is_policys = bool(case.policy) and version.minor in BEFORE_1_36
    expected = case.policy if is_policys else case.said
    code = "422 " if case.policy and not is_policys else "403 "
    await wait_said(accounts[case.who], case, expected, code, slice=objects)


@pytest.mark.parametrize("namespace", ["default", NAMESPACE])
@pytest.mark.parametrize("account", ACCOUNTS)
async def test_of_all_that_the_api_server_has_an_account_may_do_what_the_page_says_and_nothing_else(
    api: Api, accounts: Mapping[Who, Api], account: str, namespace: str
) -> None:
    rights = await find_rights(api)
    allowed = await find_allowed(accounts[ACCOUNTS[account]], namespace, rights)
    assert len(rights) > 400
    assert sorted(allowed) == sorted(told(account, ["manifests"], namespace) & rights.keys())


@pytest.fixture(scope="module")
async def rights_before_1_36(api: Api) -> None:
    """Gives the plugin's account what every writer of a claim's status has where claims have no finer permissions."""
    rules = [
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/binding"], "verbs": ["patch"]},
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/driver"], "verbs": ["arbitrary-node:patch"]},
    ]
    rbac, name = "rbac.authorization.k8s.io", "before-1-36"
    metadata = {"name": name}
    await api.apply({"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules})
    await api.apply(
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": PLUGIN, "namespace": NAMESPACE}],
        }
    )


@pytest.mark.usefixtures("rights_before_1_36")
@pytest.mark.parametrize("case", STATUS_CASES, ids=lambda case: f"{case.who}: {case.what.split('/')[-2]}")
async def test_the_policy_alone_protects_the_status_of_claims_before_1_36(
    accounts: Mapping[Who, Api], objects: str, case: Case
) -> None:
    async def is_refused_by_policy() -> str | None:
        said = await send(accounts[case.who], case, slice=objects)
        return None if _DRIVER in said or _BINDING in said else said  # the role is not in force yet

    said = await eventually("the policy refuses", is_refused_by_policy)
    assert case.policy in said


async def test_no_role_lets_an_account_of_kerf_write_what_fpgas_load(api: Api, accounts: Mapping[Who, Api]) -> None:
    """FP-06: the policies refuse it, and everybody but the controller who writes the status."""
    rbac, name = "rbac.authorization.k8s.io", "fpga-writer"
    rules = [{"apiGroups": [KERF.partition("/")[0]], "resources": ["fpgashells"], "verbs": ["create"]}]
    await api.apply({"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules})
    await api.apply(
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": PLUGIN, "namespace": NAMESPACE}],
        }
    )
    spec = {"interfaceUUID": "1d0b24b2-6a5f-5c0e-9b0e-6a0e7a1f3c55", "slots": [{"lut": 1}]}
    shell = {"apiVersion": KERF, "kind": "FpgaShell", "metadata": {"name": "lab"}, "spec": spec}

    async def is_refused_by_policy() -> str | None:
        try:
            await accounts["plugin"].create(shell)
        except StatusError as error:
            return None if "cannot create" in error.message else error.message  # the role is not in force yet
        return "created"

    said = await eventually("the policy refuses", is_refused_by_policy)
    assert "nodes and the accounts of Kerf only read FpgaShells and FpgaImages" in said
    await api.create(shell)
    with pytest.raises(StatusError, match="only the controller of Kerf writes the status"):
        await api.patch(KERF, "FpgaShell", "lab", {"status": {"observedGeneration": 7}}, subresource="status")
    report = {"status": {"observedGeneration": 1}}
    await accounts["controller"].patch(KERF, "FpgaShell", "lab", report, subresource="status")
    await api.delete(KERF, "FpgaShell", "lab")


async def test_early_loading_lets_the_plugin_read_all_claims(api: Api, accounts: Mapping[Who, Api]) -> None:
    for document in manifests(DEPLOY / "early-loading"):
        await api.apply(document)

    async def may_list() -> bool:
        case = Case("plugin", "list", f"/apis/{RESOURCE}/resourceclaims", ALLOWED)
        return not await send(accounts["plugin"], case)

    await eventually("the role is in force", may_list)


async def test_the_type_checker_finds_nothing_to_warn_of_in_the_policies(api: Api, kerf: Kerf) -> None:
    async def are_checked() -> list[Document]:
        found = await api.list("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy")
        return found if all(one.get("status", {}).get("observedGeneration") for one in found) else []

    for policy in await eventually("their types are checked", are_checked):
        assert not policy["status"].get("typeChecking", {}).get("expressionWarnings"), policy["metadata"]["name"]


def test_no_role_of_deploy_has_a_wildcard() -> None:
    folders = (DEPLOY / "manifests", DEPLOY / "early-loading", DEPLOY / "classic")
    rules = [rule for folder in folders for document in manifests(folder) for rule in document.get("rules", ())]
    assert rules
    assert not [rule for rule in rules if "*" in (*rule["apiGroups"], *rule["resources"], *rule["verbs"])]
