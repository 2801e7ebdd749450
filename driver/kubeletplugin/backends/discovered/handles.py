"""Handles of prepared discovered devices, as the checkpoint keeps them, and the container edits made from them.

Each variable is there twice: by its name, and with the device's digest behind it, because a container with two devices
has each name once (Akri does the same, ``device_plugin_instance_controller.rs``). Variables of the configuration are
the same for all its devices, so a device's own go before them.
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
    mounts: tuple[DeviceMount, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()


def build_handle(one: FoundDevice) -> DiscoveredHandle:
    """Return the handle of a device as it is now."""
    found, configuration = one.device.spec, one.configuration.spec
    return DiscoveredHandle(
        device=one.name,
        digest=one.digest,
        id=found.device_id,
        variables={**configuration.broker_properties, **found.properties},
        mounts=(*configuration.mounts, *found.mounts),
        device_nodes=found.device_nodes,
    )


HANDLES: Final = HandleCodec(DiscoveredHandle, owner="the backend discovered")


def build_edits(handle: DiscoveredHandle) -> ContainerEdits:
    """Build the edits of a device. The same handle gives the same edits, on every node and after every restart."""
    return ContainerEdits(
        env=(
            f"{name_variable('KERF_DEVICE', handle.device)}={handle.id}",
            *(f"{name}={value}" for name, value in handle.variables.items()),
            *(f"{name_variable(name, handle.digest)}={value}" for name, value in handle.variables.items()),
        ),
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
