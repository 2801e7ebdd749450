import json
import subprocess
import sys
from typing import Any

import pytest

from kerf_dra.api.core.v1 import BINDINGS, LEASES, NODES, PODS, Binding, Lease, Node, ObjectReference
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.kube.http.client import Client, PatchType
from kerf_dra.driver.kube.http.errors import (
    AlreadyExistsError,
    ConflictError,
    ExpiredError,
    InvalidError,
    NotFoundError,
    UnexpectedAnswerError,
)
from kerf_dra.driver.kube.http.transport import HttpRequest
from tests.kube.identified import identified
from tests.kube.memory_server import MemoryServer, answering, failing
from tests.runtime.virtual_time import VIRTUAL_TIME

NODE = identified("/api/v1/nodes/n1", {"metadata": {"name": "n1", "uid": "u1", "resourceVersion": "7"}})


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


@pytest.fixture
def server() -> MemoryServer:
    return MemoryServer()


@pytest.fixture
def client(server: MemoryServer) -> Client:
    return server.client()


def last(server: MemoryServer) -> HttpRequest:
    return server.requests[-1][1]


def body(server: MemoryServer) -> Any:
    return json.loads(last(server).body or b"null")


async def test_what_was_created_can_be_read_updated_and_deleted(client: Client) -> None:
    made = await client.create(LEASES, Lease(metadata=ObjectMeta(name="a", namespace="kerf")))
    assert (await client.get(LEASES, "a", "kerf")) == made
    changed = await client.update(LEASES, Lease(metadata=made.metadata))
    assert changed.metadata.resource_version != made.metadata.resource_version
    with pytest.raises(ConflictError):
        await client.update(LEASES, Lease(metadata=made.metadata))
    with pytest.raises(AlreadyExistsError):
        await client.create(LEASES, Lease(metadata=ObjectMeta(name="a")), namespace="kerf")
    await client.delete(LEASES, "a", "kerf")
    with pytest.raises(NotFoundError):
        await client.get(LEASES, "a", "kerf")


async def test_a_list_follows_its_pages(server: MemoryServer, client: Client) -> None:
    server.page = 3
    for number in range(10):
        server.put("nodes", {"metadata": {"name": f"n{number}"}})
    found = await client.list(NODES)
    assert [value.metadata.name for value in found.items] == [f"n{number}" for number in range(10)]
    assert found.metadata.resource_version == str(server.version)
    assert [request.query.get("continue", "") for request in server.sent("GET")] == ["", "3", "6", "9"]


async def test_a_list_may_be_of_one_namespace_and_of_what_selectors_choose(
    server: MemoryServer, client: Client
) -> None:
    server.put("pods", {"metadata": {"name": "a", "labels": {"app": "x"}}, "spec": {"nodeName": "n1"}}, "default")
    server.put("pods", {"metadata": {"name": "b"}, "spec": {"nodeName": "n2"}}, "default")
    server.put("pods", {"metadata": {"name": "c"}, "spec": {"nodeName": "n1"}}, "other")
    assert [value.ref.name for value in (await client.list(PODS)).items] == ["a", "b", "c"]
    chosen = await client.list(PODS, "default", field_selector="spec.nodeName=n1", label_selector="app=x")
    assert [value.ref.name for value in chosen.items] == ["a"]
    assert last(server).query == {"limit": "500", "fieldSelector": "spec.nodeName=n1", "labelSelector": "app=x"}


async def test_a_list_that_outlives_its_pages_is_read_in_one_piece(server: MemoryServer, client: Client) -> None:
    server.page = 2
    for number in range(5):
        server.put("nodes", {"metadata": {"name": f"n{number}"}})

    def expired_second_page(request: HttpRequest) -> Exception | None:
        server.page = None
        return answering(410, "Expired")(request) if "continue" in request.query else None

    server.page = 2
    server.faults.append(lambda request: expired_second_page(request) if "continue" in request.query else None)
    found = await client.list(NODES)
    assert len(found.items) == 5
    assert "limit" not in last(server).query


async def test_a_list_in_pages_has_all_that_was_read_after_each_page_and_may_begin_again(
    server: MemoryServer, client: Client
) -> None:
    server.page = 2
    for number in range(5):
        server.put("nodes", {"metadata": {"name": f"n{number}"}})
    expired = {"continue": "4", "limit": "500"}
    server.faults.append(lambda request: answering(410)(request) if request.query == expired else None)
    counts = [sum(len(page.items) for page in pages) async for pages in client.list_in_pages(NODES)]
    assert counts == [2, 4, 2, 4, 5]


async def test_a_list_that_is_expired_from_its_beginning_is_an_error(server: MemoryServer, client: Client) -> None:
    server.faults.append(failing(answering(410, "Expired")))
    with pytest.raises(ExpiredError):
        await client.list(NODES)
    assert len(server.requests) == 1


async def test_an_unreadable_object_of_a_list_is_named_and_hides_no_other(server: MemoryServer, client: Client) -> None:
    server.put("nodes", {"metadata": {"name": "good"}})
    server.put("nodes", {"metadata": {"name": "odd"}, "spec": {"taints": "?"}})
    listed = await client.list_all(NODES)
    assert [value.metadata.name for value in listed.items] == ["good"]
    assert [ref.name for ref in listed.unreadable] == ["odd"]


@pytest.mark.parametrize(
    "answer", [{"items": "?"}, {"items": [{"metadata": 3}]}, {"items": []}, {"items": [], "kind": "NodeList"}]
)
async def test_an_answer_that_is_no_list_is_an_error(server: MemoryServer, client: Client, answer: Any) -> None:
    server.json["/api/v1/nodes"] = answer
    with pytest.raises(UnexpectedAnswerError):
        await client.list(NODES)


