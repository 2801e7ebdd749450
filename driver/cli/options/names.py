"""Names for completion in shells: of a cluster's objects, of its nodes and namespaces, of a kubeconfig's contexts.

A shell waits for the answer while the user types, so a cluster that does not answer at once has no names, and no error
is shown.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import anyio
import click

from kerf_dra.api.errors import KerfError
from kerf_dra.driver.cli import event_loop
from kerf_dra.driver.runtime.documents.input_file import read_regular_file
from kerf_dra.driver.runtime.documents.yaml_file import NotYamlError, parse_yaml
from kerf_dra.driver.runtime.lifecycle import iter_leaf_errors

_PATIENCE_S: Final = 3.0
"""The longest that a shell is kept waiting; kubectl's own completion has the same order of time."""
_PATHS: Final[Mapping[str, str]] = {
    "Pod": "/api/v1/namespaces/{namespace}/pods",
    "Deployment": "/apis/apps/v1/namespaces/{namespace}/deployments",
    "ReplicaSet": "/apis/apps/v1/namespaces/{namespace}/replicasets",
    "StatefulSet": "/apis/apps/v1/namespaces/{namespace}/statefulsets",
    "DaemonSet": "/apis/apps/v1/namespaces/{namespace}/daemonsets",
    "Job": "/apis/batch/v1/namespaces/{namespace}/jobs",
    "CronJob": "/apis/batch/v1/namespaces/{namespace}/cronjobs",
    "ResourceClaim": "/apis/resource.k8s.io/{version}/namespaces/{namespace}/resourceclaims",
    "Node": "/api/v1/nodes",
    "Namespace": "/api/v1/namespaces",
}
"""The collection of each kind whose names are completed."""


def complete_objects(context: click.Context, kind: str, incomplete: str) -> list[str]:
    """Return the names of the objects of ``kind`` in the namespace of the command line that begin so."""
    return _list_names(context, kind, incomplete)


def complete_nodes(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    return _list_names(context, "Node", incomplete)


def complete_namespaces(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    return _list_names(context, "Namespace", incomplete)


def complete_contexts(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the contexts of ``--kubeconfig``, else of ``$KUBECONFIG`` or ~/.kube/config, that begin so."""
    named = context.params.get("kubeconfig")
    environment = os.environ.get("KUBECONFIG", "")
    found = [Path(part) for part in environment.split(os.pathsep) if part] or [Path.home() / ".kube" / "config"]
    names = dict.fromkeys(name for file in ([named] if named else found) for name in _read_contexts(file))
    return [name for name in names if name.startswith(incomplete)]


def _read_contexts(file: Path) -> Iterator[str]:
    try:
        document = parse_yaml(read_regular_file(file))
    except (OSError, NotYamlError):
        return
    contexts = document.get("contexts") if isinstance(document, Mapping) else None
    for entry in contexts if isinstance(contexts, list) else ():
        if isinstance(entry, Mapping) and isinstance(entry.get("name"), str):
            yield entry["name"]


def _list_names(context: click.Context, kind: str, incomplete: str) -> list[str]:
    if kind not in _PATHS:
        return []
    try:
        names = event_loop.run(_read_names, kind, context.params)
    except (KerfError, OSError):
        return []
    except BaseExceptionGroup as group:
        if not all(isinstance(error, KerfError | OSError) for error in iter_leaf_errors(group)):
            raise
        return []
    return [name for name in names if name.startswith(incomplete)]


async def _read_names(kind: str, params: Mapping[str, Any]) -> list[str]:
    from kerf_dra.driver.kube.discovery import list_versions
    from kerf_dra.driver.kube.http.client import Client
    from kerf_dra.driver.kube.http.config import load_access

    with anyio.move_on_after(_PATIENCE_S):
        access = await load_access(params.get("kubeconfig"), params.get("context"))
        async with Client(access, user_agent="kerf-completion") as client:
            path = _PATHS[kind].replace("{namespace}", params.get("namespace") or access.namespace)
            if "{version}" in path:
                path = path.replace("{version}", next(iter(await list_versions(client)), "v1"))
            items = (await client.get_json(path)).get("items", ())
            return sorted(item["metadata"]["name"] for item in items)
    return []
