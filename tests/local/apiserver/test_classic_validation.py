"""What an API server of 1.30 refuses of a status (validation of ``kubernetes/pkg/apis/resource``, 1.30): V-1 to V-11.

V-9 (a status write changes no finalizer) and V-10 (no new finalizer on what is being deleted) hold for every kind of
the embedded server; here they are tried on claims.
"""

from typing import Any

import pytest

from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.classic import ClassicClaim, ClassicClaimSpec, ClassicRequest
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.resource.v1alpha2 import KINDS
from kerf_dra.api.wire import Kind
from kerf_dra.driver.kube.discovery import discover_classic
from kerf_dra.driver.kube.http.client import Client, PatchType
from kerf_dra.driver.kube.http.credentials import Access
from kerf_dra.driver.kube.http.errors import InvalidError
from kerf_dra.driver.local.apiserver import ApiServer, ApiServerSettings
from kerf_dra.driver.local.apiserver.kinds.validation.classic import validate_claim_status, validate_context_status

ALLOCATION: JsonObject = {"resourceHandles": [{"driverName": "gpu.kerf.dev", "data": "{}"}]}
ALLOCATED: JsonObject = {"driverName": "gpu.kerf.dev", "allocation": ALLOCATION}
POD: JsonObject = {"resource": "pods", "name": "pod", "uid": "1"}
OTHER: JsonObject = {"resource": "pods", "name": "other", "uid": "2"}
SHARED: JsonObject = {"driverName": "gpu.kerf.dev", "allocation": {**ALLOCATION, "shareable": True}}


def many(count: int) -> list[JsonObject]:
    return [{"resource": "pods", "name": f"pod-{number}", "uid": str(number)} for number in range(count)]


def refused(status: JsonObject, before: JsonObject, metadata: JsonObject | None = None) -> list[str]:
    new = {"metadata": metadata or {}, "status": status}
    return [error.path for error in validate_claim_status(new, {"metadata": {}, "status": before})]


STATUSES: list[tuple[str, JsonObject, JsonObject, list[str]]] = [
    # rule, new status, old status, the fields that are refused
    ("fine", ALLOCATED, {}, []),
    ("fine", {**ALLOCATED, "reservedFor": [POD]}, {}, []),
    ("fine", {}, {**ALLOCATED, "deallocationRequested": True}, []),
    ("fine", {**ALLOCATED, "deallocationRequested": True}, ALLOCATED, []),
    ("V-1", {"allocation": ALLOCATION}, {}, ["status.driverName"]),
    ("V-2", {**ALLOCATED, "allocation": {"resourceHandles": []}}, ALLOCATED, ["status.allocation"]),
    ("V-3", {"reservedFor": [POD]}, {}, ["status.reservedFor"]),
    ("V-4", {**ALLOCATED, "reservedFor": [POD, OTHER]}, ALLOCATED, ["status.reservedFor"]),
    ("fine", {**SHARED, "reservedFor": [POD, OTHER]}, SHARED, []),
    ("V-4", {**SHARED, "reservedFor": many(33)}, SHARED, ["status.reservedFor"]),
    ("V-4", {**SHARED, "reservedFor": [POD, POD]}, SHARED, ["status.reservedFor[1]"]),
    (
        "V-4",
        {**ALLOCATED, "reservedFor": [{"uid": "1"}]},
        ALLOCATED,
        ["status.reservedFor[0].resource", "status.reservedFor[0].name"],
    ),
    (
        "V-5",
        {**ALLOCATED, "deallocationRequested": True, "reservedFor": [POD]},
        {**ALLOCATED, "deallocationRequested": True},
        ["status.reservedFor"],
    ),
    (
        "V-6",
        {**ALLOCATED, "deallocationRequested": True, "reservedFor": [POD]},
        {**ALLOCATED, "reservedFor": [POD]},
        ["status.deallocationRequested"],
    ),
    ("V-6", {"deallocationRequested": True}, {}, ["status.deallocationRequested"]),
    ("V-7", ALLOCATED, {**ALLOCATED, "deallocationRequested": True}, ["status.deallocationRequested"]),
    (
        "V-8",
        {**ALLOCATED, "allocation": {"resourceHandles": [{"driverName": "gpu.kerf.dev"}] * 33}},
        {},
        ["status.allocation.resourceHandles"],
    ),
    (
        "V-8",
        {**ALLOCATED, "allocation": {"resourceHandles": [{"driverName": "gpu.kerf.dev", "data": "x" * 16385}]}},
        {},
        ["status.allocation.resourceHandles[0].data"],
    ),
    (
        "V-8",
        {**ALLOCATED, "allocation": {"resourceHandles": [{"data": "x"}]}},
        {},
        ["status.allocation.resourceHandles[0].driverName"],
    ),
    (
        "V-8",
        {**ALLOCATED, "allocation": {"resourceHandles": [{"driverName": "a.b", "data": "x", "structuredData": {}}]}},
        {},
        ["status.allocation.resourceHandles[0]"],
    ),
]


