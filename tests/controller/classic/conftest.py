"""The whole controller on an embedded cluster, for the tests that need it."""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
import yaml

from kerf_dra.api.core.v1 import CUSTOM_RESOURCE_DEFINITIONS, NODES
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.controller.app import run
from kerf_dra.driver.controller.settings import Settings
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.config import load_access
from kerf_dra.driver.kube.leader_election import LeaseSettings
from kerf_dra.driver.local.apiserver import ApiServer, ApiServerSettings
from tests.controller.classic.cluster import ClassicCluster
from tests.controller.classic.hardware import gpu, node_object
from tools.generate import crds


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ClassicCluster]:
    """The class ``gpu`` gives 1g.10gb."""
    server = ApiServer(settings=ApiServerSettings(kubernetes=(1, 30), resource_versions=("v1alpha2",)))
    kubeconfig = tmp_path / "kubeconfig"
    settings = Settings(
        kubeconfig=kubeconfig,
        identity="one",
        lease=ObjectRef("default", "lease"),
        # However busy the machine is, leadership is not lost; the rest is for the release, from a server that has gone.
        leading=LeaseSettings(duration_s=60, renew_deadline_s=59.6, retry_s=0.1),
        recheck_s=0.1,
        probes="127.0.0.1:0",
    )
    async with anyio.create_task_group() as group:
        await group.start(server.serve)
        kubeconfig.write_text(yaml.safe_dump(server.kubeconfig()))
        async with Client(await load_access(kubeconfig), user_agent="tests") as admin:
            for crd in crds.documents():
                await admin.apply(CUSTOM_RESOURCE_DEFINITIONS, crd, field_manager="admin")
            cluster = ClassicCluster(admin)
            await admin.create(NODES, node_object("n1"))
            await cluster.tell(gpu("n1", 0))
            await cluster.parameters("gpu", {"profile": "1g.10gb"})
            await cluster.class_()
            group.start_soon(run, settings)
            yield cluster
        group.cancel_scope.cancel()
