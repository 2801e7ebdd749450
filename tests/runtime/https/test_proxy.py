"""Which servers are connected to through a proxy; the cases of NO_PROXY are those of Go's httpproxy package."""

import pytest

from kerf_dra.driver.runtime.https.proxy import HttpsProxy, InvalidProxyError, find_proxy, parse_proxy

PROXY = HttpsProxy(host="proxy.example", port=3128)


@pytest.mark.parametrize(
    ("address", "proxy"),
    [
        ("http://proxy.example:3128", PROXY),
        ("proxy.example:3128", PROXY),
        ("http://proxy.example:3128/", PROXY),
        ("http://proxy.example", HttpsProxy(host="proxy.example", port=80)),
        ("http://[fd00::1]:8080", HttpsProxy(host="fd00::1", port=8080)),
        (
            "http://a:b%40c@proxy.example:3128",
            HttpsProxy(host="proxy.example", port=3128, authorization="Basic YTpiQGM="),
        ),
    ],
)
def test_an_address_is_read(address: str, proxy: HttpsProxy) -> None:
    assert parse_proxy(address) == proxy


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("socks5://user:S3CRET@proxy.example", "begins with socks5://: Kerf uses proxies at http:// only"),
        ("https://user:S3CRET@proxy.example", "begins with https://"),
        ("http://user:S3CRET@", "has no host"),
        ("http://user:S3CRET@proxy.example:port", "is not a URL: write http://HOST:PORT"),
        ("http://user:S3CRET@[proxy.example", "is not a URL"),
    ],
)
def test_another_address_is_refused_without_its_password(address: str, said: str) -> None:
    with pytest.raises(InvalidProxyError, match=said) as caught:
        find_proxy("images.example", 443, {"HTTPS_PROXY": address})
    assert "HTTPS_PROXY" in str(caught.value)
    assert "S3CRET" not in str(caught.value)


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy"])
def test_the_proxy_is_that_of_the_environment(variable: str) -> None:
    assert find_proxy("images.example", 443, {variable: "http://proxy.example:3128"}) == PROXY


@pytest.mark.parametrize("environ", [{}, {"HTTPS_PROXY": " "}, {"HTTP_PROXY": "http://p:1", "ALL_PROXY": "http://p:1"}])
def test_without_https_proxy_there_is_none(environ: dict[str, str]) -> None:
    assert find_proxy("images.example", 443, environ) is None


@pytest.mark.parametrize(
    ("host", "exceptions"),
    [
        ("localhost", ""),
        ("127.0.0.5", ""),
        ("::1", ""),
        ("images.example", "*"),
        ("images.example", "images.example"),
        ("Images.Example.", "other, IMAGES.example"),
        ("eu.images.example", "images.example"),
        ("images.example", ".example"),
        ("images.example", "*.example"),
        ("images.example", "images.example:443"),
        ("10.96.0.1", "10.96.0.0/12"),
        ("10.96.0.1", "10.96.0.1"),
        ("10.96.0.1", "10.96.0.1:443"),
        ("fd00::1", "fd00::/8"),
        ("fd00::1", "FD00:0::1"),
        ("fd00::1", "[fd00::1]:443"),
    ],
)
def test_these_are_connected_to_directly(host: str, exceptions: str) -> None:
    for variable in ("NO_PROXY", "no_proxy"):
        assert find_proxy(host, 443, {"HTTPS_PROXY": "proxy.example:3128", variable: exceptions}) is None


@pytest.mark.parametrize(
    ("host", "exceptions"),
    [
        ("images.example", ""),
        ("images.example", "mages.example,other.example,,"),
        ("example", ".example"),
        ("example", "*.example"),
        ("images.example", "images.example:8443"),
        ("10.112.0.1", "10.96.0.0/12"),
        ("10.96.0.1", "10.96.0.0/99, fd00::/8, 10.96.0.1:80"),
        ("10.96.0.10", "10.96.0.1"),
        ("images.example", "10.0.0.0/8"),
    ],
)
def test_these_are_connected_to_through_the_proxy(host: str, exceptions: str) -> None:
    assert find_proxy(host, 443, {"HTTPS_PROXY": "proxy.example:3128", "NO_PROXY": exceptions}) == PROXY


def test_a_proxy_is_shown_without_its_password() -> None:
    proxy = parse_proxy("http://user:S3CRET@[fd00::1]:80")
    assert str(proxy) == "[fd00::1]:80"
    assert proxy.authorization not in repr(proxy)
