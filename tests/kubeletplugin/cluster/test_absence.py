"""What an API server, or what stands in front of one, may answer about a claim that is there, or is not."""

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any, cast

import anyio
import pytest

from kerf_dra.api.model.names import ClaimRef
from kerf_dra.api.resource import registry
from kerf_dra.api.resource.classic import ClassicKinds
from kerf_dra.api.resource.kinds import kinds_of_model_shape
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.credentials import Access
from kerf_dra.driver.kube.http.errors import ServerError, UnexpectedAnswerError, build_status_error
from kerf_dra.driver.kube.http.transport import HttpRequest
from kerf_dra.driver.kubeletplugin.cluster.base import AbsenceUnprovenError, list_claim, read_claim
from kerf_dra.driver.local.apiserver import ApiServer, ApiServerSettings
from tests.kube.identified import identified
from tests.kube.open_transport import OpenTransport

REF = ClaimRef("default", "training", "uid-1")
CLAIMS = kinds_of_model_shape("v1").resource_claims
CLASSIC = cast("ClassicKinds", registry.choose_classic_kinds({"v1alpha2": ["podschedulingcontexts"]}))
OBJECT = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/training"
LIST = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
GROUP = "/apis/resource.k8s.io/v1"
MISSING = {"name": "training", "group": "resource.k8s.io", "kind": "resourceclaims"}


def status(code: int, reason: str, **details: str) -> tuple[int, bytes]:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code}
    return code, json.dumps({**body, "details": details}).encode()


def found(uid: str) -> tuple[int, bytes]:
    claim = {"metadata": {"namespace": "default", "name": "training", "uid": uid}, "spec": {}, "status": {}}
    return list_of(*([claim] if uid else []))


def list_of(*claims: dict[str, Any]) -> tuple[int, bytes]:
    return 200, json.dumps(identified(LIST, {"metadata": {"resourceVersion": "1"}, "items": claims})).encode()


def serves(*plurals: str) -> tuple[int, bytes]:
    return 200, json.dumps({"resources": [{"name": plural} for plural in plurals]}).encode()


GONE = status(404, "NotFound", **MISSING)
PROXY = (404, b"404 page not found\n")


@dataclass
class Answers(OpenTransport):
    """A Transport with an answer for each path."""

    of: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    asked: list[HttpRequest] = field(default_factory=list)

    def client(self) -> Client:
        return Client(Access(server="http://answers"), user_agent="test/1", transport=self)

    async def call(self, request: HttpRequest) -> bytes:
        await anyio.lowlevel.checkpoint()
        self.asked.append(request)
        code, body = self.of[request.path]
        if code >= 400:
            raise build_status_error(str(request), code, body)
        return body

    async def lines(self, request: HttpRequest) -> AsyncGenerator[bytes, None]:
        for path in self.of:
            assert path != request.path, "nothing is watched"
            yield b""


@pytest.mark.parametrize(
    "answer",
    [
        PROXY,
        (404, b""),
        (404, b"<html><title>404 Not Found</title></html>"),
        status(404, "NotFound"),
        status(404, "", **MISSING),
        status(404, "NotFound", **{**MISSING, "name": "another"}),
        status(404, "NotFound", **{**MISSING, "group": "example.com"}),
        status(404, "NotFound", **{**MISSING, "kind": "resourceslices"}),
        status(404, "NotFound", name="default", kind="namespaces"),
    ],
    ids=[
        "a version that is not served",
        "nothing",
        "a proxy",
        "an aggregated API server without the kind",
        "no reason",
        "another claim",
        "another group",
        "another kind",
        "the namespace",
    ],
)
async def test_an_answer_that_does_not_name_the_claim_is_no_absence(answer: tuple[int, bytes]) -> None:
    async with Answers({OBJECT: answer}).client() as client:
        with pytest.raises(
            UnexpectedAnswerError, match=r"GET .*: no answer that ResourceClaim default/training does not exist: 404"
        ):
            await read_claim(client, CLAIMS, REF)


