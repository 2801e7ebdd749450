"""A controller asks until it knows what its API server serves, and ends when it has had no answer for too long."""

import anyio
import pytest

from kerf_dra.api.errors import KerfError, UnsupportedError
from kerf_dra.driver.controller.app import _discover
from kerf_dra.driver.kube.discovery import ApiFeatures
from kerf_dra.driver.kube.http.errors import ForbiddenError, NotFoundError, UnexpectedAnswerError, UnreachableError
from kerf_dra.driver.kube.http.transport import HttpRequest
from tests.kube.memory_server import MemoryServer
from tests.runtime.virtual_time import VIRTUAL_TIME

GROUP = "/apis/resource.k8s.io"
FAULTS = {
    "a proxy's page for the group": (GROUP, NotFoundError("GET", 404, "", "default backend - 404")),
    "a proxy's page for everything": ("/", NotFoundError("GET", 404, "", "default backend - 404")),
    "no connection": ("/", UnreachableError("GET", "connection refused")),
}
"""The beginning of the paths that fail, and how."""


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


def server_with_fault(prefix: str, error: KerfError, for_s: float) -> MemoryServer:
    until = anyio.current_time() + for_s

    def fail(request: HttpRequest) -> KerfError | None:
        return error if request.path.startswith(prefix) and anyio.current_time() < until else None

    server = MemoryServer(faults=[fail])
    server.json = {
        "/version": {"major": "1", "minor": "37"},
        "/apis": {"groups": [{"name": "apps"}, {"name": "resource.k8s.io"}]},
        GROUP: {"versions": [{"version": "v1"}]},
        f"{GROUP}/v1": {"resources": []},
    }
    return server


@pytest.mark.parametrize("fault", FAULTS)
async def test_what_proves_nothing_is_asked_for_again_and_reported(
    fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A proxy's page for the group of DRA ended the controller, which said to enable the API."""
    prefix, error = FAULTS[fault]
    server = server_with_fault(prefix, error, for_s=60)
    began = anyio.current_time()
    found = await _discover(server.client(), within_s=180)
    assert isinstance(found, ApiFeatures)
    assert 60 <= anyio.current_time() - began < 60 + 20
    assert 3 < caplog.text.count("cannot find out what the API server serves") < 12


@pytest.mark.parametrize("fault", FAULTS)
async def test_it_ends_with_the_reason_when_that_stays_so(fault: str) -> None:
    prefix, error = FAULTS[fault]
    server = server_with_fault(prefix, error, for_s=3600)
    began = anyio.current_time()
    with pytest.raises((UnexpectedAnswerError, UnreachableError)):
        await _discover(server.client(), within_s=180)
    assert 150 < anyio.current_time() - began <= 180


@pytest.mark.parametrize(
    "error", [UnsupportedError("/version says nothing"), ForbiddenError("GET", 403, "Forbidden", "no")]
)
async def test_what_waiting_does_not_resolve_ends_it_at_once(error: KerfError) -> None:
    server = server_with_fault("/", error, for_s=3600)
    began = anyio.current_time()
    with pytest.raises(type(error)):
        await _discover(server.client(), within_s=180)
    assert anyio.current_time() - began < 1
