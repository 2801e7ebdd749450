"""Reads an Access from kubeconfig files (``k8s.io/client-go/tools/clientcmd/api/v1``).

Several files are merged as clientcmd does: the first to name a cluster, user, context or current context wins, and
relative paths count from the file that has them. Fields that cannot be ignored safely are refused.
"""

import base64
import binascii
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from kerf_dra.api.errors import Problem
from kerf_dra.driver.kube.http.credentials import Access, CredentialPlugin, Pem, strip_address
from kerf_dra.driver.kube.http.errors import AccessError
from kerf_dra.driver.runtime.documents.input_file import read_file
from kerf_dra.driver.runtime.documents.yaml_file import NotYamlError, parse_yaml
from kerf_dra.driver.runtime.https.proxy import HttpsProxy, InvalidProxyError, find_proxy, parse_proxy

_HTTPS_PORT: Final = 443
"""Of a server's address without a port (RFC 9110, 4.2.2)."""

_log = logging.getLogger(__name__)


class _Cluster(msgspec.Struct, frozen=True, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class _User(msgspec.Struct, frozen=True, rename="kebab"):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    as_: str = msgspec.field(default="", name="as")
    exec: dict[str, object] | None = None
    auth_provider: dict[str, object] | None = None


class _Context(msgspec.Struct, frozen=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(msgspec.Struct, frozen=True):
    name: str
    cluster: _Cluster = _Cluster()


class _NamedUser(msgspec.Struct, frozen=True):
    name: str
    user: _User | None = None


class _NamedContext(msgspec.Struct, frozen=True):
    name: str
    context: _Context = _Context()


class _Config(msgspec.Struct, frozen=True, rename="kebab"):
    clusters: tuple[_NamedCluster, ...] | None = None
    users: tuple[_NamedUser, ...] | None = None
    contexts: tuple[_NamedContext, ...] | None = None
    current_context: str | None = None


EntryT = TypeVar("EntryT", _NamedCluster, _NamedUser, _NamedContext)

_REFUSED: Final = {
    "as_": "Kerf does not support impersonation: use a user of its own",
    "username": "basic authentication was removed in Kubernetes 1.19: use a token or a certificate",
}
"""Fields that change the server or the identity: to ignore them would connect to the wrong one."""


def read(paths: Sequence[Path], context: str | None = None, *, environ: Mapping[str, str] = os.environ) -> Access:
    """Return the access that the merged files give for ``context``; None: for their current one.

    A proxy is that of ``proxy-url``, else that of ``environ``, as for kubectl
    (``kerf_dra.driver.runtime.https.proxy``). Raises AccessError when a file cannot be read or has problems: it names
    the file and every problem.
    """
    configs = {path: _parse(path) for path in paths}
    where = ", ".join(str(path) for path in paths)
    contexts = {path: config.contexts or () for path, config in configs.items()}
    name = context or next((config.current_context for config in configs.values() if config.current_context), "")
    _, entry = _find(name, contexts)
    if entry is None:
        known = ", ".join(sorted({context.name for entries in contexts.values() for context in entries})) or "none"
        raise AccessError(f"{where}: no context {name!r}; there is {known}" if name else f"{where}: no current-context")
    wanted = entry.context
    cluster_file, cluster = _find(wanted.cluster, {path: config.clusters or () for path, config in configs.items()})
    user_file, user = _find(wanted.user, {path: config.users or () for path, config in configs.items()})
    problems: list[Problem] = []
    if cluster is None:
        problems.append(Problem(f"contexts[{name}].cluster", f"there is no cluster {wanted.cluster!r}"))
    if user is None and wanted.user:
        problems.append(Problem(f"contexts[{name}].user", f"there is no user {wanted.user!r}"))
    plugin = CredentialPlugin(kubeconfig=os.pathsep.join(map(str, paths)), context=name)
    access = _combine(
        _EntryReader(f"clusters[{wanted.cluster}].cluster", cluster_file, problems),
        cluster.cluster if cluster else _Cluster(server="https://unknown"),
        _EntryReader(f"users[{wanted.user}].user", user_file, problems),
        (user.user if user else None) or _User(),
        wanted.namespace or "default",
        plugin,
        environ,
    )
    if problems:
        raise AccessError(f"{where}: " + "; ".join(map(str, problems)))
    if not access.verify:
        _log.warning("%s: insecure-skip-tls-verify is set: any server that answers is trusted as the API server", where)
    return access


class _EntryReader:
    """Converts the fields of one entry of a file, and collects their problems."""

    def __init__(self, path: str, file: Path, problems: list[Problem]) -> None:
        self._path = path
        self._directory = file.parent
        self._problems = problems

    def problem(self, field: str, message: str) -> None:
        self._problems.append(Problem(f"{self._path}.{field}", message))

    def refuse(self, entry: msgspec.Struct) -> None:
        wire = dict(zip(entry.__struct_fields__, entry.__struct_encode_fields__, strict=True))
        for field, reason in _REFUSED.items():
            if getattr(entry, field, ""):
                self.problem(wire[field], reason)

    def file(self, field: str, name: str) -> Path | None:
        if not name:
            return None
        path = self._directory / name
        if not path.is_file():
            self.problem(field, f"there is no file {path}")
        return path

    def pem(self, field: str, name: str, data: str) -> Pem | None:
        """Return the inline data, else the file, as clientcmd does."""
        if not data:
            return self.file(field, name)
        try:
            return base64.b64decode(data, validate=True)
        except binascii.Error:
            self.problem(f"{field}-data", "this is not base64")
            return None


def _combine(
    cluster_entry: _EntryReader,
    cluster: _Cluster,
    user_entry: _EntryReader,
    user: _User,
    namespace: str,
    plugin: CredentialPlugin,
    environ: Mapping[str, str],
) -> Access:
    cluster_entry.refuse(cluster)
    user_entry.refuse(user)
    if not cluster.server.startswith(("https://", "http://")):
        cluster_entry.problem("server", f"{strip_address(cluster.server)!r} is not an http or https address")
    return Access(
        server=cluster.server.rstrip("/"),
        namespace=namespace,
        ca=cluster_entry.pem(
            "certificate-authority", cluster.certificate_authority, cluster.certificate_authority_data
        ),
        verify=not cluster.insecure_skip_tls_verify,
        tls_server_name=cluster.tls_server_name,
        certificate=user_entry.pem("client-certificate", user.client_certificate, user.client_certificate_data),
        key=user_entry.pem("client-key", user.client_key, user.client_key_data),
        token=user_entry.file("tokenFile", user.token_file) or user.token or None,
        plugin=plugin if user.exec or user.auth_provider else None,
        proxy=_find_proxy(cluster_entry, cluster, environ),
    )


def _find_proxy(entry: _EntryReader, cluster: _Cluster, environ: Mapping[str, str]) -> HttpsProxy | None:
    try:
        if cluster.proxy_url:
            return parse_proxy(cluster.proxy_url)
        server = urlsplit(cluster.server)
        port = server.port or _HTTPS_PORT  # raises for one that is no number, whatever the scheme
        if server.scheme == "https" and server.hostname:
            return find_proxy(server.hostname, port, environ)
    except InvalidProxyError as error:
        entry.problem("proxy-url" if cluster.proxy_url else "server", str(error))
    except ValueError:
        entry.problem("server", f"{strip_address(cluster.server)!r} has no valid host and port")
    return None


def _parse(path: Path) -> _Config:
    try:
        document = parse_yaml(read_file(path), _Config, _Cluster, _User, _Context)
        return msgspec.convert({} if document is None else document, _Config)
    except OSError as error:
        raise AccessError(f"cannot read kubeconfig {path}: {error.strerror}") from error
    except NotYamlError as error:
        raise AccessError(f"kubeconfig {path} {error}") from error
    except msgspec.ValidationError as error:
        raise AccessError(f"kubeconfig {path}: {error}") from error


def _find(name: str, entries: Mapping[Path, Sequence[EntryT]]) -> tuple[Path, EntryT | None]:
    """Return the first entry of that name, and its file."""
    for path, candidates in entries.items():
        for entry in candidates:
            if entry.name == name:
                return path, entry
    return next(iter(entries)), None
