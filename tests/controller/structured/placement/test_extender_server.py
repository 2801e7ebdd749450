"""The HTTPS server of the extender, with real TLS: who is let in, what is answered, and what it bears."""

import json
import ssl
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import anyio
import pytest

from kerf_dra.driver.controller.structured.placement.extender_server import (
    MAX_BODY_BYTES,
    MOST_REQUESTS,
    ExtenderError,
    ExtenderServer,
)
from tests.controller.structured.placement.certificates import Certificates, make_certificates
from tests.controller.structured.placement.cluster import Cluster, body, build_two_nodes, pod
from tests.controller.structured.placement.served_extender import (
    HEAD,
    LONG_S,
    SERVER_NAME,
    ask,
    connected,
    make_context,
    serving,
)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates of another authority, under the same names."""
    return make_certificates(tmp_path_factory.mktemp("tls") / "others")


@pytest.fixture
def cluster() -> Cluster:
    return build_two_nodes()


async def test_a_scheduler_with_a_certificate_gets_scores(cluster: Cluster, certificates: Certificates) -> None:
    async with serving(cluster, certificates.server) as port:
        status, text = await ask(port, make_context(certificates, certificates), body(pod("new"), "a", "c"))
    assert (status, json.loads(text)) == (200, [{"Host": "a", "Score": 10}, {"Host": "c", "Score": 9}])


async def test_a_connection_of_the_scheduler_serves_one_request_after_the_other(
    cluster: Cluster, certificates: Certificates
) -> None:
    sent = body(pod("new"), "a")
    async with (
        serving(cluster, certificates.server) as port,
        connected(port, make_context(certificates, certificates)) as stream,
    ):
        for _ in range(3):
            await stream.send(HEAD.format(len(sent)).encode() + sent)
            assert (await stream.receive()).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("client", ["none", "another authority's"])
async def test_who_has_no_certificate_of_the_authority_is_not_let_in(
    cluster: Cluster, certificates: Certificates, others: Certificates, client: str
) -> None:
    tls = make_context(certificates, None if client == "none" else others)
    async with serving(cluster, certificates.server) as port:
        with pytest.raises((aiohttp.ClientError, ssl.SSLError, ConnectionError)):
            await ask(port, tls, body(pod("new"), "a", "c"))
        status, _ = await ask(port, make_context(certificates, certificates), body(pod("new"), "a"))
    assert status == 200


async def test_without_tls_nothing_is_answered(cluster: Cluster, certificates: Certificates) -> None:
    async with serving(cluster, certificates.server) as port:
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await ask(port, None, body(pod("new"), "a", "c"))


@pytest.mark.parametrize(
    ("method", "path", "sent", "expected"),
    [
        ("POST", "/prioritize", b"{", 400),
        ("POST", "/prioritize", b"", 400),
        ("POST", "/filter", b"{}", 404),
        ("GET", "/prioritize", b"", 405),
    ],
)
async def test_what_is_no_request_for_scores_is_refused(
    cluster: Cluster, certificates: Certificates, method: str, path: str, sent: bytes, expected: int
) -> None:
    tls = make_context(certificates, certificates)
    async with serving(cluster, certificates.server) as port:
        status, text = await ask(port, tls, sent, method=method, path=path)
        assert (status, text.count("\n")) == (expected, 1)
        assert (await ask(port, tls, body(pod("new"), "a")))[0] == 200


@pytest.mark.parametrize("framing", ["length", "chunks"])
async def test_a_body_of_10_mb_is_refused_before_it_is_read(
    cluster: Cluster, certificates: Certificates, framing: str
) -> None:
    tls = make_context(certificates, certificates)
    size, sent = 10 * 2**20, MAX_BODY_BYTES + 1
    chunked = f"POST /prioritize HTTP/1.1\r\nHost: kerf\r\nTransfer-Encoding: chunked\r\n\r\n{size:x}\r\n"
    async with serving(cluster, certificates.server) as port:
        async with connected(port, tls) as stream:
            await stream.send((HEAD.format(size) if framing == "length" else chunked).encode())
            for _ in range(0, sent, 2**16):
                await stream.send(b" " * 2**16)
            assert (await stream.receive()).startswith(b"HTTP/1.1 413")
        assert (await ask(port, tls, body(pod("new"), "a")))[0] == 200


async def test_a_body_that_does_not_arrive_ends_its_request(cluster: Cluster, certificates: Certificates) -> None:
    async with (
        serving(cluster, certificates.server, body_s=0.05) as port,
        connected(port, make_context(certificates, certificates)) as stream,
    ):
        await stream.send(HEAD.format(100).encode() + b'{"Pod"')
        assert (await stream.receive()).startswith(b"HTTP/1.1 408")


async def test_a_thousand_requests_at_once_are_answered_or_refused(
    cluster: Cluster, certificates: Certificates
) -> None:
    """Those that are refused get no score, and the scheduler ignores that."""
    tls = make_context(certificates, certificates)
    statuses: list[int] = []
    async with serving(cluster, certificates.server) as port:
        url = f"https://127.0.0.1:{port}/prioritize"
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=40, ssl=tls)) as session:

            async def post() -> None:
                async with session.post(url, data=body(pod("new"), "a", "c"), server_hostname=SERVER_NAME) as answer:
                    statuses.append(answer.status)

            async with anyio.create_task_group() as group:
                for _ in range(1000):
                    group.start_soon(post)
        assert (await ask(port, tls, body(pod("new"), "a")))[0] == 200
    assert len(statuses) == 1000
    assert set(statuses) <= {200, 503}
    assert statuses.count(200) > 0


async def test_more_requests_than_are_read_at_once_are_refused(cluster: Cluster, certificates: Certificates) -> None:
    tls = make_context(certificates, certificates)
    sent = body(pod("new"), "a")
    async with serving(cluster, certificates.server) as port:
        async with anyio.create_task_group() as group:
            begun: Sequence[anyio.Event] = [anyio.Event() for _ in range(MOST_REQUESTS)]
            refused = anyio.Event()
            answers: list[bytes] = []

            async def wait(event: anyio.Event) -> None:
                async with connected(port, tls) as stream:
                    await stream.send(HEAD.format(len(sent)).encode() + b"{")
                    event.set()
                    await refused.wait()
                    answers.append(b"held")

            for event in begun:
                group.start_soon(wait, event)
            for event in begun:
                await event.wait()
            status, text = 200, ""
            while status == 200:  # until the server has read the heads of the others
                status, text = await ask(port, tls, sent)
            assert (status, text) == (503, "too many requests at once\n")
            refused.set()
        assert len(answers) == MOST_REQUESTS


async def test_new_certificates_are_served_once_they_can_be_used(
    cluster: Cluster, certificates: Certificates, others: Certificates, tmp_path: Path
) -> None:
    folder = tmp_path / "mounted"
    folder.mkdir()
    _copy(certificates.server, folder)
    async with serving(cluster, folder, reload_s=0.01) as port:
        assert (await ask(port, make_context(certificates, certificates), body(pod("new"), "a")))[0] == 200
        (folder / "tls.key").write_bytes(b"no key")
        assert (await ask(port, make_context(certificates, certificates), body(pod("new"), "a")))[0] == 200
        _copy(others.server, folder)
        with anyio.fail_after(LONG_S):
            while not await _is_served(port, make_context(others, others)):
                pass
        assert not await _is_served(port, make_context(certificates, certificates))


def _copy(source: Path, folder: Path) -> None:
    for each in source.iterdir():
        (folder / each.name).write_bytes(each.read_bytes())


async def _is_served(port: int, tls: ssl.SSLContext) -> bool:
    try:
        return (await ask(port, tls, body(pod()))) == (200, "[]")
    except (aiohttp.ClientError, ConnectionError):
        return False


@pytest.mark.parametrize("spoiled", ["tls.crt", "tls.key", "ca.crt"])
@pytest.mark.parametrize("content", [None, b"", b"no PEM"])
async def test_certificates_that_cannot_be_used_end_the_start_with_their_folder(
    cluster: Cluster, certificates: Certificates, tmp_path: Path, spoiled: str, content: bytes | None
) -> None:
    folder = tmp_path / "mounted"
    folder.mkdir()
    _copy(certificates.server, folder)
    (folder / spoiled).unlink()
    if content is not None:
        (folder / spoiled).write_bytes(content)
    server = ExtenderServer(cluster.extender, folder)
    with pytest.raises(ExtenderError, match=str(folder)):
        await server.serve("127.0.0.1:0")


async def test_an_address_that_is_taken_ends_the_start(cluster: Cluster, certificates: Certificates) -> None:
    async with serving(cluster, certificates.server) as port:
        server = ExtenderServer(cluster.extender, certificates.server)
        with pytest.raises(ExtenderError, match=f"127.0.0.1:{port}"):
            await server.serve(f"127.0.0.1:{port}")
