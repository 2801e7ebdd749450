"""The whole controller against an embedded API server: caches, queue, leader election, garbage collection."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
import yaml
from msgspec.structs import replace

from kerf_dra.api.core.admission import MUTATING_ADMISSION_POLICY_BINDINGS
from kerf_dra.api.core.v1 import CUSTOM_RESOURCE_DEFINITIONS, EVENTS, LEASES, NODES, Node
from kerf_dra.api.kerf.fpga_objects import FPGA_IMAGES, FPGA_SHELLS
from kerf_dra.api.kerf.v1alpha1 import RESOURCE_CLASSES, ResourceClassObject
from kerf_dra.api.model.allocations import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaimStatus,
)
from kerf_dra.api.model.claims import DeviceClass
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.driver.controller.app import run
from kerf_dra.driver.controller.settings import ExtenderSettings, Settings
from kerf_dra.driver.kube.http.client import Client, PatchType
from kerf_dra.driver.kube.http.config import load_access
from kerf_dra.driver.kube.http.errors import InvalidError, NotFoundError
from kerf_dra.driver.kube.leader_election import LeaseSettings
from kerf_dra.driver.local.apiserver import ApiServer
from kerf_dra.driver.runtime.metrics import REGISTRY
from tests.allocation.builders import class_
from tests.controller.structured.placement.certificates import make_certificates
from tests.controller.structured.placement.cluster import body, claim_for, pod
from tests.controller.structured.placement.served_extender import ask, make_context
from tests.fakes.dfl.machine import AES_ID, INTERFACE, build_document
from tests.fakes.published_slices import gpus, slices
from tools.generate import crds
from tools.realcluster.paths import free_port

DEPLOY = Path(__file__).parents[2] / "deploy"
PATIENCE_S = 120.0
"""For something that takes some ten milliseconds, on a busy machine."""
LEASE = ObjectRef("default", "kerf-controller")


class EmbeddedCluster:
    """A server, an administrator's client, and controllers that start and end."""

    def __init__(self, server: ApiServer, kubeconfig: Path, admin: Client) -> None:
        self.server = server
        self.kubeconfig = kubeconfig
        self.admin = admin
        self.orphan_check_s = 60.0
        self.resync_s = 600.0

    @asynccontextmanager
    async def controller(self, identity: str = "one", extender: ExtenderSettings | None = None) -> AsyncIterator[None]:
        settings = Settings(
            kubeconfig=self.kubeconfig,
            identity=identity,
            lease=LEASE,
            leading=LeaseSettings(duration_s=60, renew_deadline_s=40, retry_s=0.1),
            recount_s=0.01,
            settle_s=0.01,
            orphan_check_s=self.orphan_check_s,
            resync_s=self.resync_s,
            exchange_s=0.05,
            grading_check_s=0.05,
            probes="127.0.0.1:0",
            extender=extender,
        )
        async with anyio.create_task_group() as group:
            group.start_soon(run, settings)
            yield
            group.cancel_scope.cancel()

    async def put_class(self, name: str, spec: dict[str, Any]) -> None:
        await self.admin.apply(RESOURCE_CLASSES, {"metadata": {"name": name}, "spec": spec}, field_manager="admin")

    async def device_class(self, name: str) -> DeviceClass | None:
        try:
            return await self.admin.get(KINDS.device_classes, name)
        except NotFoundError:
            return None

    async def conditions(self, name: str) -> dict[str, str]:
        held = await self.resource_class(name)
        return {one.type: one.status for one in held.status.conditions}

    async def resource_class(self, name: str) -> ResourceClassObject:
        return await self.admin.get(RESOURCE_CLASSES, name)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[EmbeddedCluster]:
    server = ApiServer()
    async with anyio.create_task_group() as group:
        await group.start(server.serve)
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(server.kubeconfig()))
        async with Client(await load_access(kubeconfig), user_agent="tests") as admin:
            for crd in crds.documents():
                await admin.apply(CUSTOM_RESOURCE_DEFINITIONS, crd, field_manager="admin")
            yield EmbeddedCluster(server, kubeconfig, admin)
        group.cancel_scope.cancel()


