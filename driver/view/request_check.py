"""Whom the server answers. Pure.

Every web page that a browser on this machine shows can send requests to loopback, and a name of its author's may lead
there (DNS rebinding). So a request must name this server as its host, must come from a page of this server if it says
where it comes from, and must have the token, which other users of the machine do not know.

The token arrives in the address that is printed, once, and moves into a cookie that scripts cannot read and that other
sites cannot have sent (``HttpOnly``, ``SameSite=Strict``): so it is in no address that is shown or sent from then on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from secrets import compare_digest
from typing import Final

TOKEN_FIELD: Final = "token"  # noqa: S105  (the name of a field)
SECURITY_HEADERS: Final[Mapping[str, str]] = {
    # Scripts, styles and updates of this server only, and nothing inline; no other page may frame one of these.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; form-action 'self'; "
        "frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # without any, browsers send forms with the origin "null"
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""What every answer has."""
_READING: Final = frozenset({"GET", "HEAD"})
_OWN_SITES: Final = frozenset({"", "same-origin", "none"})
"""Values of Sec-Fetch-Site (W3C Fetch Metadata) of own pages, and of addresses that a person has typed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFacts:
    """What of a request the check reads; headers that are absent are empty."""

    method: str
    host: str
    origin: str
    fetch_site: str
    cookie: str
    """The token in the cookie."""
    token: str
    """The token in the address."""
    is_navigation: bool
    """Whether it asks for a page as a whole, by reading."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not answered."""

    status: int
    reason: str


def cookie_name(port: int) -> str:
    """Return the cookie of a server: browsers send those of one port to all others of a host (RFC 6265, 8.5)."""
    return f"kerf-view-{port}"


def check_request(facts: RequestFacts, *, port: int, token: str) -> Refusal | None:
    """Return why a request is refused; None: it is answered."""
    hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
    if facts.host not in hosts:
        return Refusal(421, "this server has another name: use the address that kerf view has printed")
    if facts.origin and facts.origin != f"http://{facts.host}":
        return Refusal(403, "a page of another origin sends this request")
    if facts.method not in _READING and not facts.origin:
        return Refusal(403, "the request does not say which page sends it")
    if facts.fetch_site not in _OWN_SITES and not (facts.is_navigation and facts.method in _READING):
        return Refusal(403, "a page of another origin sends this request")
    given = facts.token or facts.cookie
    if not compare_digest(given.encode(errors="replace"), token.encode()):
        return Refusal(403, "the token is missing or another: use the address that kerf view has printed")
    return None