@pytest.mark.parametrize(("rule", "status", "before", "fields"), STATUSES)
def test_what_may_become_of_a_status(rule: str, status: JsonObject, before: JsonObject, fields: list[str]) -> None:
    assert refused(status, before) == fields
    assert bool(fields) == (rule != "fine")


def test_a_claim_that_is_being_deleted_gets_no_new_consumer() -> None:
    # V-5
    deleted = {"deletionTimestamp": "2024-05-01T00:00:00Z"}
    assert refused({**ALLOCATED, "reservedFor": [POD]}, ALLOCATED, deleted) == ["status.reservedFor"]
    assert refused({**ALLOCATED, "reservedFor": [POD]}, {**ALLOCATED, "reservedFor": [POD]}, deleted) == []


@pytest.mark.parametrize(
    ("entries", "fields"),
    [
        ([{"name": "gpu", "unsuitableNodes": ["n1", "n2"]}], []),
        ([{"name": "gpu"}, {"name": "gpu"}], ["status.claims[1]"]),
        ([{"name": "gpu", "unsuitableNodes": [f"n{n}" for n in range(129)]}], ["status.claims[0].unsuitableNodes"]),
        ([{"name": "gpu", "unsuitableNodes": ["n1", "n1"]}], ["status.claims[0].unsuitableNodes[1]"]),
        ([{"name": "gpu", "unsuitableNodes": ["Not A Name"]}], ["status.claims[0].unsuitableNodes[0]"]),
    ],
)
def test_what_drivers_may_report(entries: list[JsonObject], fields: list[str]) -> None:
    # V-11
    assert [error.path for error in validate_context_status({"status": {"resourceClaims": entries}}, {})] == fields


@pytest.fixture
async def client() -> Any:
    import anyio

    server = ApiServer(settings=ApiServerSettings(kubernetes=(1, 30), resource_versions=("v1alpha2",)))
    async with anyio.create_task_group() as tasks:
        await tasks.start(server.serve)
        async with Client(Access(server=server.url), user_agent="test") as client:
            yield client
        tasks.cancel_scope.cancel()


async def test_the_embedded_server_of_1_30_lets_drivers_allocate(client: Client) -> None:
    features = await discover_classic(client)
    assert features is not None
    assert (features.kubernetes, features.resource.version) == ((1, 30), "v1alpha2")


async def test_finalizers_and_status_are_written_by_calls_of_their_own(client: Client) -> None:
    # V-9, V-10
    spec = ClassicClaimSpec(requests=(ClassicRequest(class_name="gpu"),))
    claim = ClassicClaim(metadata=ObjectMeta(name="claim", namespace="default", finalizers=("a.b/c",)), spec=spec)
    await client.create(KINDS.claims, claim)

    async def patch(body: JsonObject, subresource: str = "") -> ClassicClaim:
        kind: Kind[ClassicClaim] = KINDS.claims
        return await client.patch(
            kind, "claim", body, type=PatchType.MERGE, namespace="default", subresource=subresource
        )

    through_status = await patch({"metadata": {"finalizers": ["d.e/f"]}, "status": ALLOCATED}, "status")
    assert through_status.metadata.finalizers == ("a.b/c",)
    assert through_status.status.driver_name == "gpu.kerf.dev"
    through_main = await patch({"status": {"allocation": None}})
    assert through_main.status.allocation is not None
    await client.delete(KINDS.claims, "claim", "default")
    with pytest.raises(InvalidError):
        await patch({"metadata": {"finalizers": ["a.b/c", "d.e/f"]}})
    await patch({"metadata": {"finalizers": None}})
    with pytest.raises(KerfError):
        await client.get(KINDS.claims, "claim", "default")
