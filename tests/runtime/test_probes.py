import asyncio
import socket
from collections.abc import AsyncIterator

import aiohttp
import anyio
import anyio.lowlevel
import pytest
from prometheus_client import CollectorRegistry, Counter

from kerf_dra.driver.runtime import metrics
from kerf_dra.driver.runtime.probe_address import AddressError, parse_address
from kerf_dra.driver.runtime.probes import Probes

LONGEST_S = 10.0


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def probes(registry: CollectorRegistry) -> Probes:
    return Probes(registry)


@pytest.fixture
async def url(probes: Probes) -> AsyncIterator[str]:
    async with anyio.create_task_group() as group:
        yield f"http://{await group.start(probes.serve, '127.0.0.1:0')}"
        group.cancel_scope.cancel()


async def get(url: str, accept: str = "*/*") -> tuple[int, str, str]:
    async with aiohttp.ClientSession() as session, session.get(url, headers={"Accept": accept}) as response:
        return response.status, response.headers["Content-Type"], await response.text()


async def test_a_process_whose_loop_answers_is_alive_even_when_it_is_not_ready(probes: Probes, url: str) -> None:
    probes.add_check("kubelet", lambda: "not registered")
    assert (await get(f"{url}/healthz"))[0] == 200


async def test_a_process_without_checks_is_ready(url: str) -> None:
    assert (await get(f"{url}/readyz"))[::2] == (200, "ok\n")


async def test_readiness_lists_every_check_and_fails_when_one_does(probes: Probes, url: str) -> None:
    problem: str | None = "no list yet"
    probes.add_check("slices", lambda: problem)
    probes.add_check("kubelet", lambda: None)
    assert (await get(f"{url}/readyz"))[::2] == (503, "[-] slices: no list yet\n[+] kubelet\n")
    problem = None
    assert (await get(f"{url}/readyz"))[::2] == (200, "[+] slices\n[+] kubelet\n")


async def test_a_check_that_breaks_counts_as_failed(probes: Probes, url: str) -> None:
    def broken() -> str | None:
        raise ValueError("a defect")

    probes.add_check("broken", broken)
    assert (await get(f"{url}/readyz"))[::2] == (503, "[-] broken: the check itself failed: a defect\n")


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [("*/*", "text/plain"), ("application/openmetrics-text; version=1.0.0", "application/openmetrics-text")],
)
async def test_metrics_come_in_the_format_that_the_scraper_asks_for(
    registry: CollectorRegistry, url: str, accept: str, content_type: str
) -> None:
    Counter("kerf_things", "Things.", registry=registry).inc(3)
    status, found_type, text = await get(f"{url}/metrics", accept)
    assert status == 200
    assert found_type.startswith(content_type)
    assert "kerf_things_total 3.0" in text


@pytest.mark.parametrize("turns", range(5))
async def test_a_connection_that_comes_as_serving_ends_is_closed(probes: Probes, turns: int) -> None:
    """One that asyncio had accepted, and was about to serve when its listener was closed, stayed open."""
    with socket.socket() as client, anyio.fail_after(LONGEST_S):
        async with anyio.create_task_group() as group:
            host, port = (await group.start(probes.serve, "127.0.0.1:0")).split(":")
            client.connect((host, int(port)))
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        client.setblocking(False)
        try:
            assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
        except ConnectionResetError:
            pass  # it was never accepted


async def test_an_address_in_use_is_an_error_that_names_it(probes: Probes, url: str) -> None:
    address = url.removeprefix("http://")
    with pytest.raises(AddressError, match=f"cannot serve probes at {address}"):
        await Probes(CollectorRegistry()).serve(address)


@pytest.mark.parametrize(
    ("address", "parsed"),
    [("0.0.0.0:8080", ("0.0.0.0", 8080)), (":80", (None, 80)), ("[::1]:0", ("::1", 0)), ("host:1", ("host", 1))],
)
def test_addresses_are_host_and_port(address: str, parsed: tuple[str | None, int]) -> None:
    assert parse_address(address) == parsed


@pytest.mark.parametrize("address", ["", "8080", "host", "host:", "host:http", "host:65536", "host:-1"])
def test_what_is_no_address_is_refused_with_an_example(address: str) -> None:
    with pytest.raises(AddressError, match=r"write host:port, for example 0\.0\.0\.0:8080"):
        parse_address(address)


def test_a_metric_of_another_name_space_is_refused() -> None:
    with pytest.raises(ValueError, match="must start with kerf_"):
        metrics.counter("requests_total", "Requests.")


def test_the_process_registry_tells_about_the_process_itself() -> None:
    assert metrics.REGISTRY.get_sample_value("process_resident_memory_bytes") is not None


async def test_another_path_is_answered_with_those_there_are(url: str) -> None:
    status, _, text = await get(f"{url}/metric")
    assert (status, text) == (404, "not found; there are /healthz, /readyz, /metrics\n")


async def test_only_reading_is_allowed(url: str) -> None:
    async with aiohttp.ClientSession() as session, session.post(f"{url}/healthz") as response:
        assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")
