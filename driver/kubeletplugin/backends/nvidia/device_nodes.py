"""Finds the device nodes of NVIDIA cards: control nodes, cards, capabilities of MIG instances, DRM (``/dev/dri``).

A node is given with its numbers as the kernel says them: its driver's major number in ``/proc/devices`` and its minor
number in ``/proc/driver`` or ``/sys``. So neither ``/dev`` is read, nor must the host have the node: those of unified
memory and of MIG capabilities are made there when some program asks for them, and may be a driver container's alone.

Management nodes are those of MIG: ``config`` creates and removes partitions, ``monitor`` sees those of others. Only
``monitor`` can be found here. ``nvidia-fs`` and IMEX channels are of programs beside the GPU, and are not looked for.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kerf_dra.cdi import DeviceNode
from kerf_dra.driver.kubeletplugin.backends.base import HardwareBusyError
from kerf_dra.driver.kubeletplugin.backends.nvidia.driver_root import SymbolicLink
from kerf_dra.driver.kubeletplugin.backends.nvidia.file_root import FileRoot

_ACCESS: Final = "rw"
"""No mknod: a container needs no further nodes."""
_CARD_DRIVERS: Final = ("nvidia", "nvidia-frontend")
"""The name of the main kernel module's devices since release 550, and before."""
_UVM_DRIVERS: Final = ("nvidia-uvm",)
_CAPABILITY_DRIVERS: Final = ("nvidia-caps",)
_CONTROL_NODES: Final = (
    ("/dev/nvidiactl", _CARD_DRIVERS, 255, True),
    ("/dev/nvidia-modeset", _CARD_DRIVERS, 254, False),
    ("/dev/nvidia-uvm", _UVM_DRIVERS, 0, True),
    ("/dev/nvidia-uvm-tools", _UVM_DRIVERS, 1, False),
)
"""Path, drivers, minor number (nvidia-modprobe), and whether CUDA needs the node. ``nvidia-modeset`` is for programs
that display, ``nvidia-uvm-tools`` for profilers."""
_MODULES: Final = {_CARD_DRIVERS: "nvidia", _UVM_DRIVERS: "nvidia-uvm", _CAPABILITY_DRIVERS: "nvidia"}
_CAPABILITIES: Final = "/proc/driver/nvidia/capabilities"
_MIG_MINORS: Final = "/proc/driver/nvidia-caps/mig-minors"
_CAPABILITY_MINOR: Final = re.compile(r"^DeviceFileMinor: *(\d+)$", re.MULTILINE)
_DEVICE: Final = re.compile(r"^ *(\d+) (\S+)$", re.MULTILINE)
_DRM_NODE: Final = re.compile(r"(card|renderD)\d+")
_NUMBERS: Final = re.compile(r"(\d+):(\d+)\s*")
"""The content of a device's file ``dev`` in sysfs."""
_DRM_LINKS: Final = {"card": "card", "renderD": "render"}
"""The last word of a link in ``/dev/dri/by-path``, by the beginning of the node's name (udev's 60-drm.rules)."""


