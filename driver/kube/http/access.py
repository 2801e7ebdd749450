"""How one API server is reached as one user: where it is, whom to trust, what to show. Values only."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

Pem: TypeAlias = Path | bytes
"""PEM text, or the file that has it. A file is read again, because certificates are rotated in place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialPlugin:
    """A user whose credentials come from another program (``exec``) or from a login provider (``auth-provider``)."""

    kubeconfig: str
    """Paths joined as in ``$KUBECONFIG``."""
    context: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How to reach one API server as one user. Holds secrets: ``repr`` leaves them out."""

    server: str
    """URL without a slash at its end; may have a path."""
    namespace: str = "default"
    """What the context or the pod has."""
    ca: Pem | None = None
    """Whom to trust; None: the system's roots."""
    verify: bool = True
    """False trusts any server."""
    tls_server_name: str = ""
    """The name to expect in the server's certificate; empty: the host of ``server``."""
    certificate: Pem | None = None
    key: Pem | None = field(default=None, repr=False)
    token: Path | str | None = field(default=None, repr=False)
    """The bearer token, or the file that has it."""
    plugin: CredentialPlugin | None = None
    """Replaces certificate, key and token."""