async def eventually(holds: Callable[[], Any]) -> None:
    with anyio.fail_after(PATIENCE_S):
        while not await holds():  # noqa: ASYNC110  (another program's doing, which sets no event of ours)
            await anyio.sleep(0.01)


async def test_classes_are_looked_at_again_although_nothing_happens(cluster: EmbeddedCluster) -> None:
    def count() -> float:
        labels = {"queue": "classes", "outcome": "done"}
        return REGISTRY.get_sample_value("kerf_work_queue_work_seconds_count", labels) or 0.0

    cluster.resync_s = 0.02
    async with cluster.controller():
        await cluster.put_class("small", {"device": "gpu", "profile": "1g.10gb"})
        await eventually(lambda: _has(cluster.conditions("small"), lambda held: held.get("Ready") == "True"))
        before = count()

        async def were_looked_at() -> bool:
            return count() >= before + 3

        await eventually(were_looked_at)


async def test_a_class_is_compiled_kept_and_taken_away(cluster: EmbeddedCluster) -> None:
    for one in slices("n1", gpus("h100-80gb-sxm")):
        await cluster.admin.create(KINDS.resource_slices, one)
    async with cluster.controller():
        await cluster.put_class("small", {"device": "gpu", "minimum": {"memory": "18Gi"}})
        ready = {"Accepted": "True", "Ready": "True", "Matching": "True"}
        await eventually(lambda: _is(cluster.conditions("small"), ready))
        status = (await cluster.resource_class("small")).status
        assert status.matching_devices is not None
        assert status.matching_devices.total == 11

        intended = await cluster.admin.get(KINDS.device_classes, "small")
        drift = {"spec": {"selectors": [{"cel": {"expression": "true"}}], "extendedResourceName": "example.com/all"}}
        await cluster.admin.patch(KINDS.device_classes, "small", drift, type=PatchType.MERGE)
        await eventually(lambda: _has(cluster.device_class("small"), lambda found: found.spec == intended.spec))

        with pytest.raises(InvalidError, match=r"spec\.minimum\.memory"):
            await cluster.put_class("small", {"device": "gpu", "minimum": {"memory": "18Gx"}})
        await cluster.put_class("small", {"device": "gpu", "profile": "9g.90gb"})
        wrong = {"Accepted": "False", "Ready": "False", "Matching": "Unknown"}
        await eventually(lambda: _is(cluster.conditions("small"), wrong))
        assert (await cluster.admin.get(KINDS.device_classes, "small")).spec == intended.spec

        await cluster.admin.delete(RESOURCE_CLASSES, "small")
        await eventually(lambda: _has(cluster.device_class("small"), lambda found: found is None))
    reasons = {event.reason for event in (await cluster.admin.list(EVENTS)).items}
    assert {"Compiled", "UnknownProfile"} <= reasons


async def test_a_node_that_gets_a_label_joins_the_class(cluster: EmbeddedCluster) -> None:
    await cluster.admin.create(NODES, Node(metadata=ObjectMeta(name="n1")))
    async with cluster.controller():
        await cluster.put_class("racked", {"device": "gpu", "nodes": {"matchLabels": {"rack": "r1"}}})
        await eventually(lambda: _selects(cluster, "racked", "node in []"))
        await cluster.admin.patch(NODES, "n1", {"metadata": {"labels": {"rack": "r1"}}}, type=PatchType.MERGE)
        await eventually(lambda: _selects(cluster, "racked", 'node in ["n1"]'))


