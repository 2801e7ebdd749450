"""How each field is written in a document: its key, its shape, and when it is left out. One row per field.

Decoding, encoding and the JSON schema all walk this table; a test holds it in step with the values of ``cdi.spec``.
The order of rows is the order of keys in a written document.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from cdi.spec import ContainerEdits, Device, DeviceNode, Hook, IntelRdt, Mount, NetDevice, Spec


class Scalar(Enum):
    """A single value, named as in errors about it. Numbers have the ranges of the Go types that readers decode to."""

    TEXT = "a text"
    FLAG = "true or false"
    INT64 = "a 64-bit integer"
    UINT32 = "an integer from 0 to 4294967295"


RANGES = {Scalar.INT64: (-(2**63), 2**63 - 1), Scalar.UINT32: (0, 2**32 - 1)}


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list, a tuple in memory."""

    item: "Scalar | type"


@dataclass(frozen=True, slots=True)
class TextMap:
    """A map from text to text."""


Shape: TypeAlias = Scalar | ListOf | TextMap | type
"""A type is one of the values of ``cdi.spec``, written as an object."""


@dataclass(frozen=True, slots=True)
class Row:
    """One field of one value."""

    attribute: str
    key: str
    shape: Shape
    required: bool = False
    """Written even when empty."""
    optional: bool = False
    """None when absent, so that an empty value or 0 is written."""


WIRE: Mapping[type, tuple[Row, ...]] = {
    Spec: (
        Row("version", "cdiVersion", Scalar.TEXT, required=True),
        Row("kind", "kind", Scalar.TEXT, required=True),
        Row("annotations", "annotations", TextMap()),
        Row("devices", "devices", ListOf(Device), required=True),
        Row("container_edits", "containerEdits", ContainerEdits),
    ),
    Device: (
        Row("name", "name", Scalar.TEXT, required=True),
        Row("annotations", "annotations", TextMap()),
        Row("container_edits", "containerEdits", ContainerEdits, required=True),
    ),
    ContainerEdits: (
        Row("env", "env", ListOf(Scalar.TEXT)),
        Row("device_nodes", "deviceNodes", ListOf(DeviceNode)),
        Row("net_devices", "netDevices", ListOf(NetDevice)),
        Row("hooks", "hooks", ListOf(Hook)),
        Row("mounts", "mounts", ListOf(Mount)),
        Row("intel_rdt", "intelRdt", IntelRdt, optional=True),
        Row("additional_gids", "additionalGids", ListOf(Scalar.UINT32)),
    ),
    DeviceNode: (
        Row("path", "path", Scalar.TEXT, required=True),
        Row("host_path", "hostPath", Scalar.TEXT),
        Row("type", "type", Scalar.TEXT),
        Row("major", "major", Scalar.INT64),
        Row("minor", "minor", Scalar.INT64),
        Row("file_mode", "fileMode", Scalar.UINT32, optional=True),
        Row("permissions", "permissions", Scalar.TEXT),
        Row("uid", "uid", Scalar.UINT32, optional=True),
        Row("gid", "gid", Scalar.UINT32, optional=True),
    ),
    NetDevice: (
        Row("host_interface_name", "hostInterfaceName", Scalar.TEXT, required=True),
        Row("name", "name", Scalar.TEXT, required=True),
    ),
    Hook: (
        Row("hook_name", "hookName", Scalar.TEXT, required=True),
        Row("path", "path", Scalar.TEXT, required=True),
        Row("args", "args", ListOf(Scalar.TEXT)),
        Row("env", "env", ListOf(Scalar.TEXT)),
        Row("timeout", "timeout", Scalar.INT64, optional=True),
    ),
    Mount: (
        Row("host_path", "hostPath", Scalar.TEXT, required=True),
        Row("container_path", "containerPath", Scalar.TEXT, required=True),
        Row("options", "options", ListOf(Scalar.TEXT)),
        Row("type", "type", Scalar.TEXT),
    ),
    IntelRdt: (
        Row("clos_id", "closID", Scalar.TEXT),
        Row("l3_cache_schema", "l3CacheSchema", Scalar.TEXT),
        Row("mem_bw_schema", "memBwSchema", Scalar.TEXT),
        Row("schemata", "schemata", ListOf(Scalar.TEXT), optional=True),
        Row("enable_monitoring", "enableMonitoring", Scalar.FLAG),
    ),
}

KEYS = {row.key for rows in WIRE.values() for row in rows}
"""Every key of a field. Without quotes each of them is a string to every YAML parser."""