async def test_the_api_servers_word_for_the_claim_is_absence() -> None:
    async with Answers({OBJECT: GONE}).client() as client:
        assert await read_claim(client, CLAIMS, REF) is None


@pytest.mark.parametrize(
    ("version", "query"), [(None, {}), ("", {"resourceVersion": "0"}), ("7", {"resourceVersion": "7"})]
)
async def test_a_claim_is_read_from_the_storage_or_from_a_cache_that_has_reached_a_version(
    version: str | None, query: dict[str, str]
) -> None:
    answers = Answers({OBJECT: GONE})
    async with answers.client() as client:
        assert await read_claim(client, CLAIMS, REF, not_older_than=version) is None
    assert answers.asked[0].query == query


async def test_other_errors_are_what_they_are() -> None:
    async with Answers({OBJECT: status(503, "ServiceUnavailable")}).client() as client:
        with pytest.raises(ServerError):
            await read_claim(client, CLAIMS, REF)


@pytest.mark.parametrize(
    ("listed", "uids"),
    [(found(""), []), (found("uid-2"), ["uid-2"]), (status(403, "Forbidden"), None)],
    ids=["listed nowhere", "made anew", "may not list"],
)
async def test_a_list_shows_the_claim_of_this_name_where_it_may_be_read(
    listed: tuple[int, bytes], uids: list[str] | None
) -> None:
    answers = Answers({GROUP: serves("resourceclaims"), LIST: listed})
    async with answers.client() as client:
        shown = await list_claim(client, CLAIMS, REF)
    assert (None if shown is None else [one.metadata.uid for one in shown]) == uids
    assert answers.asked[-1].query["fieldSelector"] == "metadata.name=training", "not all claims of the namespace"


@pytest.mark.parametrize(
    ("group", "listed", "message"),
    [
        (PROXY, found(""), "is not served: GET"),
        (serves("resourceslices"), found(""), "does not serve resourceclaims at /apis/resource.k8s.io/v1 now"),
        (serves("resourceclaims"), PROXY, "is not served: GET"),
        (
            serves("resourceclaims"),
            list_of({"metadata": {"namespace": "default", "name": "training"}, "spec": 1}),
            "lists it",
        ),
    ],
    ids=["version off", "kind off", "list off", "listed, but unreadable"],
)
async def test_a_list_of_what_is_not_served_or_not_readable_shows_nothing(
    group: tuple[int, bytes], listed: tuple[int, bytes], message: str
) -> None:
    async with Answers({GROUP: group, LIST: listed}).client() as client:
        with pytest.raises(AbsenceUnprovenError, match=message):
            await list_claim(client, CLAIMS, REF)


@pytest.mark.parametrize(
    ("settings", "kind", "is_served"),
    [
        (ApiServerSettings(resource_versions=("v1",)), CLAIMS, True),
        (ApiServerSettings(resource_versions=("v1beta2",)), CLAIMS, False),
        (
            ApiServerSettings(kubernetes=(1, 30), resource_versions=("v1alpha2",)),
            CLASSIC.resource_claims,
            True,
        ),
        (ApiServerSettings(resource_versions=("v1",)), CLASSIC.resource_claims, False),
    ],
    ids=["v1", "v1 is off", "classic", "classic is off"],
)
async def test_an_api_server_proves_absence_only_in_the_versions_that_it_serves(
    settings: ApiServerSettings, kind: Any, is_served: bool
) -> None:
    server = ApiServer(settings=settings)
    async with anyio.create_task_group() as tasks:
        await tasks.start(server.serve)
        async with Client(Access(server=server.url), user_agent="test") as client:
            if is_served:
                assert await read_claim(client, kind, REF) is None
                assert await list_claim(client, kind, REF) == ()
            else:
                with pytest.raises(UnexpectedAnswerError):
                    await read_claim(client, kind, REF)
                with pytest.raises(AbsenceUnprovenError):
                    await list_claim(client, kind, REF)
        tasks.cancel_scope.cancel()
