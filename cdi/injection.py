"""Devices by name into an OCI spec: what was asked for is found in a catalog, and its edits applied."""

from collections.abc import Iterable, Mapping
from functools import reduce
from operator import add
from typing import Any

from cdi.cache import Cache
from cdi.catalog import Catalog, Definition
from cdi.container_edits import OCISpec, apply
from cdi.errors import UnresolvedError
from cdi.host_devices import HostView
from cdi.names import Semantics
from cdi.spec import ContainerEdits


def inject(
    cache: Cache,
    oci: Mapping[str, Any],
    names: Iterable[str],
    *,
    semantics: Semantics | None = None,
    host: HostView | None = None,
) -> OCISpec:
    """A copy of ``oci`` with the devices of ``names`` in it, from what ``cache`` last read.

    A device asked for twice is applied twice. ``semantics`` None: the cache's. ``host`` completes device nodes; None:
    this machine. Errors: UnresolvedError; as for ``apply``.
    """
    semantics = semantics or cache.semantics
    return apply(requested_edits(cache.catalog, names, semantics), oci, semantics=semantics, host=host)


def requested_edits(catalog: Catalog, names: Iterable[str], semantics: Semantics = "1.1") -> ContainerEdits:
    """What ``names`` come to, in that order. A spec's own edits stand once, before the first of its devices.

    Errors: UnresolvedError, naming everything that is missing.
    """
    names = tuple(names)
    missing = {name: catalog.why_missing(name, semantics) for name in names if name not in catalog.devices}
    if missing:
        raise UnresolvedError(missing)
    return reduce(add, _in_order(catalog.devices[name] for name in names), ContainerEdits())


def _in_order(definitions: Iterable[Definition]) -> Iterable[ContainerEdits]:
    seen = set()
    for definition in definitions:
        file = (definition.file.priority, definition.file.path)
        if file not in seen:
            seen.add(file)
            yield definition.spec.container_edits
        yield definition.device.container_edits
