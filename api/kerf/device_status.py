"""``kerf.dev/v1alpha1`` DeviceStatus: what a claim got, for every user who may read the claim (docs/claim-status.md).

The kubelet plugin writes one for each of its devices into ``data`` of the claim's ``status.devices`` (KEP-4817), before
the first container with the device starts.
"""

from typing import Final, Literal

import msgspec

from kerf_dra.api.kerf.v1alpha1 import Strict

MAX_DATA_BYTES: Final = 10 * 1024
"""The longest ``data`` that the API server takes (``AllocatedDeviceStatusDataMaxLength``)."""

IDLE_SINCE: Final = "idleSince"
SAMPLED: Final = "sampled"
"""The keys that say whether a device is used, which ``kerf gather`` keeps."""


class DeviceStatus(Strict, tag_field="kind", tag="DeviceStatus"):
    """What a device of a claim is now. A field is left out where the device has nothing of the kind."""

    api_version: Literal["kerf.dev/v1alpha1"]
    """The version of this document."""
    uuid: str = ""
    """The UUID by which programs address the device: of a MIG device, or of a whole card."""
    card: str = ""
    """The UUID of the device's card."""
    pci_bus_id: str = msgspec.field(default="", name="pciBusID")
    """The PCI address of the card, such as ``0000:3b:00.0``."""
    profile: str = ""
    """The profile of the partition."""
    function: str = ""
    """The function that is loaded."""
    simulated: bool = False
    """Whether there is no such hardware, and the device computes nothing."""
    device_nodes: tuple[str, ...] = ()
    """The paths of the device nodes in the container."""
    cdi_devices: tuple[str, ...] = ()
    """The qualified CDI names that the container runtime is given."""
    sampled: bool = False
    """Whether the plugin samples what the device is used for: without that, nothing says when it is idle."""
    idle_since: str = ""
    """The time from which on no process has computed on the device (RFC 3339, UTC); only while it is idle."""
