"""Image files that are fetched: within bounds, checked before they are stored, kept in a bounded folder."""

import base64
import hashlib
import io
import os
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import pytest

from kerf_dra.driver.families.fpga.descriptions import ImageReference
from kerf_dra.driver.families.fpga.refused_images import ImageRefusal
from kerf_dra.driver.kubeletplugin.backends.fpga.images.cache import ImageCache, NoRoomError
from kerf_dra.driver.kubeletplugin.backends.fpga.images.download import DownloadError, download
from kerf_dra.driver.kubeletplugin.backends.fpga.images.fetcher import FetchLimits, ImageFetcher
from kerf_dra.driver.kubeletplugin.backends.fpga.images.signatures import InvalidKeyError, KeyRing
from kerf_dra.driver.runtime.https.proxy import InvalidProxyError
from tests.fakes.connect_proxy import connect_proxy
from tests.fakes.image_server import CERTIFICATE, ImageServer, image_server
from tests.kube.certificates import HERE

AES: Final = "9c1d7a30-51b4-5f0e-8d5e-2f64a1c0b701"
INTERFACE: Final = "1d0b24b2-6a5f-5c0e-9b0e-6a0e7a1f3c55"
CONTENT: Final = b"bits of an image" * 1000


@pytest.fixture(scope="module")
def server() -> Iterator[ImageServer]:
    with image_server() as served:
        served.files["/aes.gbs"] = CONTENT
        yield served


def trust_server() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(CERTIFICATE))


def fetch(url: str, *, max_bytes: int = 1 << 20, timeout_s: float = 60.0, **more: Any) -> bytes:
    sink = io.BytesIO()
    download(url, sink, max_bytes=max_bytes, timeout_s=timeout_s, context=more.pop("context", trust_server()), **more)
    return sink.getvalue()


# Download


def test_a_file_is_read_and_redirects_to_https_are_followed(server: ImageServer) -> None:
    server.redirects |= {"/moved": "/moved-again?a=b", "/moved-again?a=b": server.url("/aes.gbs")}
    assert fetch(server.url("/aes.gbs")) == CONTENT
    assert fetch(server.url("/moved")) == CONTENT


