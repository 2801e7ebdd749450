"""The meaning of a URL path of the Kubernetes API: a collection, an object, or a subresource of one."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestInfo:
    """What a path names: without ``name`` a collection, and without ``namespace`` one over all namespaces."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def parse_path(path: str) -> RequestInfo | None:
    """Return the meaning of ``/api/v1/…`` or ``/apis/<group>/<version>/…``; None for every other path."""
    parts = [part for part in path.split("/") if part]
    if parts[:1] == ["api"]:
        group, rest = "", parts[1:]
    elif parts[:1] == ["apis"] and len(parts) > 1:
        group, rest = parts[1], parts[2:]
    else:
        return None
    if len(rest) < 2:
        return None
    version, rest = rest[0], rest[1:]
    namespace = ""
    # /namespaces/<name> and its subresources mean the Namespace itself, not something inside it.
    if rest[0] == "namespaces" and len(rest) > 2 and not (group == "" and rest[2] in {"status", "finalize"}):
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3:
        return None
    plural, name, subresource = ([*rest, "", ""])[:3]
    return RequestInfo(
        group=group, version=version, plural=plural, namespace=namespace, name=name, subresource=subresource
    )
