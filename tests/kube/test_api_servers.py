"""What a client may rely on at every API server: the one in memory, and the embedded one over sockets.

The embedded one is compared with a real Kubernetes by ``tests/contract``.
"""

from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest

from kerf_dra.api.core.v1 import LEASES, Lease, LeaseSpec
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.devices import Device, ResourcePool, ResourceSlice, ResourceSliceSpec
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.driver.kube.http.client import Client, PatchType
from kerf_dra.driver.kube.http.errors import AlreadyExistsError, ConflictError, NotFoundError
from tests.kube.memory_server import MemoryServer
from tests.kube.test_against_the_embedded_cluster import IN_TIME_S, cluster

SLICES = KINDS.resource_slices


@pytest.fixture(params=["in memory", "embedded"])
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Client]:
    if request.param == "in memory":
        yield MemoryServer().client()
    else:
        async with cluster(tmp_path) as (_, client):
            yield client


def lease(name: str, holder: str = "nobody", metadata: ObjectMeta | None = None) -> Lease:
    return Lease(
        metadata=metadata or ObjectMeta(name=name, namespace="default"), spec=LeaseSpec(holder_identity=holder)
    )


def slice_of(node: str, name: str = "") -> ResourceSlice:
    pool = ResourcePool(name=node, generation=1, resource_slice_count=1)
    spec = ResourceSliceSpec(driver="gpu.kerf.dev", pool=pool, node_name=node, devices=(Device(name="gpu-0"),))
    return ResourceSlice(metadata=ObjectMeta(name=name or node), spec=spec)


async def seen(client: Client, version: str, count: int, field_selector: str = "") -> list[tuple[str, str]]:
    """The next changes of slices since ``version``: what happened to which."""
    found: list[tuple[str, str]] = []
    with anyio.fail_after(IN_TIME_S):
        watch = client.watch(SLICES, resource_version=version, field_selector=field_selector)
        async with aclosing(watch) as events:
            while len(found) < count:
                event = await anext(events)
                found += [(event.type, event.ref.name)] if event.ref else []
    return found


async def merged(client: Client, name: str, spec: JsonObject) -> Lease:
    return await client.patch(LEASES, name, {"spec": spec}, type=PatchType.MERGE, namespace="default")


async def test_what_is_created_has_an_identity_and_is_created_once(client: Client) -> None:
    made = await client.create(LEASES, lease("a"))
    assert made.metadata.uid
    assert made.metadata.resource_version
    assert await client.get(LEASES, "a", "default") == made
    with pytest.raises(AlreadyExistsError):
        await client.create(LEASES, lease("a"))
    other = await client.create(LEASES, lease("b"))
    assert other.metadata.uid != made.metadata.uid


async def test_what_is_not_there_is_not_found(client: Client) -> None:
    with pytest.raises(NotFoundError):
        await client.get(LEASES, "a", "default")
    with pytest.raises(NotFoundError):
        await client.update(SLICES, slice_of("a"))  # a lease would be created, as some kinds are by an update
    with pytest.raises(NotFoundError):
        await client.patch(LEASES, "a", {"spec": {}}, type=PatchType.MERGE, namespace="default")
    with pytest.raises(NotFoundError):
        await client.delete(LEASES, "a", "default")


async def test_an_update_of_an_old_version_is_a_conflict(client: Client) -> None:
    old = await client.create(LEASES, lease("a"))
    new = await client.update(LEASES, lease("a", "me", old.metadata))
    assert (new.spec.holder_identity, new.metadata.uid) == ("me", old.metadata.uid)
    assert int(new.metadata.resource_version) > int(old.metadata.resource_version)
    with pytest.raises(ConflictError):
        await client.update(LEASES, lease("a", "you", old.metadata))
    assert await client.get(LEASES, "a", "default") == new


async def test_a_merge_patch_changes_what_it_names_and_null_takes_away(client: Client) -> None:
    await client.create(LEASES, lease("a", "me"))
    more = await merged(client, "a", {"leaseTransitions": 3})
    assert (more.spec.holder_identity, more.spec.lease_transitions) == ("me", 3)
    less = await merged(client, "a", {"leaseTransitions": None})
    assert less.spec == lease("a", "me").spec


async def test_a_delete_is_of_the_object_that_is_meant(client: Client) -> None:
    made = await client.create(LEASES, lease("a"))
    with pytest.raises(ConflictError):
        await client.delete(LEASES, "a", "default", uid="another")
    with pytest.raises(ConflictError):
        await client.delete(LEASES, "a", "default", resource_version="1")
    await client.delete(LEASES, "a", "default", uid=made.metadata.uid)
    with pytest.raises(NotFoundError):
        await client.get(LEASES, "a", "default")
    again = await client.create(LEASES, lease("a"))
    assert again.metadata.uid != made.metadata.uid


async def test_a_list_is_ordered_by_name_and_holds_what_its_selector_names(client: Client) -> None:
    for node in ("n2", "n1", "n3"):
        await client.create(SLICES, slice_of(node))
    assert [one.metadata.name for one in (await client.list(SLICES)).items] == ["n1", "n2", "n3"]
    found = await client.list(SLICES, field_selector="spec.driver=gpu.kerf.dev,spec.nodeName=n2")
    assert [one.metadata.name for one in found.items] == ["n2"]
    assert (await client.list(SLICES, field_selector="spec.driver=other,spec.nodeName=n2")).items == ()


async def test_a_watch_tells_every_change_since_a_list_in_order(client: Client) -> None:
    await client.create(SLICES, slice_of("before"))
    version = (await client.list(SLICES)).metadata.resource_version
    made = await client.create(SLICES, slice_of("n1"))
    await client.patch(SLICES, "n1", {"metadata": {"labels": {"a": "b"}}}, type=PatchType.MERGE)
    await client.create(SLICES, slice_of("n2"))
    await client.delete(SLICES, "n1")
    changes = [("ADDED", "n1"), ("MODIFIED", "n1"), ("ADDED", "n2"), ("DELETED", "n1")]
    assert await seen(client, version, 4) == changes
    assert await seen(client, made.metadata.resource_version, 3) == changes[1:]


async def test_a_watch_with_a_selector_tells_of_what_it_names_alone(client: Client) -> None:
    version = (await client.list(SLICES)).metadata.resource_version
    for node in ("n1", "n2"):
        await client.create(SLICES, slice_of(node))
    await client.delete(SLICES, "n1")
    await client.delete(SLICES, "n2")
    assert await seen(client, version, 2, "spec.nodeName=n2") == [("ADDED", "n2"), ("DELETED", "n2")]
