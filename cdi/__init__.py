"""The Container Device Interface (CDI): a driver writes spec files, a container runtime or a tool reads them.

Terms (SPEC.md of cncf-tags/container-device-interface, versions 0.3.0 to 1.1.0): a *spec* defines *devices* of one
*kind* (``vendor/class``); a *qualified name* (``vendor/class=name``) requests one; its *container edits* are the
changes to an OCI spec. *Readers* are the container runtimes; all link one Go library, and where it differs from
SPEC.md, this package follows the library.

- Writing: ``Spec`` -> ``validate`` -> ``encode_json`` -> ``Store`` (one file for each name).
- Reading: file -> ``read`` -> ``Cache`` -> ``Catalog`` (the definition in force of each device).
- Injecting: qualified names -> ``requested_edits`` -> ``apply`` -> OCI spec.

The package imports the standard library and PyYAML, and nothing of Kerf. A driver's process lives as long as its node,
so modules that only tools need are imported on first use (PEP 562).
"""

import importlib
from typing import TYPE_CHECKING

from kerf_dra.cdi.document.encoder import encode_json, encode_yaml
from kerf_dra.cdi.document.validation import validate
from kerf_dra.cdi.errors import (
    CDIError,
    Finding,
    HostDeviceError,
    InvalidNameError,
    InvalidOCISpecError,
    InvalidSpecError,
    StoreError,
    UnresolvedError,
)
from kerf_dra.cdi.names import Kind, QualifiedName, Semantics, spec_name, transient_name
from kerf_dra.cdi.spec import (
    HOOK_STAGES,
    ContainerEdits,
    Device,
    DeviceNode,
    Hook,
    IntelRdt,
    Mount,
    NetDevice,
    Spec,
)
from kerf_dra.cdi.store import Store, VolatileFilesystem
from kerf_dra.cdi.versions import VERSIONS, MinimumVersion, Reason, minimum_version

if TYPE_CHECKING:
    from kerf_dra.cdi.cache import DEFAULT_DIRECTORIES, Cache, Difference, watch
    from kerf_dra.cdi.catalog import Catalog, Definition, SpecFile
    from kerf_dra.cdi.container_edits import apply
    from kerf_dra.cdi.document.decoder import Document, load, read
    from kerf_dra.cdi.host_devices import Host, HostNode, HostView
    from kerf_dra.cdi.injection import inject, requested_edits
else:
    # Type checkers do not see this branch: to them a module with ``__getattr__`` has every name.
    _LATER = {
        "kerf_dra.cdi.cache": ("DEFAULT_DIRECTORIES", "Cache", "Difference", "watch"),
        "kerf_dra.cdi.catalog": ("Catalog", "Definition", "SpecFile"),
        "kerf_dra.cdi.document.decoder": ("Document", "load", "read"),
        "kerf_dra.cdi.container_edits": ("apply",),
        "kerf_dra.cdi.host_devices": ("Host", "HostNode", "HostView"),
        "kerf_dra.cdi.injection": ("inject", "requested_edits"),
    }

    def __getattr__(name: str) -> object:
        for module, names in _LATER.items():
            if name in names:
                value = globals()[name] = getattr(importlib.import_module(module), name)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "DEFAULT_DIRECTORIES",
    "HOOK_STAGES",
    "VERSIONS",
    "CDIError",
    "Cache",
    "Catalog",
    "ContainerEdits",
    "Definition",
    "Device",
    "DeviceNode",
    "Difference",
    "Document",
    "Finding",
    "Hook",
    "Host",
    "HostDeviceError",
    "HostNode",
    "HostView",
    "IntelRdt",
    "InvalidNameError",
    "InvalidOCISpecError",
    "InvalidSpecError",
    "Kind",
    "MinimumVersion",
    "Mount",
    "NetDevice",
    "QualifiedName",
    "Reason",
    "Semantics",
    "Spec",
    "SpecFile",
    "Store",
    "StoreError",
    "UnresolvedError",
    "VolatileFilesystem",
    "apply",
    "encode_json",
    "encode_yaml",
    "inject",
    "load",
    "minimum_version",
    "read",
    "requested_edits",
    "spec_name",
    "transient_name",
    "validate",
    "watch",
]
