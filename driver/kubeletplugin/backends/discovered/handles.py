"""Handles of prepared discovered devices, as the checkpoint keeps them, and the container edits made from them.

A variable of the configuration, which an administrator writes, has its own name, and is there with the device's digest
behind it, too. A property of the device, which a node writes, perhaps another one than the container's, is there with
the digest only (``URL_3F850A``): no node chooses a name that programs read, such as LD_PRELOAD or PATH. The digest also
distinguishes the devices of a container (Akri does the same, ``device_plugin_instance_controller.rs``).
"""

from typing import Final

import msgspec

from kerf_dra.api.kerf.discovery_objects import DeviceMount, DeviceNode
from kerf_dra.cdi import ContainerEdits
from kerf_dra.cdi import DeviceNode as CdiDeviceNode
from kerf_dra.cdi import Mount as CdiMount
from kerf_dra.driver.families.shared.objects import FoundDevice
from kerf_dra.driver.kubeletplugin.backends.device_edits import name_variable
from kerf_dra.driver.kubeletplugin.backends.handle_codec import HandleCodec

_BIND: Final = ("rbind", "rprivate", "nosuid", "nodev")


class DiscoveredHandle(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="discovered"):
    """What a container gets of a device."""

    device: str
    """The name of the DiscoveredDevice."""
    digest: str
    """The part of the name that is a suffix of variables."""
    id: str
    """The id that the discovery handler gave it."""
    variables: dict[str, str] = {}
    """Those of the configuration."""
    properties: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    """Those of the device; unset: there are none, or an earlier version has them among the variables."""
    mounts: tuple[DeviceMount, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()


def build_handle(one: FoundDevice) -> DiscoveredHandle:
    """Return the handle of a device as it is now."""
    found, configuration = one.device.spec, one.configuration.spec
    return DiscoveredHandle(
        device=one.name,
        digest=one.digest,
        id=found.device_id,
        variables=configuration.broker_properties,
        properties=found.properties or msgspec.UNSET,
        mounts=(*configuration.mounts, *found.mounts),
        device_nodes=found.device_nodes,
    )


HANDLES: Final = HandleCodec(DiscoveredHandle, owner="the backend discovered")


def build_edits(handle: DiscoveredHandle) -> ContainerEdits:
    """Build the edits of a device. The same handle gives the same edits, on every node and after every restart."""
    return ContainerEdits(
        env=tuple(f"{name}={value}" for name, value in _build_variables(handle).items()),
        device_nodes=tuple(
            CdiDeviceNode(
                path=node.container_path or node.host_path, host_path=node.host_path, permissions=node.permissions
            )
            for node in handle.device_nodes
        ),
        mounts=tuple(
            CdiMount(
                host_path=mount.host_path,
                container_path=mount.container_path,
                options=(*_BIND, "ro" if mount.read_only else "rw"),
            )
            for mount in handle.mounts
        ),
    )


def _build_variables(handle: DiscoveredHandle) -> dict[str, str]:
    """Return the variables by name. What the device says of itself goes before what its configuration says of all
    devices, but no property takes the place of a name that the administrator chose.
    """
    said = {**handle.variables, **(handle.properties or {})}
    suffixed = {name_variable(name, handle.digest): value for name, value in said.items()}
    return suffixed | handle.variables | {name_variable("KERF_DEVICE", handle.device): handle.id}
