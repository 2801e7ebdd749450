"""An answer that is not the object asked for is no answer, whatever is asked."""

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from kerf_dra.api.core.authorization import (
    SELF_SUBJECT_ACCESS_REVIEWS,
    AccessReviewSpec,
    ResourceAttributes,
    SelfSubjectAccessReview,
)
from kerf_dra.api.core.v1 import LEASES, PODS, Lease
from kerf_dra.api.errors import TransientError
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.kube.http.answer_identity import ExpectedAnswer, find_mismatch
from kerf_dra.driver.kube.http.client import Client, PatchType
from kerf_dra.driver.kube.http.errors import UnexpectedAnswerError, build_status_error
from kerf_dra.driver.kube.http.transport import HttpRequest
from kerf_dra.driver.runtime.metrics import REGISTRY
from tests.fakes.wrong_answers import REFUSED, WRONG, Answer
from tests.kube.memory_server import MemoryServer

LEASE = Lease(metadata=ObjectMeta(name="a", namespace="kerf", uid="u1", resource_version="7"))
RIGHT = {**LEASES.encode(LEASE), "metadata": {"name": "a", "namespace": "kerf", "uid": "u1", "resourceVersion": "7"}}
Call = Callable[[Client], Awaitable[object]]


async def patch(client: Client) -> object:
    changes = {"metadata": {"uid": "u1"}, "spec": {"holderIdentity": "me"}}
    return await client.patch(LEASES, "a", changes, type=PatchType.MERGE, namespace="kerf", subresource="status")


async def apply(client: Client) -> object:
    return await client.apply(LEASES, {"metadata": {"name": "a", "namespace": "kerf"}}, field_manager="me")


CALLS: dict[str, Call] = {
    "get": lambda client: client.get(LEASES, "a", "kerf"),
    "create": lambda client: client.create(LEASES, LEASE),
    "update": lambda client: client.update(LEASES, LEASE),
    "patch": patch,
    "apply": apply,
}


class OneAnswer(MemoryServer):
    """A server with one answer to everything."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.given = answer

    async def call(self, request: HttpRequest) -> bytes:
        if self.given.code >= 400:
            raise build_status_error(str(request), self.given.code, self.given.body)
        return self.given.body


def right(document: object = RIGHT) -> Answer:
    return Answer(200, json.dumps(document).encode())


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_the_right_object_is_the_answer(call: Call) -> None:
    client = OneAnswer(right()).client()
    assert await call(client) == LEASE


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("wrong", REFUSED.values(), ids=REFUSED)
async def test_what_is_not_the_object_asked_for_is_no_answer_and_is_counted(
    wrong: Callable[[Any], Answer], call: Call
) -> None:
    client = OneAnswer(wrong(RIGHT)).client()
    before = count()
    with pytest.raises(UnexpectedAnswerError) as raised:
        await call(client)
    assert isinstance(raised.value, TransientError), "it is tried again"
    assert "leases" in str(raised.value), "what was asked"
    assert str(raised.value).isprintable()
    assert count() == before + 1


@pytest.mark.parametrize("call", [CALLS["update"], patch], ids=["update", "patch"])
async def test_a_write_to_an_object_of_this_uid_is_not_answered_by_another_one(call: Call) -> None:
    with pytest.raises(UnexpectedAnswerError, match="its UID is another, not u1; the write may have happened"):
        await call(OneAnswer(WRONG["another UID"](RIGHT)).client())


@pytest.mark.parametrize("wrong", [one for one in WRONG if one.startswith("404")])
async def test_a_404_that_does_not_name_the_object_is_no_absence(wrong: str) -> None:
    client = OneAnswer(WRONG[wrong](RIGHT)).client()
    with pytest.raises(UnexpectedAnswerError, match="no answer that Lease kerf/a does not exist: 404"):
        await client.find(LEASES, "a", "kerf")


async def test_the_first_of_several_answers_that_are_none_is_logged_and_again_after_a_right_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = OneAnswer(right({}))
    client = server.client()
    for answer, logged in ((right({}), 1), (right({}), 1), (right(), 1), (right({}), 2)):
        server.given = answer
        with suppress(UnexpectedAnswerError):
            await client.get(LEASES, "a", "kerf")
        assert len(caplog.records) == logged
    assert caplog.messages[0] == (
        "GET /apis/coordination.k8s.io/v1/namespaces/kerf/leases/a: the answer is not Lease kerf/a of "
        "coordination.k8s.io/v1: it is an object without a kind of no version; it counts as no answer, and is asked "
        "for again"
    )


async def test_an_object_is_absent_if_the_server_says_that_it_does_not_exist() -> None:
    client = MemoryServer().client()
    assert await client.find(LEASES, "a", "kerf") is None
    await client.create(LEASES, LEASE)
    assert await client.find(LEASES, "a", "kerf") is not None


@pytest.mark.parametrize(
    ("answer", "instead"),
    [
        ({}, "it is an object without a kind of no version"),
        ({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}, "it is Pod a of v1"),
        ({"apiVersion": "v1", "kind": "PodList"}, "it has no resource version"),
        ({"apiVersion": "v2", "kind": "PodList"}, "it is PodList of v2"),
        ({"apiVersion": "v1", "kind": "Status", "status": "Success"}, "it is Status of v1"),
    ],
)
async def test_a_list_is_the_list_of_its_kind(answer: dict[str, Any], instead: str) -> None:
    with pytest.raises(UnexpectedAnswerError, match=f"the answer is not PodList of v1: {instead}"):
        await OneAnswer(right(answer)).client().list(PODS)


async def test_a_dry_run_stores_nothing_and_has_a_kind_and_a_name_all_the_same() -> None:
    dry = {**RIGHT, "metadata": {"name": "a", "namespace": "kerf"}}
    assert (await OneAnswer(right(dry)).client().create(LEASES, LEASE, dry_run=True)).ref == LEASE.ref
    for wrong in ("an empty object", "another kind", "another name"):
        with pytest.raises(UnexpectedAnswerError):
            await OneAnswer(REFUSED[wrong](RIGHT)).client().create(LEASES, LEASE, dry_run=True)


async def test_a_review_has_neither_name_nor_uid() -> None:
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "metadata": {}}
    answer: dict[str, Any] = {**review, "status": {"allowed": True}}
    spec = AccessReviewSpec(resource_attributes=ResourceAttributes(verb="get", resource="pods"))
    asked = SelfSubjectAccessReview(spec=spec)
    answer["spec"] = {"resourceAttributes": {"verb": "get", "resource": "pods"}}
    assert (await OneAnswer(right(answer)).client().create(SELF_SUBJECT_ACCESS_REVIEWS, asked)).status.allowed
    with pytest.raises(UnexpectedAnswerError):
        await OneAnswer(right({"status": {"allowed": True}})).client().create(SELF_SUBJECT_ACCESS_REVIEWS, asked)


def test_what_is_nested_too_deeply_has_an_identity_all_the_same() -> None:
    deep = b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"," + json.dumps(RIGHT).encode()[1:]
    expected = ExpectedAnswer.of_object(LEASES, "kerf", "a")
    assert find_mismatch(expected, deep) is None
    assert find_mismatch(ExpectedAnswer.of_object(LEASES, "kerf", "b"), deep) == (
        "it is Lease kerf/a of coordination.k8s.io/v1"
    )


def count() -> float:
    samples = (sample for metric in REGISTRY.collect() for sample in metric.samples)
    return sum(one.value for one in samples if one.name == "kerf_api_unexpected_answers_total")
