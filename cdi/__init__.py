"""Container Device Interface: spec files and container edits, for drivers and tools. Imports nothing of Kerf.

What a driver needs is here: values (``Spec``, ``Device``, ``ContainerEdits``), ``validate``, ``encode_json`` and
``Store``. What a tool or runtime needs too: ``load``, ``Cache``, ``inject``. The format is SPEC.md of
cncf-tags/container-device-interface, versions 0.3.0 to 1.1.0; where readers differ from it, readers are followed.
"""

from cdi.cache import DEFAULT_DIRECTORIES, Cache, Difference, watch
from cdi.catalog import Catalog, Definition, SpecFile
from cdi.decoding import Document, load, read
from cdi.editing import apply
from cdi.encoding import encode_json, encode_yaml
from cdi.errors import (
    CDIError,
    Finding,
    HostDeviceError,
    InvalidNameError,
    InvalidOCISpecError,
    InvalidSpecError,
    StoreError,
    UnresolvedError,
)
from cdi.host import Host, HostNode, HostView
from cdi.injecting import inject, requested_edits
from cdi.names import Kind, QualifiedName, Semantics, spec_name, transient_name
from cdi.spec import (
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
from cdi.store import Store
from cdi.validating import validate
from cdi.versions import VERSIONS, MinimumVersion, Reason, minimum_version

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
