"""Access to one API server as one user, with credentials that follow rotated files and are renewed when refused.

A projected service account token is valid for an hour and replaced at 80 % of that; cert-manager and kubeadm replace
certificates in place. So every file is read once a minute, and what TLS needs is rebuilt when its bytes changed. When a
file cannot be read any more, what was read last stays in use: it may still be valid.
"""

import logging
import re
import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import anyio
import anyio.to_thread

from kerf_dra.driver.kube.http.errors import AccessError
from kerf_dra.driver.runtime.documents.input_file import read_regular_file
from kerf_dra.driver.runtime.https.proxy import HttpsProxy

REREAD_S: Final = 60.0
"""client-go's interval for token files; the old token stays valid for many minutes."""

_log = logging.getLogger(__name__)


_AUTHORITY: Final = re.compile(r"(?P<scheme>(?:[A-Za-z][A-Za-z0-9+.-]*:/+|/*))(?P<authority>[^/?#]*)")
"""The scheme of a URL and its authority: user, host and port (RFC 3986, 3.2)."""

Pem: TypeAlias = Path | bytes
"""PEM text, or the file that holds it. A file is read again, because certificates are rotated in place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialPlugin:
    """A user whose credentials come from another program (``exec``) or from a login provider (``auth-provider``)."""

    kubeconfig: str
    """Paths joined as in ``$KUBECONFIG``."""
    context: str


def strip_address(url: str) -> str:
    """Return a URL, which may be none, without what may be secret in it: user, path, query and fragment.

    The embedded API server has its token in the path, and proxies before clusters their users in front of the host.
    """
    found = _AUTHORITY.match(url)
    assert found is not None, "every part of it is optional"
    is_clear = "@" not in url[found.end() :]  # a password with a slash in it ends before its host
    return found["scheme"] + (found["authority"].rpartition("@")[2] if is_clear else "...")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How to reach one API server as one user. It holds secrets, which ``repr`` omits."""

    server: str = field(repr=False)
    """URL without a slash at its end; may have a user or a path, which may be secrets."""
    namespace: str = "default"
    """The namespace of the context or the pod."""
    ca: Pem | None = None
    """The trusted certificate authorities; None: the system's."""
    verify: bool = True
    """Whether to check the server's certificate."""
    tls_server_name: str = ""
    """The name to expect in the server's certificate; empty: the host of ``server``."""
    certificate: Pem | None = None
    key: Pem | None = field(default=None, repr=False)
    token: Path | str | None = field(default=None, repr=False)
    """The bearer token, or the file that holds it."""
    plugin: CredentialPlugin | None = None
    """The plugin that replaces certificate, key and token; None: none does."""
    proxy: HttpsProxy | None = None
    """The proxy to ``server``; None: it is connected to directly."""

    @property
    def address(self) -> str:
        """The server for people: its URL without user, path and query."""
        return strip_address(self.server)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Material:
    """The current content of the files, the kubeconfig or the plugin's answer."""

    ca: bytes | None
    certificate: bytes | None
    key: bytes | None
    token: str


