"""Parts of the container edits of a device that several backends need."""

from typing import Final

from kerf_dra.cdi import DeviceNode

_NULL_MAJOR: Final = 1
_NULL_MINOR: Final = 3
"""``/dev/null`` on every Linux (Documentation/admin-guide/devices.txt)."""


SHARE_AMOUNTS: Final = ("KERF_MEMORY_LIMIT_", "KERF_MILLICORES_", "KERF_COMPUTE_UNIT_PERCENT_")
"""The beginnings of the variables that say how much of a device one share has."""


def name_variable(prefix: str, name: str) -> str:
    """Return the name of an environment variable that says something of one device.

    >>> name_variable("KERF_DEVICE", "gpu-0-1g-10gb-at-5")
    'KERF_DEVICE_GPU_0_1G_10GB_AT_5'
    """
    return f"{prefix}_{name.upper().replace('-', '_')}"


def build_node(path: str, *, is_stand_in: bool) -> DeviceNode:
    """Return a device node that containers may read and write; of a stand-in it is the host's ``/dev/null``."""
    if not is_stand_in:
        return DeviceNode(path=path, permissions="rw")
    return DeviceNode(
        path=path, host_path="/dev/null", type="c", major=_NULL_MAJOR, minor=_NULL_MINOR, permissions="rw"
    )
