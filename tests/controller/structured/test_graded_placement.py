"""Whether graded placement is enabled is read from the API server, by the binding of its policy."""

import logging
from pathlib import Path

import pytest
import yaml

from kerf_dra.driver.controller.structured.class_compiler import PLACEMENT_LABEL
from kerf_dra.driver.controller.structured.graded_placement import BINDING, GradedPlacement
from kerf_dra.driver.kube.http.errors import (
    ApiError,
    ForbiddenError,
    NotFoundError,
    ServerError,
    ThrottledError,
    UnauthorizedError,
    UnexpectedAnswerError,
    UnreachableError,
)
from tests.controller.structured.admission_server import BindingServer

POLICY = Path(__file__).parents[3] / "deploy" / "graded-placement" / "policy.yaml"
NOT_SERVED = NotFoundError("GET", 404, "", "404 page not found")
FORBIDDEN = ForbiddenError("GET", 403, "Forbidden", "kerf-controller cannot get it")
NO_ANSWERS = [
    UnreachableError("GET", "it starts"),
    UnexpectedAnswerError("GET", "a page of a proxy"),
    ServerError("GET", 500, "InternalError", "etcd"),
    ThrottledError("GET", 429, "TooManyRequests", "later"),
    UnauthorizedError("GET", 401, "Unauthorized", "the token has expired"),
]


async def read(server: BindingServer, grading: GradedPlacement) -> tuple[bool, bool]:
    """Whether the answer has changed, and the answer."""
    has_changed = await grading.refresh()
    return has_changed, grading.is_enabled


async def test_it_is_enabled_while_its_binding_exists() -> None:
    server = BindingServer()
    grading = GradedPlacement(server)
    assert not grading.is_enabled
    assert await read(server, grading) == (False, False)
    server.exists = True
    assert await read(server, grading) == (True, True)
    assert await read(server, grading) == (False, True), "it is news once"
    server.exists = False
    assert await read(server, grading) == (True, False)


@pytest.mark.parametrize("answer", [NOT_SERVED, FORBIDDEN])
async def test_it_is_not_enabled_where_policies_are_not_served_or_may_not_be_read(answer: ApiError) -> None:
    server = BindingServer(exists=True, failure=answer)
    grading = GradedPlacement(server)
    assert await read(server, grading) == (False, False)
    server.failure = None
    assert await read(server, grading) == (True, True), "the cluster was upgraded, or the role applied again"
    server.failure = answer
    assert await read(server, grading) == (True, False)


@pytest.mark.parametrize("failure", NO_ANSWERS)
@pytest.mark.parametrize("exists", [False, True])
async def test_an_error_leaves_the_last_answer(exists: bool, failure: ApiError) -> None:
    server = BindingServer(exists=exists)
    grading = GradedPlacement(server)
    await grading.refresh()
    server.failure = failure
    assert await read(server, grading) == (False, exists)
    server.failure, server.exists = None, not exists
    assert await read(server, grading) == (True, not exists)


async def test_what_keeps_the_controller_from_reading_it_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    server = BindingServer()
    grading = GradedPlacement(server)
    with caplog.at_level(logging.WARNING):
        for failure in (None, NOT_SERVED, FORBIDDEN, FORBIDDEN, None, FORBIDDEN, NO_ANSWERS[0]):
            server.failure = failure
            await grading.refresh()
    assert [record.message.partition(": GET: ")[2] for record in caplog.records] == [
        "kerf-controller cannot get it",
        "kerf-controller cannot get it",
        "it starts",
    ]
    assert caplog.messages[0].startswith("whether graded placement is enabled cannot be read")


def test_the_binding_is_that_of_deploy_and_selects_the_label_of_the_compiler() -> None:
    [binding] = [each for each in yaml.safe_load_all(POLICY.read_text()) if each["kind"].endswith("Binding")]
    assert (binding["apiVersion"], binding["metadata"]["name"]) == ("admissionregistration.k8s.io/v1", BINDING)
    assert binding["spec"]["paramRef"]["selector"] == {"matchLabels": {PLACEMENT_LABEL: "Packed"}}
