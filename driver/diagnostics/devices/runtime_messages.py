"""Messages of container runtimes and kubelets about the devices of a container.

A container that cannot be created or started leaves the runtime's message in its state, or in an event of its pod.
Only messages about devices are of interest here; others may quote commands and environments of users. The words are
those of containerd, CRI-O and the CDI library (``unresolvable CDI devices``), of runc and crun (hooks, device nodes),
and of NVIDIA's and Kata's runtimes.
"""

import re
from enum import StrEnum
from typing import Final

START_REASONS: Final = frozenset({"StartError", "ContainerCannotRun"})
"""Reasons of containers that ended before they ran: the message is the runtime's, else it is the program's own."""


class DeviceFailure(StrEnum):
    """What of a container's devices the runtime cannot give it."""

    CDI = "cdi"
    """The CDI name of a device: no file has it, or the file cannot be used."""
    NODE = "device-node"
    """A device node or a mount of a device: it is not on the node, or cannot be made."""
    HOOK = "hook"
    """A program that the device's CDI file has the runtime run has failed."""


_KINDS: Final = (
    (DeviceFailure.CDI, re.compile(r"unresolvable CDI")),
    (
        DeviceFailure.HOOK,
        re.compile(
            r"(?:error|failed) (?:running|executing|to (?:run|execute)) (?:\w+ )?hooks?\b|running (?:\w+ )?hook|"
            r"executing hook|nvidia-container-cli|nvidia-ctk|nvidia-cdi-hook|could not apply required modification",
            re.IGNORECASE,
        ),
    ),
    (
        DeviceFailure.NODE,
        re.compile(
            r"CDI host device|gathering device information|not a device node|creating device nodes|cold plug|"
            r"(?:stat|open|mknod|mount|mounting|device)\b[^:]{0,20}?[ \"`']/dev/(?!(?:console|pts|ptmx|termination-log"
            r"|shm|mqueue|hugepages|null|tty)\b)\S+|"
            r"host type mismatch|error mounting \"(?!/var/lib/kubelet/|[^\"]*/kubelet/pods/)[^\"]+\" to rootfs",
            re.IGNORECASE,
        ),
    ),
    (DeviceFailure.CDI, re.compile(r"\bCDI\b|failed to inject devices")),
)
"""Words by which a message is recognized. A device node that CDI names is missing on the node, not in the CDI file."""
_NOT_DEVICES: Final = re.compile(r"lifecycle hook|P(?:re|ost)\w+ ?[Hh]ook|/volumeDevices/")
"""Hooks of the pod's own spec and of the kubelet's managers of CPU and memory, and block devices of volumes."""
_CDI_NAME: Final = re.compile(r"\b[A-Za-z][\w.-]*/[A-Za-z][\w.-]*=[A-Za-z0-9](?:[\w.:-]*[\w])?")
"""A qualified CDI name: ``VENDOR/CLASS=NAME`` (CDI specification, section on device names)."""


def find_device_failure(message: str) -> DeviceFailure | None:
    """Return what of its devices a container cannot get, by a runtime's ``message``; None if it is not about these."""
    if _NOT_DEVICES.search(message):
        return None
    return next((kind for kind, pattern in _KINDS if pattern.search(message)), None)


def find_cdi_names(message: str) -> tuple[str, ...]:
    """Return the CDI names of devices in ``message``."""
    return tuple(dict.fromkeys(_CDI_NAME.findall(message)))
