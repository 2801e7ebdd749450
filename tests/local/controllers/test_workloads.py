"""Deployments, StatefulSets and Jobs of the embedded cluster have the pods that they want."""

import json
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from kerf_dra.api.core.v1 import PODS, Pod
from kerf_dra.api.core.workloads import DEPLOYMENTS, JOBS, REPLICA_SETS, STATEFUL_SETS, WorkloadObject
from kerf_dra.api.wire import Kind
from kerf_dra.driver.kube.http.client import Client, PatchType
from kerf_dra.driver.kube.http.config import load_access
from kerf_dra.driver.kube.informer import Informer
from kerf_dra.driver.local.apiserver import ApiServer
from kerf_dra.driver.local.controllers.workloads import WorkloadController

TIMEOUT_S = 240


@asynccontextmanager
async def running() -> AsyncIterator[tuple[Client, "Pods"]]:
    server = ApiServer()
    async with anyio.create_task_group() as tasks:
        await tasks.start(server.serve)
        with tempfile.TemporaryDirectory() as folder:
            config = Path(folder) / "kubeconfig"
            config.write_text(json.dumps(server.kubeconfig()))
            access = await load_access(config)
        async with Client(access, user_agent="test") as client:
            pods = Pods(client)
            tasks.start_soon(WorkloadController(client).run)
            tasks.start_soon(pods.informer.run)
            await pods.informer.wait_synced()
            yield client, pods
        tasks.cancel_scope.cancel()


class Pods:
    """The pods of the cluster, for which a test can wait."""

    def __init__(self, client: Client) -> None:
        self._changed = anyio.Event()
        self.informer = Informer(client, PODS, on_change=self._on_change)

    def _on_change(self, _: object) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def until(self, holds: Callable[[list[Pod]], bool]) -> list[Pod]:
        with anyio.fail_after(TIMEOUT_S):
            while not holds(found := sorted(self.informer.store.values(), key=lambda pod: pod.ref)):
                await self._changed.wait()
        return found


def workload(name: str, *, image: str = "busybox", **spec: Any) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": image}]}}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {**spec, "template": template}}


async def apply(client: Client, kind: Kind[WorkloadObject], body: dict[str, Any]) -> None:
    await client.apply(kind, {"apiVersion": kind.api_version, "kind": kind.kind, **body}, field_manager="test")


async def test_a_deployment_has_pods_of_its_present_template_with_the_names_that_kubernetes_gives() -> None:
    async with running() as (client, pods):
        await apply(client, DEPLOYMENTS, workload("web", replicas=2))
        first = await pods.until(lambda found: len(found) == 2)
        [replica_set] = (await client.list(REPLICA_SETS)).items
        hash_ = first[0].metadata.labels["pod-template-hash"]
        assert replica_set.metadata.name == f"web-{hash_}"
        assert all(pod.metadata.name.startswith(f"web-{hash_}-") for pod in first)
        assert {pod.metadata.owner_references[0].kind for pod in first} == {"ReplicaSet"}
        await apply(client, DEPLOYMENTS, workload("web", image="other", replicas=1))
        [last] = await pods.until(
            lambda found: len(found) == 1 and found[0].metadata.labels["pod-template-hash"] != hash_
        )
        assert last.metadata.owner_references[0].name == f"web-{last.metadata.labels['pod-template-hash']}"


async def test_a_stateful_set_numbers_its_pods_and_makes_a_deleted_one_again() -> None:
    async with running() as (client, pods):
        await apply(client, STATEFUL_SETS, workload("db", replicas=2))
        first = await pods.until(lambda found: len(found) == 2)
        assert [pod.metadata.name for pod in first] == ["db-0", "db-1"]
        await client.delete(PODS, "db-0", "default")
        old = first[0].metadata.uid
        await pods.until(lambda found: len(found) == 2 and found[0].metadata.uid != old)
        await client.patch(STATEFUL_SETS, "db", {"spec": {"replicas": 1}}, type=PatchType.MERGE, namespace="default")
        assert [pod.metadata.name for pod in await pods.until(lambda found: len(found) == 1)] == ["db-0"]


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [({"parallelism": 3, "completions": 2}, 2), ({"parallelism": 2}, 2), ({}, 1)],
    ids=["completions", "parallelism", "neither"],
)
async def test_a_job_has_as_many_pods_as_may_run_at_once(spec: dict[str, Any], wanted: int) -> None:
    async with running() as (client, pods):
        await apply(client, JOBS, workload("train", **spec))
        found = await pods.until(lambda found: len(found) == wanted)
        assert {pod.metadata.labels["batch.kubernetes.io/job-name"] for pod in found} == {"train"}
        await client.delete(JOBS, "train", "default")
        await pods.until(lambda found: not found)
