"""Who may write a CardMaintenance, and who may keep pods from its evictions, as a real API server says.

No kubelet runs here: the nodes are objects that tokens of the kubelet plugin are bound to.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import pytest

from kerf_dra.driver.reclaim.holders import DO_NOT_EVICT
from tests.e2e import pods
from tests.e2e.card_drains import deployment
from tests.e2e.namespace import Namespace
from tests.e2e.permission_cases import ALLOWED, CANNOT, Case, Who, clients, wait_said
from tests.e2e.wait import eventually
from tools.realcluster.api import Api, Document, StatusError
from tools.realcluster.cluster import Cluster
from tools.realcluster.kerf import DEPLOY, NAMESPACE, PLUGIN, Kerf, manifests

NODES = ()
BARE_NODES = ("node1", "bare1")
KERF: Final = "kerf.dev/v1alpha1"
PATH: Final = f"/apis/{KERF}/cardmaintenances"
RBAC: Final = "rbac.authorization.k8s.io"


def maintenance(node: str, name: str, **spec: Any) -> Document:
    return {
        "apiVersion": KERF,
        "kind": "CardMaintenance",
        "metadata": {"name": name, "labels": {"kerf.dev/node": node}},
        "spec": {"nodeName": node, "card": "GPU-1", **spec},
    }


def status(**fields: Any) -> Document:
    return {"status": fields}


def free(value: str) -> list[Document]:
    return [
        {"type": "Free", "status": value, "reason": "r", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    ]


REPORT: Final = status(phase="Evicting", message="pods hold it", holderCount=1, conditions=free("False"))
"""What the reclaimer has written."""
WORK: Final = {"state": "Waiting", "message": "it is held open", "observedGeneration": 1}
MAINTENANCES: Final = (
    maintenance("node1", "fan"),
    maintenance("node1", "new"),
    maintenance("bare1", "fuse"),
)
"""Those of the cluster; that with the name ``new`` has no status yet."""
HERE: Final = f"{PATH}/fan/status"
_OTHERS: Final = "may not write the maintenance of a card of node"
_WORK_ONLY: Final = "may only write status.work of a CardMaintenance"
_SECOND: Final = "plugin of bare1"
CASES: Final = (
    # The work on a card of the token's own node.
    Case("plugin", "list", PATH, ALLOWED),
    Case("plugin", "patch", HERE, ALLOWED, status(work=WORK)),
    Case("plugin", "patch", f"{PATH}/new/status", ALLOWED, status(work=WORK)),
    Case(_SECOND, "patch", f"{PATH}/fuse/status", ALLOWED, status(work=WORK)),
    Case("plugin", "patch", HERE, ALLOWED, status(work=None)),
    # That of another node's card, by whatever node.
    Case(_SECOND, "patch", HERE, f'{_OTHERS} "node1"', status(work=WORK)),
    Case(_SECOND, "patch", f"{PATH}/new/status", f'{_OTHERS} "node1"', status(work={**WORK, "state": "Done"})),
    Case("plugin", "patch", f"{PATH}/fuse/status", f'{_OTHERS} "bare1"', status(work=WORK)),
    Case("plugin without node", "patch", HERE, "this token names no node", status(work=WORK)),
    # What the reclaimer reports, also beside the work, also by leaving it out.
    Case("plugin", "patch", HERE, _WORK_ONLY, status(phase="Free")),
    Case("plugin", "patch", HERE, _WORK_ONLY, status(work=WORK, conditions=free("True"))),
    Case("plugin", "patch", f"{PATH}/new/status", _WORK_ONLY, status(work=WORK, observedGeneration=1)),
    Case("plugin", "patch", HERE, _WORK_ONLY, status(message=None)),
    Case("plugin", "patch", HERE, _WORK_ONLY, {"status": None}),
    # Everything else.
    Case("plugin", "get", f"{PATH}/fan", CANNOT),
    Case("plugin", "patch", f"{PATH}/fan", CANNOT, {"spec": {"then": "Reset"}}),
    Case("plugin", "create", PATH, CANNOT, maintenance("node1", "more")),
    Case("plugin", "delete", f"{PATH}/fan", CANNOT),
    Case("controller", "list", PATH, CANNOT),
    Case("controller", "patch", HERE, CANNOT, status(work=WORK)),
)
WITH_A_ROLE: Final = (
    Case("plugin", "patch", f"{PATH}/fan", _WORK_ONLY, {"spec": {"then": "Reset"}}),
    Case("plugin", "patch", f"{PATH}/fan", _WORK_ONLY, {"spec": {"card": "GPU-2"}}),
    Case("plugin", "patch", f"{PATH}/fan", _WORK_ONLY, {"spec": {"nodeName": "bare1"}}),
    Case("plugin", "patch", f"{PATH}/fuse", f'{_OTHERS} "bare1"', {"spec": {"nodeName": "node1"}}),
    Case(_SECOND, "patch", f"{PATH}/fan", f'{_OTHERS} "node1"', {"spec": {"then": "Reset"}}),
    Case("plugin", "create", PATH, _WORK_ONLY, maintenance("node1", "more")),
    Case("plugin", "create", PATH, f'{_OTHERS} "bare1"', maintenance("bare1", "more")),
    Case("plugin", "delete", f"{PATH}/fan", _WORK_ONLY),
    Case("plugin", "delete", f"{PATH}/fuse", f'{_OTHERS} "bare1"'),
    Case("plugin without node", "delete", f"{PATH}/fan", "this token names no node"),
)
"""What the policy alone refuses, where a role lets the account write whole CardMaintenances."""


def describe(case: Case) -> str:
    return f"{case.who}: {case.verb} {case.what.removeprefix(PATH)} {case.body and [*case.body.values()][-1]}"


@pytest.fixture(scope="module")
async def accounts(cluster: Cluster, api: Api, installation: Kerf) -> AsyncIterator[Mapping[Who, Api]]:
    """A client for each identity, and the CardMaintenances that the cases name."""
    for one in MAINTENANCES:
        await api.create(one)
        if one["metadata"]["name"] != "new":
            await api.patch(KERF, "CardMaintenance", one["metadata"]["name"], REPORT, subresource="status")
    node1, bare1 = [await api.get("v1", "Node", name) for name in BARE_NODES]
    async with clients(cluster, installation, node1, bare1) as opened:
        yield opened


@pytest.mark.parametrize("case", CASES, ids=describe)
async def test_of_a_maintenance_a_nodes_token_writes_the_work_on_its_own_cards_and_nothing_else(
    accounts: Mapping[Who, Api], case: Case
) -> None:
    await wait_said(accounts[case.who], case, case.said, "403 ")


async def test_a_spec_beside_the_work_changes_nothing(api: Api, accounts: Mapping[Who, Api]) -> None:
    before = await api.get(KERF, "CardMaintenance", "fan")
    patch = {"metadata": {"labels": {"kerf.dev/node": "bare1"}}, "spec": {"then": "Reset"}, **status(work=WORK)}
    await accounts["plugin"].patch(KERF, "CardMaintenance", "fan", patch, subresource="status")
    after = await api.get(KERF, "CardMaintenance", "fan")
    assert after["status"]["work"]["state"] == "Waiting"
    assert (after["spec"], after["metadata"]["labels"], after["metadata"]["generation"]) == (
        before["spec"],
        before["metadata"]["labels"],
        before["metadata"]["generation"],
    )


@pytest.fixture(scope="module")
async def role(api: Api, accounts: Mapping[Who, Api]) -> None:
    """Lets the plugin's account write CardMaintenances, by a role that nothing of ``deploy`` has."""
    assert accounts is not None
    rules = [{"apiGroups": ["kerf.dev"], "resources": ["cardmaintenances"], "verbs": ["create", "patch", "delete"]}]
    metadata = {"name": "maintenance-writer"}
    await api.apply({"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules})
    await api.apply(
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": metadata["name"]},
            "subjects": [{"kind": "ServiceAccount", "name": PLUGIN, "namespace": NAMESPACE}],
        }
    )


@pytest.mark.usefixtures("role")
@pytest.mark.parametrize("case", WITH_A_ROLE, ids=describe)
async def test_no_role_lets_a_nodes_token_say_what_is_done_with_a_card(accounts: Mapping[Who, Api], case: Case) -> None:
    await wait_said(accounts[case.who], case, case.said, "403 ")


# Who may mark pods

LABELS: Final[Mapping[str, Mapping[str, str]]] = {
    "plain": {},
    "refused": {DO_NOT_EVICT: "refused"},
    "allowed": {DO_NOT_EVICT: "allowed"},
}
"""The namespaces with their labels; the policy selects all but the last."""
MARK: Final = {DO_NOT_EVICT: "true"}
_MARKED: Final = "pods of this namespace may not be marked kerf.dev/do-not-evict"


def pod(name: str, *, labels: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None) -> Any:
    value = pods.pod(name)
    value["metadata"] |= {"labels": dict(labels or {}), "annotations": dict(annotations or {})}
    return value


def placed(value: Document, namespace: str) -> Document:
    return {**value, "metadata": {**value["metadata"], "namespace": namespace}}


@pytest.fixture(scope="module")
async def namespaces(api: Api, installation: Kerf) -> None:
    """The namespaces, each with a pod that is marked since before the policy, and one that is not; and the policy."""
    assert installation is not None
    for name, labels in LABELS.items():
        await Namespace(api, name, {}).open(**labels)
        await api.create(placed(pod("old", labels=MARK), name))
        await api.create(placed(pod("other"), name))
    for document in manifests(DEPLOY / "do-not-evict"):
        await api.apply(document)

    async def is_in_force() -> bool:
        return _MARKED in await answer(api, "plain", None, pod("new", labels=MARK))

    await eventually("the policy is in force", is_in_force)


async def answer(api: Api, namespace: str, changed: str | None, body: Document) -> str:
    """Return what the API server says to a dry run: to the creation of a pod, or to a patch of the pod ``changed``."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    try:
        if changed is None:
            await api.request("POST", path, placed(body, namespace), query={"dryRun": "All"})
        else:
            kind = "application/merge-patch+json"
            await api.request("PATCH", f"{path}/{changed}", body, query={"dryRun": "All"}, content_type=kind)
    except StatusError as error:
        return str(error)
    return ""


MARKED: Final[Mapping[str, tuple[str | None, Document]]] = {
    "a new pod has the label": (None, pod("new", labels=MARK)),
    "a new pod has the annotation": (None, pod("new", annotations=MARK)),
    "a new pod has an empty mark": (None, pod("new", labels={DO_NOT_EVICT: ""})),
    "a pod gets the label": ("other", {"metadata": {"labels": MARK}}),
    "a pod gets the annotation": ("other", {"metadata": {"annotations": MARK}}),
    "a marked pod gets the annotation, too": ("old", {"metadata": {"annotations": MARK}}),
    "a mark is changed": ("old", {"metadata": {"labels": {DO_NOT_EVICT: "yes"}}}),
}
UNMARKED: Final[Mapping[str, tuple[str | None, Document]]] = {
    "a new pod has no mark": (None, pod("new")),
    "a new pod says that it may be evicted": (None, pod("new", labels={DO_NOT_EVICT: "false"})),
    "a pod gets another label": ("other", {"metadata": {"labels": {"app": "web"}}}),
    "a marked pod gets another label": ("old", {"metadata": {"labels": {"app": "web"}}}),
    "a mark is removed": ("old", {"metadata": {"labels": {DO_NOT_EVICT: None}}}),
}


@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize("namespace", LABELS)
@pytest.mark.parametrize("case", MARKED)
async def test_a_new_mark_is_refused_but_in_namespaces_with_the_label(api: Api, namespace: str, case: str) -> None:
    said = await answer(api, namespace, *MARKED[case])
    assert (_MARKED in said, said == "") == (namespace != "allowed", namespace == "allowed"), said


@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize("namespace", LABELS)
@pytest.mark.parametrize("case", UNMARKED)
async def test_pods_without_a_new_mark_are_of_no_concern(api: Api, namespace: str, case: str) -> None:
    assert await answer(api, namespace, *UNMARKED[case]) == ""


@pytest.mark.usefixtures("namespaces")
async def test_controllers_make_no_marked_pods_either_until_the_namespace_has_the_label(api: Api) -> None:
    namespace = Namespace(api, "later", {})
    await namespace.open()
    marked = deployment("web", 1, pods.pod("any"))
    marked["spec"]["template"]["metadata"]["annotations"] = MARK
    await namespace.apply(marked)

    async def is_refused() -> bool:
        sets = await api.list("apps/v1", "ReplicaSet", "later")
        conditions = [condition for one in sets for condition in one["status"].get("conditions", ())]
        return any(one["type"] == "ReplicaFailure" and _MARKED in one["message"] for one in conditions)

    await eventually("the ReplicaSet says that its pods are refused", is_refused)
    assert await api.list("v1", "Pod", "later") == []
    await api.patch("v1", "Namespace", "later", {"metadata": {"labels": {DO_NOT_EVICT: "allowed"}}})

    async def is_made() -> bool:
        return len(await api.list("v1", "Pod", "later")) == 1

    await eventually("the pod is made", is_made)
