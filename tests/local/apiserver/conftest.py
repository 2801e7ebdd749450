"""An embedded API server for each test that asks for one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import aiohttp
import anyio
import pytest

from kerf_dra.driver.local.apiserver import ApiServer, ApiServerSettings
from tests.local.apiserver.api_client import Api, Clock, Cluster


@pytest.fixture
def cluster() -> Cluster:
    """Starts a server with settings: ``async with cluster(history=5) as api``."""

    @asynccontextmanager
    async def start(**settings: Any) -> AsyncIterator[Api]:
        clock, uids = Clock(), count(1)
        server = ApiServer(clock=clock, uid=lambda: f"uid-{next(uids)}", settings=ApiServerSettings(**settings))
        async with anyio.create_task_group() as group:
            await group.start(server.serve)
            headers = {"User-Agent": "tester/1.0", "Authorization": f"Bearer {server.token}"}
            async with aiohttp.ClientSession(server.address, headers=headers) as session:
                yield Api(server, session, clock)
            group.cancel_scope.cancel()

    return start


@pytest.fixture
async def api(cluster: Cluster) -> AsyncIterator[Api]:
    async with cluster() as started:
        yield started


@pytest.fixture
def clock(api: Api) -> Clock:
    return api.clock
