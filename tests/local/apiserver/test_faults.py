"""Injected faults, as a client meets them."""

from http import HTTPStatus

import aiohttp
import anyio
import pytest

from kerf_dra.driver.local.apiserver import FaultPlan, InjectedFault
from kerf_dra.driver.local.apiserver.meta.status_errors import MODIFIED
from tests.local.apiserver.api_client import IN_TIME_S, Api

MAPS = "/api/v1/namespaces/default/configmaps"
CONFIG_MAP = {"metadata": {"name": "c"}}


@pytest.mark.parametrize(
    ("code", "reason", "message"),
    [
        (HTTPStatus.GONE, "Expired", "too old resource version: 1 (2)"),
        (
            HTTPStatus.CONFLICT,
            "Conflict",
            f'Operation cannot be fulfilled on configmaps "c": {MODIFIED}',
        ),
        (
            HTTPStatus.TOO_MANY_REQUESTS,
            "TooManyRequests",
            "the server has received too many requests and has asked us to try again later",
        ),
        (HTTPStatus.INTERNAL_SERVER_ERROR, "InternalError", "fault injected: 500 Internal Server Error"),
        (HTTPStatus.SERVICE_UNAVAILABLE, "ServiceUnavailable", "fault injected: 503 Service Unavailable"),
        (HTTPStatus.FORBIDDEN, "Forbidden", "fault injected: 403 Forbidden"),
    ],
)
async def test_a_fault_answers_once_and_then_all_is_well(api: Api, code: HTTPStatus, reason: str, message: str) -> None:
    await api.made(MAPS, CONFIG_MAP)
    api.server.faults.add(InjectedFault(code=code))
    answer = await api.get(f"{MAPS}/c")
    assert (answer.status, answer.body["kind"], answer.body["reason"], answer.body["message"]) == (
        code,
        "Status",
        reason,
        message,
    )
    assert (await api.get(f"{MAPS}/c")).status == 200


@pytest.mark.parametrize(("asked", "told"), [(None, "1"), (7, "7")])
async def test_too_many_requests_come_with_the_time_to_wait(api: Api, asked: int | None, told: str) -> None:
    api.server.faults.add(InjectedFault(code=HTTPStatus.TOO_MANY_REQUESTS, retry_after_s=asked))
    answer = await api.get(MAPS)
    assert answer.headers["Retry-After"] == told
    assert answer.body["details"]["retryAfterSeconds"] == int(told)


async def test_a_faulty_write_writes_nothing(api: Api) -> None:
    api.server.faults.add(InjectedFault(code=HTTPStatus.CONFLICT), verb="create")
    assert (await api.post(MAPS, CONFIG_MAP)).status == 409
    assert (await api.get(f"{MAPS}/c")).status == 404


async def test_a_connection_is_cut_before_the_answer(api: Api) -> None:
    api.server.faults.add(
        InjectedFault(kind="cut", after_lines=3), verb="create"
    )  # a GET would be repeated by the client
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await api.post(MAPS, CONFIG_MAP)
    assert (await api.get(f"{MAPS}/c")).status == 404
    assert (await api.post(MAPS, CONFIG_MAP)).status == 201


async def test_a_watch_is_cut_after_some_lines(api: Api) -> None:
    for name in "abc":
        await api.made(MAPS, {"metadata": {"name": name}})
    api.server.faults.add(InjectedFault(kind="cut", after_lines=2), verb="watch")
    async with api.watch(MAPS) as stream:
        assert await stream.some(2) == [("ADDED", "a"), ("ADDED", "b")]
        with pytest.raises(aiohttp.ClientPayloadError):
            await stream.next()
    async with api.watch(MAPS) as stream:
        assert len(await stream.some(3)) == 3


async def test_a_hanging_request_is_never_answered(api: Api) -> None:
    api.server.faults.add(InjectedFault(kind="hang"))
    with anyio.move_on_after(0.05) as patience:
        await api.get(MAPS)
    assert patience.cancelled_caught
    with anyio.fail_after(IN_TIME_S):
        assert (await api.get(MAPS)).status == 200


CASES = [
    ({}, ("get", "pods", "p"), True),
    ({"verb": "get"}, ("get", "pods", "p"), True),
    ({"verb": "get"}, ("list", "pods", ""), False),
    ({"resource": "pods"}, ("watch", "pods", ""), True),
    ({"resource": "pods"}, ("watch", "nodes", ""), False),
    ({"resource": "pods", "name": "p"}, ("patch", "pods", "q"), False),
    ({"verb": "patch", "resource": "pods", "name": "p"}, ("patch", "pods", "p"), True),
]


@pytest.mark.parametrize(("wanted", "request_", "met"), CASES)
def test_a_fault_meets_the_requests_it_is_for(
    wanted: dict[str, str], request_: tuple[str, str, str], met: bool
) -> None:
    plan, fault = FaultPlan(), InjectedFault()
    plan.add(fault, **wanted)  # type: ignore[arg-type]  # the number of times stays as it is
    assert plan.next(*request_) == (fault if met else None)


def test_faults_are_met_in_order_and_as_often_as_planned() -> None:
    plan, twice, once = FaultPlan(), InjectedFault(code=HTTPStatus.GONE), InjectedFault(kind="hang")
    plan.add(twice, times=2)
    plan.add(once)
    assert [plan.next("get", "pods", "p") for _ in range(4)] == [twice, twice, once, None]


def test_what_has_not_been_met_is_pending() -> None:
    plan, first, second = FaultPlan(), InjectedFault(code=HTTPStatus.GONE), InjectedFault(kind="hang")
    plan.add(first)
    plan.add(second)
    plan.next("get", "pods", "p")
    assert list(plan.pending) == [second]


async def test_every_verb_has_its_name(api: Api) -> None:
    verbs = {
        "create": ("POST", MAPS),
        "update": ("PUT", f"{MAPS}/c"),
        "patch": ("PATCH", f"{MAPS}/c"),
        "delete": ("DELETE", f"{MAPS}/c"),
        "deletecollection": ("DELETE", MAPS),
        "get": ("GET", f"{MAPS}/c"),
        "list": ("GET", MAPS),
        "watch": ("GET", f"{MAPS}?watch=1"),
    }
    for verb in verbs:
        api.server.faults.add(InjectedFault(code=HTTPStatus.IM_A_TEAPOT), verb=verb, resource="configmaps")
    for method, path in verbs.values():
        assert (await api(method, path)).status == HTTPStatus.IM_A_TEAPOT
    assert list(api.server.faults.pending) == []
