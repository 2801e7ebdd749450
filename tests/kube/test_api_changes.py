"""A program that has read what its API server is notices that the server has become another one."""

from typing import Any

import anyio
import pytest

from kerf_dra.driver.kube.api_changes import LOOKS, SAME_ANSWERS, ApiChangedError, describe_features, watch_features
from kerf_dra.driver.kube.discovery import discover_any
from kerf_dra.driver.kube.http.errors import UnreachableError
from tests.kube.memory_server import MemoryServer
from tests.runtime.virtual_time import VIRTUAL_TIME

GROUP = "/apis/resource.k8s.io"
CLASSIC = ["resourceclaims", "resourceclaimtemplates", "resourceclasses", "podschedulingcontexts"]
LONGEST_S = LOOKS.limit_s * (1 + LOOKS.jitter)
"""The longest time between two looks."""


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return VIRTUAL_TIME


def become(server: MemoryServer, release: str, **served: list[str]) -> None:
    """Make ``server`` one of Kubernetes ``release`` with these kinds by version."""
    major, minor, _ = release.split(".")
    versions = [{"version": version} for version in served]
    documents: dict[str, Any] = {
        "/version": {"major": major, "minor": minor, "gitVersion": f"v{release}"},
        "/apis": {"groups": [{"name": "apps"}, *([{"name": "resource.k8s.io"}] if served else [])]},
        GROUP: {"versions": versions},
    }
    kinds = {version: [{"name": name} for name in names] for version, names in served.items()}
    server.json = documents | {f"{GROUP}/{version}": {"resources": found} for version, found in kinds.items()}


def server_of(release: str, **served: list[str]) -> MemoryServer:
    server = MemoryServer()
    become(server, release, **served)
    return server


@pytest.mark.parametrize(
    ("release", "served", "now"),
    [
        ("1.36.1", {"v1": []}, r"is Kubernetes 1\.36\.1 with resource"),
        ("1.35.2", {"v1": []}, r"is Kubernetes 1\.35\.2 with resource"),
        ("1.35.1", {"v1beta2": []}, r"v1beta2 now"),
        ("1.35.1", {"v1": ["devicetaintrules"]}, "DeviceTaintRules of v1 now"),
        ("1.35.1", {"v1": [], "v1alpha3": ["devicetaintrules"]}, "DeviceTaintRules of v1alpha3 now"),
        ("1.30.9", {"v1alpha2": CLASSIC}, r"Kubernetes 1\.30 with resource.k8s.io/v1alpha2, where drivers allocate"),
    ],
    ids=["upgraded", "patched", "a version goes", "a kind comes", "an old version comes", "another generation"],
)
async def test_an_api_server_that_has_become_another_one_ends_the_program_within_ten_minutes(
    release: str, served: dict[str, list[str]], now: str
) -> None:
    """It went on with what it had read at its start: in a version that was no longer served, for ever."""
    server = server_of("1.35.1", v1=[])
    known, began = await discover_any(server.client()), anyio.current_time()

    async def upgrade() -> None:
        await anyio.sleep(3600)
        become(server, release, **served)

    async with anyio.create_task_group() as group:
        group.start_soon(upgrade)
        with anyio.fail_after(3600 + LONGEST_S * SAME_ANSWERS), pytest.raises(ApiChangedError, match=now):
            await watch_features(server.client(), known)
    assert anyio.current_time() - began > 3600 + (SAME_ANSWERS - 1) * LOOKS.first_s


@pytest.mark.parametrize("release", ["1.30.0", "1.36.1"])
async def test_an_upgrade_of_several_servers_whose_answers_alternate_is_waited_for(release: str) -> None:
    server = server_of("1.35.1", v1=[])
    watch = watch_features(server.client(), await discover_any(server.client()))
    looks = 0

    def answer_by_another(request: Any) -> None:
        nonlocal looks
        if request.path == "/version":
            looks += 1
        become(server, release if looks % SAME_ANSWERS else "1.35.1", v1=[])

    server.faults.append(answer_by_another)
    with anyio.move_on_after(20 * LONGEST_S):
        await watch
    assert looks >= 20


@pytest.mark.parametrize("kind", ["away", "no DRA", "no version"])
async def test_a_server_that_does_not_say_what_it_is_ends_nothing_and_is_reported_once(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = server_of("1.35.1", v1=[])
    known = await discover_any(server.client())
    match kind:
        case "away":
            server.faults.append(lambda request: UnreachableError(str(request), "refused"))
        case "no DRA":
            become(server, "1.36.0")
        case _:
            server.json["/version"] = {"major": ""}
    with anyio.move_on_after(86400):
        await watch_features(server.client(), known)
    assert caplog.text.count(f"cannot find out whether the API server still is {describe_features(known)}") == 1


async def test_a_server_that_stays_the_same_is_asked_a_few_times_an_hour() -> None:
    server = server_of("1.35.1", v1=[])
    known = await discover_any(server.client())
    asked = len(server.requests)
    with anyio.move_on_after(3600):
        await watch_features(server.client(), known)
    assert 3 * 3600 / LONGEST_S < len(server.requests) - asked < 4 * 3600 / LOOKS.first_s