@pytest.mark.parametrize(
    ("type_", "patch", "content_type"),
    [
        (PatchType.MERGE, {"spec": {"unschedulable": True}}, "application/merge-patch+json"),
        (
            PatchType.JSON,
            [{"op": "add", "path": "/spec/unschedulable", "value": True}],
            "application/json-patch+json",
        ),
        (PatchType.APPLY, {"spec": {"unschedulable": True}}, "application/apply-patch+yaml"),
    ],
)
async def test_each_kind_of_patch_says_what_it_is(
    server: MemoryServer, client: Client, type_: PatchType, patch: Any, content_type: str
) -> None:
    server.json["/api/v1/nodes/n1/status"] = NODE
    await client.patch(NODES, "n1", patch, type=type_, subresource="status", field_manager="kerf-controller")
    assert (last(server).method, last(server).content_type) == ("PATCH", content_type)
    assert last(server).query == {"fieldManager": "kerf-controller"}
    assert body(server) == patch


async def test_objects_are_sent_with_sorted_keys(server: MemoryServer, client: Client) -> None:
    """A server-side apply to a claim's status sorts the keys of the parameters that the claim has from its DeviceClass.

    An API server of 1.37 took the parameters for changed when the class had them in another order, and refused every
    status of claims that had configuration.
    """
    parameters = {"kind": "GpuConfig", "apiVersion": "kerf.dev/v1alpha1", "sharing": {"strategy": "Mps", "mps": {}}}
    server.json["/api/v1/nodes/n1"] = NODE
    await client.patch(NODES, "n1", {"spec": {"parameters": parameters}}, type=PatchType.MERGE)
    assert [*body(server)["spec"]["parameters"]] == ["apiVersion", "kind", "sharing"]
    assert [*body(server)["spec"]["parameters"]["sharing"]] == ["mps", "strategy"]


@pytest.mark.parametrize("force", [True, False])
async def test_apply_says_which_kind_and_whose_fields(server: MemoryServer, client: Client, force: bool) -> None:
    server.put("leases", {"metadata": {"name": "a"}}, "kerf")
    value = {"metadata": {"name": "a", "namespace": "kerf"}, "spec": {"holderIdentity": "me"}}
    await client.apply(LEASES, value, field_manager="kerf-controller", force=force)
    assert last(server).path == "/apis/coordination.k8s.io/v1/namespaces/kerf/leases/a"
    assert last(server).query == {"fieldManager": "kerf-controller", **({"force": "true"} if force else {})}
    assert body(server) == {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **value}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {}),
        ({"uid": "u1"}, {"preconditions": {"uid": "u1"}}),
        (
            {"uid": "u1", "resource_version": "7", "grace_s": 0},
            {"preconditions": {"uid": "u1", "resourceVersion": "7"}, "gracePeriodSeconds": 0},
        ),
    ],
)
async def test_a_delete_carries_its_conditions(
    server: MemoryServer, client: Client, options: Any, expected: Any
) -> None:
    server.json["/api/v1/namespaces/default/pods/a"] = {}
    await client.delete(PODS, "a", "default", **options)
    assert body(server) == {"apiVersion": "v1", "kind": "DeleteOptions", **expected}


async def test_a_delete_of_an_object_that_is_another_by_now_is_a_conflict(server: MemoryServer, client: Client) -> None:
    server.put("nodes", {"metadata": {"name": "n1"}})
    with pytest.raises(ConflictError):
        await client.delete(NODES, "n1", uid="of an earlier one")


async def test_a_subresource_is_created_beneath_its_object(server: MemoryServer, client: Client) -> None:
    server.json["/api/v1/namespaces/default/pods/a/binding"] = {"kind": "Status", "status": "Success"}
    binding = Binding(metadata=ObjectMeta(namespace="default", name="a"), target=ObjectReference(name="n1"))
    await client.create_subresource(BINDINGS, binding, "binding")
    assert (last(server).method, body(server)["target"]) == ("POST", {"name": "n1"})


async def test_discovery_that_is_no_json_object_is_an_error(server: MemoryServer, client: Client) -> None:
    server.json["/version"] = []  # type: ignore[assignment]
    with pytest.raises(UnexpectedAnswerError, match="GET /version: the answer is no JSON object"):
        await client.get_json("/version")


async def test_the_field_manager_of_a_create_is_sent(server: MemoryServer, client: Client) -> None:
    await client.create(NODES, Node(metadata=ObjectMeta(name="n1")), field_manager="kerf-controller")
    assert last(server).query == {"fieldManager": "kerf-controller"}


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../secrets/x", "a%2fb"])
async def test_a_name_that_would_lead_elsewhere_is_refused_before_it_is_sent(
    server: MemoryServer, client: Client, name: str
) -> None:
    with pytest.raises(InvalidError, match="cannot be the name of a Pod"):
        await client.get(PODS, name, "default")
    with pytest.raises(InvalidError, match="cannot be the name of a Pod"):
        await client.get(PODS, "a", name)
    with pytest.raises(InvalidError, match="cannot be the name of a Pod"):
        await client.delete(PODS, name, "default")
    assert server.requests == []


def test_a_program_in_a_cluster_never_imports_the_official_client() -> None:
    """It costs 25 MB and 0.3 s, and the kubelet plugin has 65 MB and 1 s."""
    program = (
        "import sys; from kerf_dra.driver.kube import discovery, events, informer, leader_election, slice_publisher;"
        "from kerf_dra.driver.kube.http import client; from kerf_dra.driver.runtime import probes;"
        "print(*sorted({'kubernetes', 'yaml', 'rich', 'click', 'cel_expr_python', 'jsonschema'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True).stdout == "\n"