class Credentials:
    """The Authorization header and the TLS context of requests, kept up to date."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._secure = access.server.startswith("https://")
        self._material: _Material | None = None
        self._context: ssl.SSLContext | None = None
        self._read_at = 0.0
        self._reading = anyio.Lock()

    async def current(self) -> tuple[dict[str, str], ssl.SSLContext | None]:
        """Return headers and TLS context of the next request; over plain HTTP none, as in client-go: no secret is sent.

        Raises AccessError when there never were usable credentials.
        """
        if not self._secure:
            return {}, None
        if self._material is None or anyio.current_time() >= self._read_at + REREAD_S:
            async with self._reading:
                if self._material is None or anyio.current_time() >= self._read_at + REREAD_S:
                    await self._read(run_plugin=self._material is None)
        assert self._material is not None
        token = self._material.token
        return ({"Authorization": f"Bearer {token}"} if token else {}), self._context

    async def renew(self) -> bool:
        """Read everything again because the server refused the credentials. True when they have changed."""
        before = self._material
        async with self._reading:
            if self._material is before:
                await self._read(run_plugin=True)
        return self._material != before

    async def _read(self, *, run_plugin: bool) -> None:
        try:
            material = await self._load(run_plugin=run_plugin)
            if self._context is None or _tls_part(material) != _tls_part(self._material):
                self._context = await anyio.to_thread.run_sync(_context, self._access, material)
            self._material = material
        except AccessError:
            if self._material is None:
                raise
            _log.warning("credentials could not be read again; the earlier ones stay in use", exc_info=True)
        self._read_at = anyio.current_time()

    async def _load(self, *, run_plugin: bool) -> _Material:
        plugin = self._access.plugin
        if plugin is None:
            return await anyio.to_thread.run_sync(_read_files, self._access)
        if run_plugin or self._material is None:
            return await _run_plugin(plugin)
        return self._material


def _tls_part(material: _Material | None) -> tuple[bytes | None, ...]:
    return (material.ca, material.certificate, material.key) if material else ()


def _read_files(access: Access) -> _Material:
    try:
        return _Material(
            ca=_read_pem(access.ca),
            certificate=_read_pem(access.certificate),
            key=_read_pem(access.key),
            token=_read_token(access.token),
        )
    except OSError as error:
        raise AccessError(f"cannot read {error.filename}: {error.strerror}") from error


def _read_token(token: Path | str | None) -> str:
    if not isinstance(token, Path):
        return token or ""
    text = read_regular_file(token).decode(errors="replace").strip()
    if not text:
        raise AccessError(f"the token file {token} is empty")
    return text


def _read_pem(pem: Pem | None) -> bytes | None:
    return read_regular_file(pem) if isinstance(pem, Path) else pem


def _context(access: Access, material: _Material) -> ssl.SSLContext:
    try:
        # OpenSSL wants ASCII here; outside the PEM blocks there may be comments in any language.
        authority = material.ca.decode("ascii", "ignore") if material.ca is not None else None
        if authority is not None and "-----BEGIN" not in authority:
            raise ValueError("there is no certificate to trust")  # ssl would trust the system's roots instead
        context = ssl.create_default_context(cadata=authority)
        # Set by default since Python 3.13; many clusters' CAs lack the extensions that it requires, and Go does not.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not access.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if material.certificate is not None:
            _load_certificate(context, material.certificate, material.key)
    except (ssl.SSLError, ValueError) as error:
        raise AccessError(f"unusable certificate or key for {access.address}: {error}") from error
    return context


def _load_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes | None) -> None:
    """Load the certificate from a temporary file of mode 0600: OpenSSL reads it from files only."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(certificate + b"\n" + (key or b""))
        file.flush()
        context.load_cert_chain(file.name)


async def _run_plugin(plugin: CredentialPlugin) -> _Material:
    """Run the kubeconfig's ``exec`` program, or renew the login of its ``auth-provider``."""
    where = f"credentials of context {plugin.context!r} in {plugin.kubeconfig}"
    # The import costs 25 MB and 0.3 s, and is never needed in a cluster: programs there have a service account.
    try:
        from kubernetes.aio.client import Configuration
        from kubernetes.aio.config import load_kube_config
    except ModuleNotFoundError as error:
        raise AccessError(
            f"{where}: credential plugins need the Python package kubernetes, which Kerf's image does not have: "
            "run this command where Kerf is installed with pip, or use a kubeconfig with a token or a certificate"
        ) from error
    configuration: Any = Configuration()
    try:
        await load_kube_config(
            config_file=plugin.kubeconfig, context=plugin.context, client_configuration=configuration
        )
    except Exception as error:  # whatever a plugin, its output or the library's reading of it may raise
        raise AccessError(f"{where}: {error}") from error
    authorization: str = configuration.api_key.get("BearerToken", "")
    material = await anyio.to_thread.run_sync(_material_of, configuration, authorization.removeprefix("Bearer "))
    if not material.token and material.certificate is None:
        raise AccessError(f"{where}: the credential plugin gave neither a token nor a certificate")
    return material


def _material_of(configuration: Any, token: str) -> _Material:  # noqa: ANN401  (the library ships no types)
    return _Material(
        ca=_read_pem(Path(configuration.ssl_ca_cert)) if configuration.ssl_ca_cert else None,
        certificate=_read_pem(Path(configuration.cert_file)) if configuration.cert_file else None,
        key=_read_pem(Path(configuration.key_file)) if configuration.key_file else None,
        token=token,
    )
