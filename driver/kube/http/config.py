"""Where the API server is and how to authenticate: from the pod's service account, or from a kubeconfig.

The order of the search: the kubeconfig that was named; the service account of the pod that this process runs in; the
files of ``$KUBECONFIG``; ``~/.kube/config``.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import anyio.to_thread

from kerf_dra.driver.kube.http.credentials import Access
from kerf_dra.driver.kube.http.errors import AccessError
from kerf_dra.driver.runtime.documents.input_file import read_regular_file

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet mounts a pod's ``token``, ``ca.crt`` and ``namespace``."""


async def load_access(
    kubeconfig: Path | None,
    context: str | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> Access:
    """Return the access to the cluster. ``context`` is the name of a kubeconfig's context; None: its current one.

    Raises AccessError when nothing is found, with what was tried, or when the kubeconfig is wrong, with all its
    problems.
    """
    return await anyio.to_thread.run_sync(_load, kubeconfig, context, environ, service_account)


def _load(kubeconfig: Path | None, context: str | None, environ: Mapping[str, str], service_account: Path) -> Access:
    from kerf_dra.driver.kube.http import kubeconfig as kubeconfigs  # needs PyYAML, which a pod does not

    if kubeconfig is not None:
        return kubeconfigs.read([kubeconfig], context, environ=environ)
    if access := in_cluster(environ, service_account):
        return access
    named = environ.get("KUBECONFIG", "")
    paths = [Path(path) for path in named.split(os.pathsep) if path] or [Path.home() / ".kube" / "config"]
    if found := [path for path in paths if path.is_file()]:
        return kubeconfigs.read(found, context, environ=environ)
    raise AccessError(
        "no way to an API server: no --kubeconfig given, not in a pod (KUBERNETES_SERVICE_HOST is unset), and no file "
        + " or ".join(str(path) for path in paths)
        + (" ($KUBECONFIG)" if named else "")
    )


def in_cluster(environ: Mapping[str, str], service_account: Path = SERVICE_ACCOUNT) -> Access | None:
    """Return the access of the pod's service account; None outside a pod, or where the pod has no token.

    It has no proxy: a pod reaches the API server in the cluster, and proxies are for servers outside.
    """
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    token = service_account / "token"
    if not host or not token.is_file():
        return None
    namespace = service_account / "namespace"
    return Access(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=read_regular_file(namespace).decode().strip() if namespace.is_file() else "default",
        ca=service_account / "ca.crt",
        token=token,
    )
