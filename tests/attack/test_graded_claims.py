"""Claims and policies that graded placement cannot handle: the claim is created as its user wrote it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from itertools import count
from typing import Any, Final

import aiohttp
import anyio
import pytest
import yaml

from kerf_dra.driver.local.apiserver import ApiServer
from tests.local.apiserver.api_client import Api, Clock
from tests.local.apiserver.resources import CLASSES, claim, request
from tests.local.apiserver.test_graded_placement import (
    ADMISSION,
    ONE,
    PLURALS,
    POLICY,
    cel,
    graded,
    prepare,
    requests_of,
)

LONG: Final = " || ".join(["'" + "x" * 1000 + "' == 'y'"] * 9 + ["true"])
"""A selector nearly as long as the API server accepts (10 KiB)."""


def small(name: str, **exactly: Any) -> dict[str, Any]:
    return request(name, deviceClassName="small", **ONE, **exactly)


CLAIMS: Final[Mapping[str, list[dict[str, Any]]]] = {
    "32 selectors": [small("r", selectors=[cel(LONG)] * 32)],
    "eight alternatives of its own": [
        {"name": "r", "firstAvailable": [{"name": f"a{n}", "deviceClassName": "small", **ONE} for n in range(8)]}
    ],
    "32 requests": [small(f"r{number}") for number in range(32)],
}


async def delete_the_class(api: Api) -> None:
    await api.delete(f"{CLASSES}/small")
    await api.gone(f"{CLASSES}/small")


async def let_a_condition_fail(api: Api) -> None:
    await change_policy(api, matchConditions=[{"name": "x", "expression": "object.spec.nothing == 1"}])


async def let_the_patch_fail(api: Api) -> None:
    request_path, missing = "/spec/devices/requests/0/exactly", "/spec/nothing"
    operations = ", ".join(f'JSONPatch{{op: "remove", path: "{path}"}}' for path in (request_path, missing))
    await change_policy(api, mutations=[{"patchType": "JSONPatch", "jsonPatch": {"expression": f"[{operations}]"}}])


async def change_policy(api: Api, **spec: Any) -> None:
    answer = await api.merge(f"{ADMISSION}/mutatingadmissionpolicies/graded-placement.gpu.kerf.dev", {"spec": spec})
    assert answer.status == 200, answer.body


FAULTS: Final[Mapping[str, Callable[[Api], Awaitable[None]]]] = {
    "a class that is deleted": delete_the_class,
    "a condition that fails": let_a_condition_fail,
    "a patch that fails half-way": let_the_patch_fail,
}


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """An API server with the policy of graded placement in force."""
    clock, uids = Clock(), count(1)
    server = ApiServer(clock=clock, uid=lambda: f"uid-{next(uids)}")
    async with anyio.create_task_group() as group:
        await group.start(server.serve)
        headers = {"Authorization": f"Bearer {server.token}"}
        async with aiohttp.ClientSession(server.address, headers=headers) as session:
            started = Api(server, session, clock)
            await prepare(started)
            yield started
        group.cancel_scope.cancel()


async def check_graded(api: Api) -> None:
    found = await requests_of(api, claim(small("r"), name="next"))
    assert found == [graded("r", deviceClassName="small")]


@pytest.mark.parametrize("kind", CLAIMS)
async def test_a_claim_that_cannot_have_ranks_is_created_as_it_was_written(api: Api, kind: str) -> None:
    asked = CLAIMS[kind]
    assert await requests_of(api, claim(*asked, name="of-a-tenant")) == asked
    await check_graded(api)


@pytest.mark.parametrize("kind", FAULTS)
async def test_a_policy_that_cannot_be_applied_leaves_the_claim_as_it_was_written(api: Api, kind: str) -> None:
    await check_graded(api)
    await FAULTS[kind](api)
    assert await requests_of(api, claim(small("r"), name="meanwhile")) == [small("r")]
    for document in yaml.safe_load_all(POLICY.read_text()):
        await api.delete(f"{ADMISSION}/{PLURALS[document['kind']]}/{document['metadata']['name']}")
    for name in ("small", "large", "spread", "unlabeled"):
        await api.delete(f"{CLASSES}/{name}")
    await prepare(api)
    assert await requests_of(api, claim(small("r"), name="afterwards")) == [graded("r", deviceClassName="small")]
