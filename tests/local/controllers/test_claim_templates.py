"""The claim controller of both generations on the embedded cluster: a pod and its template, whichever comes first."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from kerf_dra.driver.local.cluster import ClusterSettings, LocalCluster
from tests.contract.documents import namespace
from tests.e2e.wait import eventually
from tools.realcluster.api import Api, Document

ENTRY = {"resourceClaimTemplateName": "small"}
GENERATIONS: dict[bool, tuple[str, Document, Document]] = {
    True: ("resource.k8s.io/v1alpha2", {"resourceClassName": "gpu"}, {"source": ENTRY}),
    False: ("resource.k8s.io/v1", {"devices": {}}, ENTRY),
}


@pytest.fixture(params=[True, False], ids=["classic", "structured"])
def classic(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
async def api(tmp_path: Path, classic: bool) -> AsyncIterator[Api]:
    """A cluster without nodes, with the namespace "team"."""
    settings = ClusterSettings(root=tmp_path, nodes=(), classic=classic)
    cluster = LocalCluster(settings, share_id=lambda: str(uuid.uuid4()), boot_id=lambda: str(uuid.uuid4()))
    async with anyio.create_task_group() as tasks:
        await tasks.start(cluster.run)
        async with Api(cluster.kubeconfig) as api:
            await api.create(namespace("team"))
            yield api
        tasks.cancel_scope.cancel()


async def test_a_pod_that_came_before_its_template_gets_its_claim_once_the_template_is_there(
    api: Api, classic: bool
) -> None:
    """Where drivers allocate, such a pod once waited for ever, and nothing told why."""
    api_version, spec, entry = GENERATIONS[classic]
    pod_spec = {"containers": [{"name": "c", "image": "i"}], "resourceClaims": [{"name": "gpu", **entry}]}
    metadata = {"name": "p", "namespace": "team"}
    await api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec})

    async def is_told() -> bool:
        said = [str(event["message"]) for event in await api.list("v1", "Event", "team")]
        return any("ResourceClaimTemplate 'small' does not exist in namespace team; create it" in line for line in said)

    await eventually("an event tells what is missing", is_told)
    template = {"metadata": {"name": "small", "namespace": "team"}, "spec": {"spec": spec}}
    await api.create({"apiVersion": api_version, "kind": "ResourceClaimTemplate", **template})

    async def is_noted() -> bool:
        status = (await api.get("v1", "Pod", "p", "team")).get("status", {})
        made = [one["resourceClaimName"] for one in status.get("resourceClaimStatuses", ())]
        claims = [claim["metadata"]["name"] for claim in await api.list(api_version, "ResourceClaim", "team")]
        return len(made) == 1 and made == claims

    await eventually("the pod has its claim", is_noted)
