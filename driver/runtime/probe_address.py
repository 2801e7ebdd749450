"""The address of the probes, ``host:port``: read by the command line without the modules of the server."""

from kerf_dra.api.errors import PermanentError


class AddressError(PermanentError):
    """The probes cannot listen at the configured address."""


def parse_address(address: str) -> tuple[str | None, int]:
    """Split ``host:port``; the host is None for ``:8080``, all addresses. Raises AddressError for anything else."""
    host, colon, port = address.rpartition(":")
    if not colon or "/" in host or not (port.isascii() and port.isdecimal()) or int(port) > 65535:
        raise AddressError(f"{address!r} is not an address: write host:port, for example 0.0.0.0:8080 or [::1]:8080")
    return host.strip("[]") or None, int(port)
