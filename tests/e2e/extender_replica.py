"""One more replica of Kerf's controller, which serves the scheduler extender, and what the scheduler knows of it."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from unittest.mock import patch

import anyio

from kerf_dra.api.core.v1 import Secret, Service, ServiceSpec
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.cli.cluster.placement import build_extender
from kerf_dra.driver.controller.app import run
from kerf_dra.driver.controller.settings import ExtenderSettings, Settings
from kerf_dra.driver.controller.structured.placement import scheduler_extender
from tests.controller.structured.placement.certificates import Certificates
from tests.controller.structured.placement.cluster import body, pod
from tests.controller.structured.placement.served_extender import ask, make_context
from tests.e2e.wait import eventually
from tools.realcluster.api import Document
from tools.realcluster.cluster import Cluster
from tools.realcluster.paths import free_port

TIMEOUT_S: Final = 5
"""The scheduler's timeout for the extender, and that of its scoring, which are 200 and 100 ms in a cluster: with 30
processes that waited for two cores, 24 of 1,000 answers were late, and the scheduler rightly went on without them."""


def scheduler_entry(certificates: Certificates, port: int) -> Document:
    """What ``kerf placement config`` prints, with a longer timeout."""
    data = {
        name: base64.b64encode((certificates.client / name).read_bytes()).decode()
        for name in ("ca.crt", "tls.crt", "tls.key")
    }
    metadata = ObjectMeta(name="kerf-extender", namespace="kerf-system")
    service = Service(metadata=metadata, spec=ServiceSpec(cluster_ip="127.0.0.1"))
    entry = build_extender(service, Secret(metadata=metadata, data=data), url=f"https://127.0.0.1:{port}")
    return {**entry, "httpTimeout": f"{TIMEOUT_S}s"}


@asynccontextmanager
async def extender(cluster: Cluster, certificates: Certificates, port: int, folder: Path) -> AsyncIterator[None]:
    """One more replica of the controller, which stands by and serves the extender."""
    settings = Settings(
        kubeconfig=cluster.kubeconfig,
        identity=f"extender-{folder.name}",
        probes=f"127.0.0.1:{free_port()}",
        extender=ExtenderSettings(address=f"127.0.0.1:{port}", certificates=certificates.server),
    )
    tls = make_context(certificates, certificates)

    async def answers() -> bool:
        return (await ask(port, tls, body(pod())))[0] == 200

    with patch.object(scheduler_extender, "SCORING_S", float(TIMEOUT_S)):
        async with anyio.create_task_group() as group:
            group.start_soon(run, settings)
            await eventually("the extender", answers)
            yield
            group.cancel_scope.cancel()