async def test_a_class_for_a_function_that_no_image_offers_is_told_so_and_accepted_once_one_is_registered(
    cluster: EmbeddedCluster,
) -> None:
    async with cluster.controller():
        shell = {"interfaceUUID": INTERFACE, "slots": [{}]}
        await cluster.admin.apply(FPGA_SHELLS, build_document("FpgaShell", "lab", **shell), field_manager="admin")
        await cluster.put_class("hashing", {"device": "fpga", "function": "sha3"})
        wrong = {"Accepted": "False", "Ready": "False", "Matching": "Unknown"}
        await eventually(lambda: _is(cluster.conditions("hashing"), wrong))
        [accepted, *_] = (await cluster.resource_class("hashing")).status.conditions
        assert accepted.reason == "UnknownFunction"
        assert '"sha3" is not a function of any known model' in accepted.message
        file = {"url": "https://images.example.com/sha3.gbs", "sha256": "a0" * 32, "slots": [[0]]}
        image = {"function": "sha3", "interfaceUUID": INTERFACE, "afuID": AES_ID, "loadSeconds": 1, "files": [file]}
        await cluster.admin.apply(FPGA_IMAGES, build_document("FpgaImage", "sha3", **image), field_manager="admin")
        awaited = {"Accepted": "True", "Ready": "True", "Matching": "False"}  # no node has it yet
        await eventually(lambda: _is(cluster.conditions("hashing"), awaited))
        registered = {"Verified": "True", "Fetched": "Unknown", "Refused": "False"}
        await eventually(lambda: _has(cluster.admin.get(FPGA_IMAGES, "sha3"), partial(_has_conditions, registered)))


async def test_a_quiet_cluster_sees_no_writes(cluster: EmbeddedCluster) -> None:
    for one in slices("n1", gpus("a30")):
        await cluster.admin.create(KINDS.resource_slices, one)
    async with cluster.controller():
        for name in ("a", "b", "c"):
            await cluster.put_class(name, {"device": "gpu"})
        for name in ("a", "b", "c"):
            await eventually(partial(_has_status, cluster, name))
        versions = {name: (await cluster.resource_class(name)).metadata.resource_version for name in "abc"}
        await cluster.put_class("d", {"device": "fpga"})  # whose pass comes after those that our own writes cause
        await eventually(partial(_has_status, cluster, "d"))
        assert versions == {name: (await cluster.resource_class(name)).metadata.resource_version for name in "abc"}


async def test_another_candidate_goes_on_where_the_leader_ended(cluster: EmbeddedCluster) -> None:
    async with cluster.controller("two"):
        async with cluster.controller("one"):
            await eventually(lambda: _has(_holder(cluster), bool))
            await cluster.put_class("first", {"device": "gpu"})
            await eventually(lambda: _has(cluster.device_class("first"), bool))
            leader = await _holder(cluster)
        await cluster.put_class("second", {"device": "gpu"})
        await eventually(lambda: _has(cluster.device_class("second"), bool))
        assert leader in {"one", "two"}
        assert await _holder(cluster) == "two"