class DeviceNodesMissingError(HardwareBusyError):
    """A device node cannot be made: its kernel module is not loaded, or its MIG instance is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuNodes:
    """The nodes of one whole GPU."""

    card: DeviceNode
    drm: tuple[DeviceNode, ...]
    """Nodes in ``/dev/dri``; none where the module ``nvidia-drm`` is not loaded."""
    links: tuple[SymbolicLink, ...]
    """Links in ``/dev/dri/by-path``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFiles:
    """What the kernel says of NVIDIA's devices."""

    root: FileRoot
    """The root with ``/proc`` and ``/sys``: ``/`` on a node."""

    def find_control_nodes(self) -> tuple[DeviceNode, ...]:
        """Return the nodes that every container with a GPU needs.

        Raises DeviceNodesMissingError when CUDA cannot work without one that is not there.
        """
        found: list[DeviceNode] = []
        for path, drivers, minor, is_needed in _CONTROL_NODES:
            node = self._find_node(path, drivers, minor)
            if node is not None:
                found.append(node)
            elif is_needed:
                raise self._not_loaded(path, drivers)
        return tuple(found)

    def find_gpu_nodes(self, minor: int, pci_address: str) -> GpuNodes:
        """Return the nodes of the GPU of a minor number, which is at ``pci_address`` (``0000:3b:00.0``).

        Raises DeviceNodesMissingError.
        """
        path = f"/dev/nvidia{minor}"
        card = self._find_node(path, _CARD_DRIVERS, minor)
        if card is None:
            raise self._not_loaded(path, _CARD_DRIVERS)
        drm, links = self._find_drm_nodes(pci_address)
        return GpuNodes(card=card, drm=drm, links=links)

    def find_instance_nodes(self, minor: int, gpu_instance: int, compute_instance: int) -> tuple[DeviceNode, ...]:
        """Return the capability nodes of a GPU instance and its compute instance, on the GPU of a minor number.

        Raises DeviceNodesMissingError.
        """
        gpu, compute = f"gi{gpu_instance}", f"gi{gpu_instance}/ci{compute_instance}"
        return tuple(
            self._find_capability(f"gpu{minor}/mig/{below}/access", f"gpu{minor}/{below}/access")
            for below in (gpu, compute)
        )

    def find_monitor_node(self) -> DeviceNode | None:
        """Return the node that lets its holder see all MIG instances; None: no card here is capable of MIG."""
        try:
            return self._find_capability("mig/monitor", "monitor")
        except DeviceNodesMissingError:
            return None

    def _find_capability(self, access: str, line: str) -> DeviceNode:
        """Return the node of a capability, by its file below ``capabilities``, else by its line of ``mig-minors``.

        The file is there while the instance is, the line always.
        """
        text = self.root.read_text(f"{_CAPABILITIES}/{access}") or ""
        found = _CAPABILITY_MINOR.search(text)
        if found is None:
            text = self.root.read_text(_MIG_MINORS) or ""
            found = re.search(rf"^{re.escape(line)} (\d+)$", text, re.MULTILINE)
        if found is None:
            raise DeviceNodesMissingError(
                f"{self.root.on_host(_CAPABILITIES)}/{access} names no device node: is MIG mode on, and does the"
                " instance exist?"
            )
        path, minor = f"/dev/nvidia-caps/nvidia-cap{found[1]}", int(found[1])
        node = self._find_node(path, _CAPABILITY_DRIVERS, minor)
        if node is None:
            raise self._not_loaded(path, _CAPABILITY_DRIVERS)
        return node

    def _find_drm_nodes(self, pci_address: str) -> tuple[tuple[DeviceNode, ...], tuple[SymbolicLink, ...]]:
        folder = f"/sys/bus/pci/devices/{pci_address}/drm"
        nodes: list[DeviceNode] = []
        links: list[SymbolicLink] = []
        for entry in self.root.find(folder):
            name = entry.rpartition("/")[2]
            kind = _DRM_NODE.fullmatch(name)
            numbers = _NUMBERS.fullmatch(self.root.read_text(f"{entry}/dev") or "")
            if kind is not None and numbers is not None:
                nodes.append(_device(f"/dev/dri/{name}", int(numbers[1]), int(numbers[2])))
                by_path = f"/dev/dri/by-path/pci-{pci_address}-{_DRM_LINKS[kind[1]]}"
                links.append(SymbolicLink(path=by_path, target=f"../{name}"))
        return tuple(nodes), tuple(links)

    def _find_node(self, path: str, drivers: tuple[str, ...], minor: int) -> DeviceNode | None:
        """Return the node at ``path`` of the first of ``drivers`` that is loaded; None: none is."""
        majors = _read_majors(self.root.read_text("/proc/devices") or "")
        major = next((majors[driver] for driver in drivers if driver in majors), None)
        return None if major is None else _device(path, major, minor)

    def _not_loaded(self, path: str, drivers: tuple[str, ...]) -> DeviceNodesMissingError:
        return DeviceNodesMissingError(
            f"{path} cannot be made, because {self.root.on_host('/proc/devices')} has no {drivers[0]}: load the kernel"
            f" module (modprobe {_MODULES[drivers]})"
        )


def _device(path: str, major: int, minor: int) -> DeviceNode:
    return DeviceNode(path=path, type="c", major=major, minor=minor, permissions=_ACCESS)


def _read_majors(devices: str) -> Mapping[str, int]:
    """Return the major numbers of character devices in the content of ``/proc/devices`` (proc(5)), by driver."""
    characters = devices.partition("Block devices:")[0]
    return {name: int(major) for major, name in _DEVICE.findall(characters)}