def test_this_machine_is_asked_without_the_proxy(server: ImageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://user:S3CRET@127.0.0.1:1")
    assert fetch(server.url("/aes.gbs")) == CONTENT
    assert not server.headers[-1].keys() & {"Authorization", "Proxy-Authorization"}


def test_a_server_is_asked_through_the_proxy_and_proves_itself_by_the_authority_that_was_added(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The name kerf.test is known to the proxy alone; what ``SSL_CERT_FILE`` names is trusted."""
    monkeypatch.setenv("SSL_CERT_FILE", str(HERE / "ca-1.pem"))
    with image_server(HERE / "server-1.pem") as server, connect_proxy() as proxy:
        server.files["/aes.gbs"] = CONTENT
        url = f"https://kerf.test:{server.port}/aes.gbs"
        environ = {"HTTPS_PROXY": proxy.url.replace("//", "//user:S3CRET@"), "NO_PROXY": "10.0.0.0/8,other.test"}
        assert fetch(url, context=ssl.create_default_context(), environ=environ) == CONTENT
        assert proxy.tunnels == [f"CONNECT kerf.test:{server.port}"]
        assert proxy.authorizations == ["Basic " + base64.b64encode(b"user:S3CRET").decode()]
        assert "Proxy-Authorization" not in server.headers[-1], "the proxy's password is for the proxy"
        monkeypatch.setenv("SSL_CERT_FILE", str(HERE / "ca-2.pem"))
        with pytest.raises(DownloadError, match=rf"through the proxy 127.0.0.1:{proxy.port}: .*certificate"):
            fetch(url, context=ssl.create_default_context(), environ=environ)
        assert server.asked == ["/aes.gbs"]


def test_a_proxy_that_opens_no_tunnel_is_named_without_its_password() -> None:
    with connect_proxy() as proxy:
        proxy.refusal = "407 Proxy Authentication Required"
        environ = {"HTTPS_PROXY": proxy.url.replace("//", "//user:S3CRET@")}
        with pytest.raises(DownloadError, match=rf"through the proxy 127.0.0.1:{proxy.port}: .*407") as caught:
            fetch("https://kerf.test/aes.gbs", environ=environ)
    assert "S3CRET" not in str(caught.value)
    with pytest.raises(InvalidProxyError, match=r"the variable HTTPS_PROXY: .*socks5"):
        fetch("https://kerf.test/aes.gbs", environ={"HTTPS_PROXY": "socks5://127.0.0.1:1"})


@pytest.mark.parametrize(
    ("path", "target", "message"),
    [
        ("/gone", None, "answers 404"),
        ("/short", None, "too early|IncompleteRead"),
        ("/to-http", "http://127.0.0.1:{port}/aes.gbs", "redirected to a URL of http: only https is read"),
        ("/to-file", "file:///etc/passwd", "redirected to a URL of file: only https is read"),
        ("/to-user", "https://a:b@127.0.0.1:{port}/aes.gbs", "redirected to a URL with a user"),
        ("/circle", "/circle", "redirected more than 5 times"),
        ("/to-nowhere", "", "redirected to nowhere"),
    ],
)
def test_what_is_no_file_is_refused(path: str, target: str | None, message: str, server: ImageServer) -> None:
    if target is not None:
        server.redirects[path] = target.format(port=server.port)
    with pytest.raises(DownloadError, match=message):
        fetch(server.url(path))


@pytest.mark.parametrize("url", ["http://127.0.0.1:{port}/aes.gbs", "file:///etc/passwd", "ftp://h/x", "https:///x"])
def test_nothing_but_https_is_asked(url: str, server: ImageServer) -> None:
    asked = len(server.asked)
    with pytest.raises(DownloadError, match="only https"):
        fetch(url.format(port=server.port))
    assert len(server.asked) == asked


@pytest.mark.parametrize(
    ("path", "message"), [("/aes.gbs", "has 16000 bytes; at most 100"), ("/endless", "more than 100 bytes")]
)
def test_a_file_that_is_too_long_is_not_read_to_its_end(path: str, message: str, server: ImageServer) -> None:
    with pytest.raises(DownloadError, match=message):
        fetch(server.url(path), max_bytes=100)


@pytest.mark.parametrize("path", ["/slow", "/silent"])
def test_a_server_that_does_not_go_on_is_given_up(path: str, server: ImageServer) -> None:
    with pytest.raises(DownloadError, match=r"it took more than 0\.2 s|timed out"):
        fetch(server.url(path), timeout_s=0.2)


def test_a_server_whose_head_does_not_end_is_given_up_early(server: ImageServer) -> None:
    with pytest.raises(DownloadError, match=r"did not answer within 0\.2 s"):
        fetch(server.url("/trickling-head"), head_s=0.2)


def test_a_server_without_a_trusted_certificate_is_not_asked(server: ImageServer) -> None:
    asked = len(server.asked)
    with pytest.raises(DownloadError, match="certificate"):
        fetch(server.url("/aes.gbs"), context=ssl.create_default_context())
    with pytest.raises(DownloadError, match="certificate"):
        fetch(server.url("/aes.gbs").replace("127.0.0.1", "localhost"))
    assert len(server.asked) == asked


# Cache


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def store(cache: ImageCache, content: bytes, *needed: str, check: Callable[[int], None] = lambda _: None) -> str:
    def write(file: BinaryIO) -> None:
        file.write(content)

    cache.store(digest(content), write, check, needed)
    return digest(content)


def age(cache: ImageCache, name: str, at: float) -> None:
    os.utime(cache.folder / name, (at, at))


def test_a_file_that_is_refused_or_cut_short_is_not_stored(tmp_path: Path) -> None:
    cache = ImageCache(tmp_path / "cache", 100)

    def refuse(_: int) -> None:
        raise ValueError

    with pytest.raises(ValueError):
        store(cache, b"x", check=refuse)
    assert list(cache.folder.iterdir()) == []
    store(cache, b"x")
    assert [file.name for file in cache.folder.iterdir()] == [digest(b"x")]
    assert cache.folder.stat().st_mode & 0o777 == 0o700


def test_what_is_not_needed_goes_first_and_the_oldest_of_it(tmp_path: Path) -> None:
    cache = ImageCache(tmp_path / "cache", 30)
    names = [store(cache, bytes([n]) * 10) for n in range(3)]
    for at, name in enumerate(names):
        age(cache, name, at)
    newest = store(cache, b"n" * 10, names[0])
    assert {file.name for file in cache.folder.iterdir()} == {names[0], names[2], newest}
    with pytest.raises(NoRoomError, match="takes 30 in all"):
        store(cache, b"m" * 11, names[0], names[2], newest)
    assert {file.name for file in cache.folder.iterdir()} >= {names[0], names[2], newest}


def test_a_link_or_a_pipe_in_the_cache_is_not_followed(tmp_path: Path) -> None:
    cache = ImageCache(tmp_path, 100)
    (tmp_path / "secret").write_text("s")
    (tmp_path / ("a" * 64)).symlink_to("secret")
    os.mkfifo(tmp_path / ("b" * 64))
    for name in ("a" * 64, "b" * 64):
        with pytest.raises(OSError), cache.open(name):
            pass


def test_what_a_killed_process_has_left_is_removed_after_a_day(tmp_path: Path) -> None:
    cache = ImageCache(tmp_path, 100)
    for name, at in ((".partial-old", 0.0), (".partial-new", None)):
        (tmp_path / name).touch()
        if at is not None:
            age(cache, name, at)
    store(cache, b"x")
    assert {file.name for file in tmp_path.iterdir()} == {".partial-new", digest(b"x")}


# Fetcher


TRICKLING: Final = (("/trickle", b"slow"), ("/other.gbs", b"other"), ("/later.gbs", b"later"))
"""Files by path, the first of which trickles."""


class Fetching:
    """A fetcher whose thread does not run, on a clock that a test turns."""

    def __init__(
        self,
        folder: Path,
        *,
        max_bytes: int = 1 << 20,
        cache_bytes: int = 1 << 20,
        step_s: float = 0.0,
        timeout_s: float = 60,
    ) -> None:
        """``step_s`` is what the clock goes on by each time it is read."""
        self.now = 0.0
        self.step_s = step_s
        self.refusal: ImageRefusal | None = None
        self.cache = ImageCache(folder / "cache", cache_bytes)
        self.fetcher = ImageFetcher(
            self.cache,
            FetchLimits(max_bytes=max_bytes, timeout_s=timeout_s),
            check=self.check,
            make_context=trust_server,
            now=self.read_clock,
        )
        self.checked: list[bytes] = []

    def read_clock(self) -> float:
        self.now += self.step_s
        return self.now

    def check(self, _image: ImageReference, descriptor: int) -> ImageRefusal | None:
        self.checked.append(os.read(descriptor, 1 << 20))
        return self.refusal


def reference(url: str, content: bytes = CONTENT, **fields: str) -> ImageReference:
    known = {"interface_uuid": INTERFACE, "afu_id": AES, "function": "aes", "version": "1.2.0", **fields}
    return ImageReference(url=url, sha256=digest(content), load_s=0, **known)


def test_a_wanted_file_is_fetched_once_and_checked_from_its_beginning(server: ImageServer, tmp_path: Path) -> None:
    node = Fetching(tmp_path)
    image = reference(server.url("/aes.gbs"))
    node.fetcher.want([image])
    assert node.fetcher.find_state(image).reason == "NotFetched"
    assert not node.fetcher.take_news()
    asked = len(server.asked)
    assert node.fetcher.fetch_due() is None
    assert node.fetcher.take_news()
    assert node.fetcher.fetch_due() is None
    assert len(server.asked) == asked + 1
    assert node.checked == [CONTENT]
    with node.cache.open(image.sha256) as descriptor:
        assert os.read(descriptor, 1 << 20) == CONTENT


def test_a_file_that_fails_is_tried_again_after_a_while_and_longer_each_time(
    server: ImageServer, tmp_path: Path
) -> None:
    node = Fetching(tmp_path)
    image = reference(server.url("/late.gbs"))
    node.fetcher.want([image])
    waits = []
    for _ in range(8):
        wait_s = node.fetcher.fetch_due()
        assert wait_s is not None
        waits.append(wait_s)
        node.now += wait_s
    assert waits == [30, 60, 120, 240, 480, 960, 1800, 1800]
    assert node.fetcher.find_state(image).reason == "FetchFailed"
    assert "answers 404" in node.fetcher.find_state(image).message
    server.files["/late.gbs"] = CONTENT
    assert node.fetcher.fetch_due() is None
    assert node.cache.has(image.sha256)


def test_a_file_that_trickles_gives_way_to_others_and_comes_after_them_the_next_time(
    server: ImageServer, tmp_path: Path
) -> None:
    """One server that sent a byte now and then once kept the images of all others waiting for ten minutes a try."""
    node = Fetching(tmp_path, step_s=20.0, timeout_s=3.0)
    slow, other, later = (reference(server.url(path), name) for path, name in TRICKLING)
    server.files |= dict(TRICKLING[1:])
    node.fetcher.want([slow, other])
    node.fetcher.fetch_due()
    assert (node.cache.has(slow.sha256), node.cache.has(other.sha256)) == (False, True)
    assert "bytes came in 30 s, and other images wait" in node.fetcher.find_state(slow).message
    node.now += 3600
    server.asked.clear()
    node.fetcher.want([slow, later])
    node.step_s = 0.0
    node.fetcher.fetch_due()
    assert server.asked == ["/later.gbs", "/trickle"]


def test_a_file_that_is_refused_is_not_stored_and_the_reason_is_said(server: ImageServer, tmp_path: Path) -> None:
    node = Fetching(tmp_path)
    node.refusal = ImageRefusal("WrongDigest", "another file")
    image = reference(server.url("/aes.gbs"))
    node.fetcher.want([image])
    assert node.fetcher.fetch_due() == 30
    assert node.fetcher.find_state(image) == node.refusal
    assert not node.cache.has(image.sha256)


@pytest.mark.parametrize(("limits", "reason"), [({"max_bytes": 100}, "TooLarge"), ({"cache_bytes": 100}, "CacheFull")])
def test_a_file_over_a_bound_is_not_stored(
    limits: dict[str, int], reason: str, server: ImageServer, tmp_path: Path
) -> None:
    node = Fetching(tmp_path, **limits)
    image = reference(server.url("/aes.gbs"))
    node.fetcher.want([image])
    node.fetcher.fetch_due()
    assert node.fetcher.find_state(image).reason == reason
    assert list(node.cache.folder.iterdir()) == []


def test_what_is_no_longer_wanted_is_not_tried_again(server: ImageServer, tmp_path: Path) -> None:
    node = Fetching(tmp_path)
    image = reference(server.url("/never.gbs"))
    node.fetcher.want([image])
    node.fetcher.fetch_due()
    node.fetcher.want([])
    assert node.fetcher.fetch_due() is None


# Signatures: keys and signatures were made with openssl (openssl pkeyutl -sign -rawin)


KEY: Final = """-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAzfKO4nul3qPPnhV8pw+VSfrrEywXUYLsGA0JcMUTeuY=
-----END PUBLIC KEY-----
"""
OTHER_KEY: Final = """-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEA737Y6bnHpRvgrZXe/cPpn6kwYw0qpKQ376y8lqo3bb8=
-----END PUBLIC KEY-----
"""
X25519_KEY: Final = """-----BEGIN PUBLIC KEY-----
MCowBQYDK2VuAyEAC6g4ONfUtvT+/OItfgd/5n2jBZ7epKcoxjW3MSOPT3k=
-----END PUBLIC KEY-----
"""
SIGNED: Final = ImageReference(
    url="https://h/aes.gbs",
    sha256="a0" * 32,
    interface_uuid=INTERFACE,
    afu_id=AES,
    load_s=0,
    function="aes",
    version="1.2.0",
    signature="x/AJHtDTkOGM+VgRTdLv36NxpccSjwRLrE9G5QzkYdU6UF0cGUIgruJ2lF53AfKtV4z3yCXPuCKDZrGPvMY0CQ==",
)
BY_OTHER: Final = "iwufWhkVg7WWkvtQvEepUhdZTiePiqUl9wJ4a19Jo2Ky8eHtPV94MlrZXy5IiNO5PFJqS15m52ATmJHs3OmlBg=="


def change(**fields: str) -> ImageReference:
    return ImageReference(**{**{name: getattr(SIGNED, name) for name in SIGNED.__struct_fields__}, **fields})


def test_a_signature_by_one_of_the_keys_is_enough() -> None:
    pytest.importorskip("cryptography")
    assert KeyRing({"old": OTHER_KEY, "new": KEY}).find_fault(SIGNED) is None
    assert KeyRing({"old": OTHER_KEY, "new": KEY}).find_fault(change(signature=BY_OTHER)) is None


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (change(signature=""), "Unsigned"),
        (change(signature=BY_OTHER), "WrongSignature"),
        (change(signature="A" * 86 + "=="), "WrongSignature"),
        (change(sha256="b0" * 32), "WrongSignature"),
        (change(function="fft"), "WrongSignature"),
        (change(version="1.3.0"), "WrongSignature"),
        (change(interface_uuid=AES), "WrongSignature"),
    ],
)
def test_what_was_not_signed_as_this_is_refused(image: ImageReference, reason: str) -> None:
    """FP-06 (the signature)."""
    pytest.importorskip("cryptography")
    fault = KeyRing({"release": KEY}).find_fault(image)
    assert fault is not None
    assert fault.reason == reason


def test_without_keys_nothing_need_be_signed() -> None:
    assert KeyRing({}).find_fault(change(signature="")) is None


@pytest.mark.parametrize("pem", ["", "x", X25519_KEY, KEY.replace("MCow", "AAAA"), "-----BEGIN PRIVATE KEY-----"])
def test_a_key_that_is_none_is_refused_at_once(pem: str) -> None:
    pytest.importorskip("cryptography")
    with pytest.raises(InvalidKeyError, match="key release is no"):
        KeyRing({"release": pem})
