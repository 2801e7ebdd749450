"""An API server in memory whose lists of nodes and slices have two pages each."""

from dataclasses import dataclass, field
from typing import Final

import anyio

from kerf_dra.api.core.v1 import NODES
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.driver.kube.http.transport import HttpRequest
from tests.fakes.cluster_states import node, slices
from tests.kube.memory_server import MemoryServer

_PAGE: Final = 3
"""Of four nodes, and of four slices of two of them: the second page of slices has the last one of ``node-2``."""
_GROUP: Final = "/apis/resource.k8s.io"


def is_second_page(request: HttpRequest) -> bool:
    """Whether the second page of slices is asked for."""
    return request.path.endswith("/resourceslices") and "continue" in request.query


@dataclass
class PagedCluster(MemoryServer):
    """Answers the second page of slices once ``rest`` is set."""

    rest: anyio.Event = field(default_factory=anyio.Event)

    async def call(self, request: HttpRequest) -> bytes:
        if is_second_page(request):
            await self.rest.wait()
        return await super().call(request)


def paged_cluster() -> PagedCluster:
    """Return a cluster of four nodes, of which two have a card each."""
    server = PagedCluster(page=_PAGE)
    server.json = {
        "/version": {"major": "1", "minor": "37", "gitVersion": "v1.37.0"},
        "/apis": {"groups": [{"name": "resource.k8s.io"}]},
        _GROUP: {"versions": [{"version": "v1"}]},
        f"{_GROUP}/v1": {"resources": [{"name": "resourceslices"}]},
    }
    for number in range(1, 5):
        server.put("nodes", NODES.encode(node(f"node-{number}")))
    for name in ("node-1", "node-2"):
        for each in slices(name):
            server.put("resourceslices", KINDS.resource_slices.encode(each))
    return server