async def test_a_leader_that_lost_its_lease_writes_nothing_until_it_has_it_back(cluster: EmbeddedCluster) -> None:
    async with cluster.controller():
        await cluster.put_class("first", {"device": "gpu"})
        await eventually(lambda: _has(cluster.device_class("first"), bool))
        stolen = {"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 3600}}
        await cluster.admin.patch(LEASES, LEASE.name, stolen, type=PatchType.MERGE, namespace=LEASE.namespace)
        await eventually(_nobody_leads)
        await cluster.put_class("second", {"device": "gpu"})
        assert await cluster.device_class("second") is None
        freed = {"spec": {"holderIdentity": None}}
        await cluster.admin.patch(LEASES, LEASE.name, freed, type=PatchType.MERGE, namespace=LEASE.namespace)
        await eventually(lambda: _has(cluster.device_class("second"), bool))


async def _nobody_leads() -> bool:
    return REGISTRY.get_sample_value("kerf_leader", {"lease": LEASE.name}) == 0


async def _holder(cluster: EmbeddedCluster) -> str | None:
    try:
        return (await cluster.admin.get(LEASES, LEASE.name, LEASE.namespace)).spec.holder_identity
    except NotFoundError:
        return None


async def _has_status(cluster: EmbeddedCluster, name: str) -> bool:
    return bool((await cluster.resource_class(name)).status.conditions)


def _has_conditions(expected: Any, held: Any) -> bool:
    return bool({one.type: one.status for one in held.status.conditions} == expected)


async def _is(found: Any, expected: Any) -> bool:
    return bool(await found == expected)


async def _has(found: Any, holds: Callable[[Any], Any]) -> bool:
    return bool(holds(await found))


async def _selects(cluster: EmbeddedCluster, name: str, text: str) -> bool:
    found = await cluster.device_class(name)
    return found is not None and any(text in one.cel.expression for one in found.spec.selectors if one.cel)


async def test_slices_that_a_node_left_behind_are_removed_by_the_leader(cluster: EmbeddedCluster) -> None:
    cluster.orphan_check_s = 0.05
    await cluster.admin.create(NODES, Node(metadata=ObjectMeta(name="n1")))
    for node in ("n1", "gone"):
        for one in slices(node, gpus("h100-80gb-sxm")):
            await cluster.admin.create(KINDS.resource_slices, one)

    async def nodes_with_slices() -> set[str | None]:
        return {one.spec.node_name for one in (await cluster.admin.list(KINDS.resource_slices)).items}

    async with cluster.controller():
        await eventually(lambda: _is(nodes_with_slices(), {"n1"}))


async def test_a_program_that_undoes_what_the_controller_writes_is_reported_and_waited_for(
    cluster: EmbeddedCluster,
) -> None:
    """Both wrote for ever, some hundred times a second."""
    reverted = 0

    async def revert() -> None:
        nonlocal reverted
        foreign = {"selectors": [{"cel": {"expression": "true"}}]}
        while True:
            found = await cluster.device_class("small")
            if found is not None and found.spec.selectors[0].cel.expression != "true":  # type: ignore[union-attr]
                reverted += 1
                await cluster.admin.patch(KINDS.device_classes, "small", {"spec": foreign}, type=PatchType.MERGE)
            await anyio.sleep(0.01)

    async def reports() -> list[str]:
        events = (await cluster.admin.list(EVENTS)).items
        return [one.involved_object.name for one in events if one.reason == "WriteUndone"]

    await cluster.put_class("small", {"device": "gpu"})
    async with cluster.controller(), anyio.create_task_group() as group:
        group.start_soon(revert)
        await eventually(reports)
        await cluster.put_class("other", {"device": "fpga"})  # others go on
        await eventually(lambda: _has(cluster.device_class("other"), bool))
        assert await reports() == ["small"]
        assert reverted <= 5
        group.cancel_scope.cancel()


async def test_classes_say_that_they_are_graded_while_the_policy_of_graded_placement_is_there(
    cluster: EmbeddedCluster,
) -> None:
    """It is there before the controller starts, goes, and comes back."""

    async def reasons() -> list[str]:
        held = [await cluster.resource_class(name) for name in ("small", "large", "spread")]
        return [one.reason for each in held for one in each.status.conditions if one.type == "Placement"]

    async def put_binding() -> None:
        await cluster.admin.apply(MUTATING_ADMISSION_POLICY_BINDINGS, binding, field_manager="admin")

    policy = yaml.safe_load_all((DEPLOY / "graded-placement" / "policy.yaml").read_text())
    [binding] = [each for each in policy if each["kind"].endswith("Binding")]
    for name, profile, placement in (
        ("small", "1g.10gb", "Packed"),
        ("large", "4g.40gb", "Packed"),
        ("spread", "1g.10gb", "Spread"),
    ):
        await cluster.put_class(name, {"device": "gpu", "profile": profile, "placement": placement})
    graded, without = ["Graded", "Graded", "ExtenderDisabled"], ["ExtenderDisabled"] * 3
    await put_binding()
    async with cluster.controller():
        await eventually(lambda: _is(reasons(), graded))
        await cluster.admin.delete(MUTATING_ADMISSION_POLICY_BINDINGS, binding["metadata"]["name"])
        await eventually(lambda: _is(reasons(), without))
        await put_binding()
        await eventually(lambda: _is(reasons(), graded))


async def test_each_replica_scores_nodes_by_what_is_published_and_allocated(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    """The leader and the one that stands by follow claims and nodes."""
    certificates = make_certificates(tmp_path / "tls")
    tls = make_context(certificates, certificates)
    claims = {name: claim_for(profile, name) for name, profile in (("held", "4g.40gb"), ("new", "1g.10gb"))}
    await cluster.admin.create(KINDS.device_classes, class_())
    for node in ("n1", "n2"):
        await cluster.admin.create(NODES, Node(metadata=ObjectMeta(name=node)))
        for one in slices(node, gpus("h100-80gb-sxm")):
            await cluster.admin.create(KINDS.resource_slices, one)
    ports = [free_port(), free_port()]
    first, second = (ExtenderSettings(address=f"127.0.0.1:{port}", certificates=certificates.server) for port in ports)
    sent = body(pod("new"), "n1", "n2")

    async def scores(port: int) -> dict[str, int] | None:
        try:
            status, text = await ask(port, tls, sent)
        except aiohttp.ClientConnectorError:
            return None
        assert status == 200
        return {each["Host"]: each["Score"] for each in json.loads(text)}

    async def are_scored(**expected: int) -> bool:
        return [await scores(port) for port in ports] == [expected, expected]

    async with cluster.controller("one", first), cluster.controller("two", second):
        await eventually(partial(are_scored, n1=0, n2=0))
        await cluster.admin.create(KINDS.resource_claims, claims["new"])
        await eventually(partial(are_scored, n1=10, n2=10))
        held = await cluster.admin.create(KINDS.resource_claims, claims["held"])
        given = DeviceRequestAllocationResult(
            request="r", driver="gpu.kerf.dev", pool="n2/gpu", device="gpu-0-4g-40gb-at-0"
        )
        allocation = AllocationResult(devices=DeviceAllocationResult(results=(given,)))
        allocated = replace(held, status=ResourceClaimStatus(allocation=allocation))
        await cluster.admin.update(KINDS.resource_claims, allocated, subresource="status")
        await eventually(partial(are_scored, n1=9, n2=10))
        await cluster.admin.delete(NODES, "n2")
        await eventually(partial(are_scored, n1=10, n2=0))


async def test_the_leader_says_in_the_status_that_another_replica_is_asked_by_a_scheduler(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    """The replica that is asked stands by. It may write the Lease, as each candidate, and nothing of classes."""
    certificates = make_certificates(tmp_path / "tls")
    tls = make_context(certificates, certificates)
    ports = [free_port(), free_port()]
    leading, waiting = (
        ExtenderSettings(address=f"127.0.0.1:{port}", certificates=certificates.server) for port in ports
    )

    async def placement() -> str:
        held = await cluster.resource_class("packed")
        return next((each.reason for each in held.status.conditions if each.type == "Placement"), "")

    async with cluster.controller("leader", leading):
        await cluster.put_class("packed", {"device": "gpu", "placement": "Packed"})
        await eventually(lambda: _has(placement(), lambda reason: reason == "ExtenderNotAsked"))
        async with cluster.controller("other", waiting):

            async def is_answered() -> bool:
                try:
                    return (await ask(ports[1], tls, body(pod(), "n1")))[0] == 200
                except aiohttp.ClientConnectorError:
                    return False

            await eventually(is_answered)
            await eventually(lambda: _has(placement(), lambda reason: reason == "ExtenderActive"))
            lease = await cluster.admin.get(LEASES, LEASE.name, LEASE.namespace)
            assert lease.spec.holder_identity == "leader"
