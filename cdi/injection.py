"""Injects devices into an OCI spec: finds the requested devices in a catalog and applies their container edits."""

from collections.abc import Iterable, Mapping
from functools import reduce
from operator import add
from typing import Any

from kerf_dra.cdi.cache import Cache
from kerf_dra.cdi.catalog import Catalog, Definition
from kerf_dra.cdi.container_edits import OCISpec, apply
from kerf_dra.cdi.errors import UnresolvedError
from kerf_dra.cdi.host_devices import HostView
from kerf_dra.cdi.names import Semantics
from kerf_dra.cdi.spec import ContainerEdits


def inject(
    cache: Cache,
    oci: Mapping[str, Any],
    names: Iterable[str],
    *,
    semantics: Semantics | None = None,
    host: HostView | None = None,
) -> OCISpec:
    """Return a copy of ``oci`` with the devices ``names`` injected, as ``cache`` read them at its last refresh.

    A device that is requested twice is applied twice. ``semantics`` None: the cache's. ``host`` completes device nodes;
    None: this machine. Raises UnresolvedError when a device is not available, and what ``apply`` raises.
    """
    semantics = semantics or cache.semantics
    return apply(requested_edits(cache.catalog, names, semantics), oci, semantics=semantics, host=host)


def requested_edits(catalog: Catalog, names: Iterable[str], semantics: Semantics = "1.1") -> ContainerEdits:
    """Return the edits of the devices ``names``, in that order; a spec's own edits precede its first device, once.

    Raises UnresolvedError, with the reason for each device that is not available.
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
