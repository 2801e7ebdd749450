"""The table of fields of a spec document: the key of each field, its type, and whether it may be absent.

Decoders, encoder, validation and JSON schema are driven by this table; a test compares it with the data types of
``kerf_dra.cdi.spec``. Documents are written in the order of the rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from kerf_dra.cdi.spec import ContainerEdits, Device, DeviceNode, Hook, IntelRdt, Mount, NetDevice, Spec


class Scalar(Enum):
    """A scalar type, named as in messages. Integers have the ranges of the Go types that readers decode to."""

    TEXT = "a text"
    FLAG = "true or false"
    INT64 = "a 64-bit integer"
    UINT32 = "an integer from 0 to 4294967295"


RANGES = {Scalar.INT64: (-(2**63), 2**63 - 1), Scalar.UINT32: (0, 2**32 - 1)}


@dataclass(frozen=True, slots=True)
class ListOf:
    """The type of a list, which is a tuple in memory."""

    item: "Scalar | type"


@dataclass(frozen=True, slots=True)
class TextMap:
    """The type of a map from string to string."""


Shape: TypeAlias = Scalar | ListOf | TextMap | type
"""The type of a field; a ``type`` is a data type of ``kerf_dra.cdi.spec``, written as an object."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of one data type."""

    attribute: str
    key: str
    shape: Shape
    required: bool = False
    """Whether the field is written even when it is empty."""
    optional: bool = False
    """Whether the field is None when absent; an empty value or 0 is then written."""


FIELDS: Mapping[type, tuple[Field, ...]] = {
    Spec: (
        Field("version", "cdiVersion", Scalar.TEXT, required=True),
        Field("kind", "kind", Scalar.TEXT, required=True),
        Field("annotations", "annotations", TextMap()),
        Field("devices", "devices", ListOf(Device), required=True),
        Field("container_edits", "containerEdits", ContainerEdits),
    ),
    Device: (
        Field("name", "name", Scalar.TEXT, required=True),
        Field("annotations", "annotations", TextMap()),
        Field("container_edits", "containerEdits", ContainerEdits, required=True),
    ),
    ContainerEdits: (
        Field("env", "env", ListOf(Scalar.TEXT)),
        Field("device_nodes", "deviceNodes", ListOf(DeviceNode)),
        Field("net_devices", "netDevices", ListOf(NetDevice)),
        Field("hooks", "hooks", ListOf(Hook)),
        Field("mounts", "mounts", ListOf(Mount)),
        Field("intel_rdt", "intelRdt", IntelRdt, optional=True),
        Field("additional_gids", "additionalGids", ListOf(Scalar.UINT32)),
    ),
    DeviceNode: (
        Field("path", "path", Scalar.TEXT, required=True),
        Field("host_path", "hostPath", Scalar.TEXT),
        Field("type", "type", Scalar.TEXT),
        Field("major", "major", Scalar.INT64),
        Field("minor", "minor", Scalar.INT64),
        Field("file_mode", "fileMode", Scalar.UINT32, optional=True),
        Field("permissions", "permissions", Scalar.TEXT),
        Field("uid", "uid", Scalar.UINT32, optional=True),
        Field("gid", "gid", Scalar.UINT32, optional=True),
    ),
    NetDevice: (
        Field("host_interface_name", "hostInterfaceName", Scalar.TEXT, required=True),
        Field("name", "name", Scalar.TEXT, required=True),
    ),
    Hook: (
        Field("hook_name", "hookName", Scalar.TEXT, required=True),
        Field("path", "path", Scalar.TEXT, required=True),
        Field("args", "args", ListOf(Scalar.TEXT)),
        Field("env", "env", ListOf(Scalar.TEXT)),
        Field("timeout", "timeout", Scalar.INT64, optional=True),
    ),
    Mount: (
        Field("host_path", "hostPath", Scalar.TEXT, required=True),
        Field("container_path", "containerPath", Scalar.TEXT, required=True),
        Field("options", "options", ListOf(Scalar.TEXT)),
        Field("type", "type", Scalar.TEXT),
    ),
    IntelRdt: (
        Field("clos_id", "closID", Scalar.TEXT),
        Field("l3_cache_schema", "l3CacheSchema", Scalar.TEXT),
        Field("mem_bw_schema", "memBwSchema", Scalar.TEXT),
        Field("schemata", "schemata", ListOf(Scalar.TEXT), optional=True),
        Field("enable_monitoring", "enableMonitoring", Scalar.FLAG),
    ),
}

KEYS = {row.key for rows in FIELDS.values() for row in rows}
"""The keys of all fields. Without quotes each of them is a string to every YAML parser."""
