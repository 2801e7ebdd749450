"""The proxy for an HTTPS connection, found in the environment as ``kubectl`` and other programs in Go find it.

``HTTPS_PROXY`` names the proxy, and ``NO_PROXY`` the servers that are connected to directly; both may be in lower case
(``golang.org/x/net/http/httpproxy``). The proxy sees names and ports of servers, and bytes that it cannot read.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final
from urllib.parse import unquote, urlsplit

from kerf_dra.api.errors import PermanentError

_DEFAULT_PORT: Final = 80
"""Of an ``http://`` address without a port."""


class InvalidProxyError(PermanentError):
    """An address is not one of a proxy that Kerf can use; the message has no user and no password of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpsProxy:
    """A proxy that opens tunnels by the method CONNECT (RFC 9110, 9.3.6)."""

    host: str
    port: int
    authorization: str = field(default="", repr=False)
    """The header ``Proxy-Authorization``; empty: none is sent."""

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request for a tunnel."""
        return {"Proxy-Authorization": self.authorization} if self.authorization else {}

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_proxy(address: str) -> HttpsProxy:
    """Return the proxy at ``[http://][USER:PASSWORD@]HOST[:PORT]``. Raises InvalidProxyError."""
    try:
        parts = urlsplit(address if "://" in address else f"http://{address}")
        port = parts.port
    except ValueError:
        raise InvalidProxyError("the proxy's address is not a URL: write http://HOST:PORT") from None
    if parts.scheme != "http":
        raise InvalidProxyError(f"the proxy's address begins with {parts.scheme}://: Kerf uses proxies at http:// only")
    if not parts.hostname:
        raise InvalidProxyError("the proxy's address has no host: write http://HOST:PORT")
    user = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    authorization = "" if user == ":" else f"Basic {base64.b64encode(user.encode()).decode()}"
    return HttpsProxy(host=parts.hostname, port=_DEFAULT_PORT if port is None else port, authorization=authorization)


def find_proxy(host: str, port: int, environ: Mapping[str, str]) -> HttpsProxy | None:
    """Return the proxy for an HTTPS server; None: it is connected to directly, as this machine always is.

    Raises InvalidProxyError for a value of ``HTTPS_PROXY`` that is no address of a proxy.
    """
    address = (environ.get("HTTPS_PROXY") or environ.get("https_proxy") or "").strip()
    exceptions = environ.get("NO_PROXY") or environ.get("no_proxy") or ""
    name = host.rstrip(".").lower()
    own_address = _parse_address(name)
    if not address or name == "localhost" or (own_address is not None and own_address.is_loopback):
        return None
    if any(_is_excepted(name, own_address, port, entry.strip().lower()) for entry in exceptions.split(",")):
        return None
    try:
        return parse_proxy(address)
    except InvalidProxyError as error:
        raise InvalidProxyError(f"the variable HTTPS_PROXY: {error}") from None


def _is_excepted(name: str, address: IPv4Address | IPv6Address | None, port: int, entry: str) -> bool:
    """Whether an entry of ``NO_PROXY`` is the server: ``*``, an address, a network, or a domain, perhaps with a port.

    A domain is excepted with all below it; one that begins with ``.`` or ``*.`` is not, but all below it.
    """
    if not entry or entry == "*":
        return entry == "*"
    if "/" in entry:
        return address is not None and _is_in(address, entry)
    pattern, wanted_port = _split_port(entry)
    if wanted_port not in {"", str(port)}:
        return False
    if (wanted := _parse_address(pattern.strip("[]"))) is not None:
        return wanted == address
    suffix = pattern.removeprefix("*")
    return name.endswith(suffix) if suffix.startswith(".") else name == suffix or name.endswith(f".{suffix}")


def _is_in(address: IPv4Address | IPv6Address, network: str) -> bool:
    try:
        return address in ip_network(network, strict=False)
    except ValueError:
        return False


def _split_port(entry: str) -> tuple[str, str]:
    if _parse_address(entry) is not None:  # an IPv6 address ends with no port
        return entry, ""
    host, colon, port = entry.rpartition(":")
    return (host, port) if colon and port.isdecimal() else (entry, "")


def _parse_address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None
