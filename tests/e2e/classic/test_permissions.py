"""The limits of Kerf's service accounts where drivers allocate, by the roles and policies of ``deploy/``.

CASES is the part of docs/security.md about classic clusters: who does what to which object, and what the API server
says.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Final

import pytest

from tests.e2e.classic.dialects import KERF, Dialect
from tests.e2e.permission_cases import ALLOWED, CANNOT, Case, Who, clients, wait_said
from tests.e2e.permission_matrix import ACCOUNTS, find_allowed, find_rights, told
from tools.realcluster.api import Api, Document
from tools.realcluster.cluster import Cluster
from tools.realcluster.kerf import NAMESPACE, Kerf

LABEL: Final[Document] = {"metadata": {"labels": {"a": "b"}}}
CLAIM: Final = "asked"
"""A claim that no pod uses, so that nothing is allocated for it."""
DRAFT: Final[Document] = {"metadata": {"name": "other"}, "spec": {}}
IN_DEFAULT: Final = "/apis/{resource}/namespaces/default"
CLAIMS: Final = f"{IN_DEFAULT}/resourceclaims"
CONTEXTS: Final = f"{IN_DEFAULT}/podschedulingcontexts"
INVENTORIES: Final = f"/apis/{KERF}/nodeinventories"
PARAMETERS: Final = f"/apis/{KERF}/namespaces/default/gpuclaimparameters"
_NONE_OF_ITS: Final = "may not write the status of a claim that has none of its devices"
_STOLEN: Final[Document] = {"driverName": "gpu.kerf.dev", "allocation": {"shareable": True}}
_NOT_ITS_CLASS: Final = "may only write a DeviceClass that the object owns which it is named after"


def inventory(node: str, name: str = "", driver: str = "gpu.kerf.dev") -> Document:
    return {
        "apiVersion": KERF,
        "kind": "NodeInventory",
        "metadata": {"name": name or f"{node}-{driver}"},
        "spec": {"node": node, "driver": driver},
    }


CASES: Final = (
    # The plugin's inventories: of its node, with its name.
    Case("plugin", "patch", f"{INVENTORIES}/node1-gpu.kerf.dev", ALLOWED, LABEL),
    Case("plugin", "create", INVENTORIES, ALLOWED, inventory("node1", driver="nic.example.com")),
    Case("plugin", "create", INVENTORIES, 'may not write the NodeInventory of node "bare1"', inventory("bare1")),
    Case("plugin", "create", INVENTORIES, 'has the name "node1-gpu.kerf.dev"', inventory("node1", "mine")),
    Case("plugin of bare1", "create", INVENTORIES, ALLOWED, inventory("bare1")),
    Case("plugin of bare1", "patch", f"{INVENTORIES}/node1-gpu.kerf.dev", 'NodeInventory of node "node1"', LABEL),
    Case("plugin without node", "patch", f"{INVENTORIES}/node1-gpu.kerf.dev", 'node "" may not write', LABEL),
    Case("plugin", "delete", f"{INVENTORIES}/node1-gpu.kerf.dev", CANNOT),
    Case("plugin", "list", INVENTORIES, CANNOT),
    # Claims: any of them one at a time, and nothing of their status, which has no devices of drivers here.
    Case("plugin", "get", f"{CLAIMS}/{CLAIM}", ALLOWED),
    Case("plugin", "list", CLAIMS, CANNOT),
    Case("plugin", "create", CLAIMS, CANNOT, DRAFT),
    Case("plugin", "patch", f"{CLAIMS}/{CLAIM}", CANNOT, LABEL),
    Case("plugin", "delete", f"{CLAIMS}/{CLAIM}", CANNOT),
    Case("plugin", "patch", f"{CLAIMS}/{CLAIM}/status", _NONE_OF_ITS, {"status": {"driverName": "gpu.kerf.dev"}}),
    Case("plugin", "patch", f"{CLAIMS}/{CLAIM}/status", _NONE_OF_ITS, {"status": _STOLEN}),
    Case("plugin without node", "patch", f"{CLAIMS}/{CLAIM}/status", "this token names no node", {"status": {}}),
    # Everything else of the plugin's.
    Case("plugin", "list", CONTEXTS, CANNOT),
    Case("plugin", "list", PARAMETERS, CANNOT),
    Case("plugin", "get", "/api/v1/nodes/bare1", ALLOWED),
    Case("plugin", "list", "/api/v1/nodes", CANNOT),
    Case("plugin", "list", "/api/v1/pods", CANNOT),
    Case("plugin", "list", "/api/v1/secrets", CANNOT),
    # The controller's claims: their finalizers and their status.
    Case("controller", "list", "/apis/{resource}/resourceclaims", ALLOWED),
    Case("controller", "watch", "/apis/{resource}/resourceclaims", ALLOWED),
    Case("controller", "patch", f"{CLAIMS}/{CLAIM}", ALLOWED, {"metadata": {"finalizers": ["gpu.kerf.dev/a"]}}),
    Case("controller", "patch", f"{CLAIMS}/{CLAIM}/status", ALLOWED, {"status": {}}),
    Case("controller", "create", CLAIMS, CANNOT, DRAFT),
    Case("controller", "delete", f"{CLAIMS}/{CLAIM}", CANNOT),
    Case("controller", "list", "/apis/{resource}/resourceclaimtemplates", CANNOT),
    # What it decides by, and where it answers.
    Case("controller", "list", "/apis/{resource}/podschedulingcontexts", ALLOWED),
    Case("controller", "patch", f"{CONTEXTS}/p", CANNOT, LABEL),
    Case("controller", "list", "/apis/{resource}/{classes}", ALLOWED),
    Case("controller", "patch", "/apis/{resource}/{classes}/gpu-small", CANNOT, LABEL, policy=_NOT_ITS_CLASS),
    Case("controller", "list", f"/apis/{KERF}/gpuclaimparameters", ALLOWED),
    Case("controller", "create", PARAMETERS, CANNOT, DRAFT),
    Case("controller", "list", INVENTORIES, ALLOWED),
    Case("controller", "patch", f"{INVENTORIES}/node1-gpu.kerf.dev", CANNOT, LABEL),
    # Everything else of the controller's.
    Case("controller", "list", "/api/v1/nodes", ALLOWED),
    Case("controller", "list", "/api/v1/pods", CANNOT),
    Case("controller", "list", "/api/v1/secrets", CANNOT),
    Case("controller", "get", f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/any", CANNOT),
)


@pytest.fixture(scope="module")
async def accounts(cluster: Cluster, api: Api, kerf: Kerf, dialect: Dialect) -> AsyncIterator[Mapping[Who, Api]]:
    """A client for each identity, and the claim that CASES name."""
    await api.create(
        {
            "apiVersion": dialect.api_version,
            "kind": "ResourceClaim",
            "metadata": {"name": CLAIM, "namespace": "default"},
            "spec": dialect.claim_spec("gpu-small", None),
        }
    )
    node1, bare1 = await kerf.plugin_pod("node1"), await kerf.plugin_pod("bare1")  # 1.30 binds no token to a node
    async with clients(cluster, kerf, node1, bare1) as opened:
        yield opened
    await api.delete("v1", "Pod", bare1["metadata"]["name"], NAMESPACE, grace_s=0)
    await api.delete(dialect.api_version, "ResourceClaim", CLAIM, "default")


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.who}: {case.verb} {case.what.rpartition('/')[2]}")
async def test_an_account_may_do_what_the_table_says(accounts: Mapping[Who, Api], dialect: Dialect, case: Case) -> None:
    classes = f"{dialect.class_kind.lower()}es"
    # Where classes are DeviceClasses (1.31) the controller writes its own, and the policy refuses the others.
    said = case.policy if case.policy and dialect.class_kind == "DeviceClass" else case.said
    await wait_said(accounts[case.who], case, said, "403 ", resource=dialect.api_version, classes=classes)


@pytest.mark.parametrize("namespace", ["default", NAMESPACE])
@pytest.mark.parametrize("account", ACCOUNTS)
async def test_of_all_that_the_api_server_has_an_account_may_do_what_the_page_says_and_nothing_else(
    api: Api, accounts: Mapping[Who, Api], account: str, namespace: str
) -> None:
    rights = await find_rights(api)
    allowed = await find_allowed(accounts[ACCOUNTS[account]], namespace, rights)
    assert len(rights) > 400
    assert sorted(allowed) == sorted(told(account, ["manifests", "classic"], namespace) & rights.keys())
