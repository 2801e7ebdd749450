"""``maxPods`` on the embedded cluster: controller, scheduler and admission policy together (R-18)."""

from pathlib import Path

import anyio
import yaml

from kerf_dra.api.core.v1 import NODES, PODS
from kerf_dra.api.model.metadata import Object
from kerf_dra.api.resource.v1alpha2 import KINDS
from kerf_dra.api.wire import identity_kind
from kerf_dra.driver.kube.events import EventReporter
from kerf_dra.driver.kube.http.client import PatchType
from kerf_dra.driver.local.scheduler.classic import ClassicScheduler
from tests.controller.classic.cluster import ClassicCluster, eventually

POLICY = Path(__file__).parents[3] / "deploy" / "classic" / "sharing-policy.yaml"
PLURALS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}


async def install(cluster: ClassicCluster) -> None:
    for document in yaml.safe_load_all(POLICY.read_text()):
        group, _, version = document["apiVersion"].partition("/")
        name = document["kind"]
        kind = identity_kind(Object, group=group, version=version, plural=PLURALS[name], namespaced=False, kind=name)
        await cluster.admin.apply(kind, document, field_manager="admin")


async def test_a_pod_that_is_one_too_many_waits_and_gets_the_next_free_place(cluster: ClassicCluster) -> None:
    await install(cluster)
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    await cluster.admin.patch(NODES, "n1", ready, type=PatchType.MERGE, subresource="status")
    await cluster.parameters("for-two", {"profile": "1g.10gb", "maxPods": 2})
    await cluster.class_("for-two")
    await cluster.claim("shared", "for-two", allocationMode="WaitForFirstConsumer")
    events = EventReporter(cluster.admin, component="scheduler", instance="scheduler")
    async with anyio.create_task_group() as group:
        group.start_soon(events.run)
        group.start_soon(ClassicScheduler(cluster.admin, KINDS, events).run)

        async def bound(name: str) -> bool:
            return bool((await cluster.admin.get(PODS, name, "default")).spec.node_name)

        for name in ("first", "second"):
            await cluster.pod(name, "shared")
            await eventually(lambda name=name: bound(name))  # type: ignore[misc]
        await cluster.pod("third", "shared")
        await cluster.says("Pod", "third", "the claim is full: its class lets 2 pods use it at a time (maxPods)")
        assert not await bound("third")

        users = (await cluster.read("shared")).status.reserved_for
        rest = [{"resource": "pods", "name": user.name, "uid": user.uid} for user in users[1:]]
        await cluster.edit("shared", {"status": {"reservedFor": rest}}, "status")
        await eventually(lambda: bound("third"))
        group.cancel_scope.cancel()
