"""What the kernel says of any PCI card in ``/sys`` and of processes in ``/proc``, for backends of real hardware."""

import os
import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path
from typing import Final

_PCIE_ROOT: Final = re.compile(r"pci[0-9a-f]{4}:[0-9a-f]{2}")
_MOST_NAMED: Final = 4
"""Processes that one message names."""


def read_numa_node(device: Path) -> int:
    """Return the NUMA node of a device, by its folder; 0: the machine has one node, or does not say."""
    try:
        return max(0, int((device / "numa_node").read_text()))
    except (OSError, ValueError):
        return 0


def find_pcie_root(device: Path) -> str:
    """Return the PCIe root complex that a device is behind, such as ``pci0000:00``; empty: unknown."""
    return next((part for part in device.resolve().parts if _PCIE_ROOT.fullmatch(part)), "")


def find_openers(proc: Path, nodes: AbstractSet[str]) -> dict[str, list[int]]:
    """Return the ids of the processes that have device nodes open, by the node's path, as far as they can be seen.

    ``proc`` is the folder of processes; containers have the nodes at the same paths. Processes of other PID namespaces
    are not seen: then only an attempt to open a node tells.
    """
    found: dict[str, list[int]] = {}
    with suppress(OSError):
        for pid in sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdecimal()):
            for node in nodes & _list_open(f"{proc}/{pid}/fd"):
                found.setdefault(node, []).append(pid)
    return found


def read_process_name(proc: Path, pid: int) -> str:
    """Return the name of a process; empty: it is gone, or cannot be seen."""
    with suppress(OSError):
        return (proc / str(pid) / "comm").read_text(errors="replace").strip()
    return ""


def is_uninterruptible(proc: Path, thread_id: int) -> bool:
    """Whether a thread of this process waits in the kernel where not even SIGKILL ends it (proc(5), state D)."""
    with suppress(OSError):
        stat = (proc / "self" / "task" / str(thread_id) / "stat").read_text(errors="replace")
        return stat.rpartition(")")[2].split()[:1] == ["D"]
    return False


def describe_processes(names: Mapping[int, str]) -> str:
    """Return the first processes by id, with their names where known, as in "process 4711 (python3)"."""
    described = [f"{pid} ({name})" if name else f"{pid}" for pid, name in sorted(names.items())]
    more = f" and {len(described) - _MOST_NAMED} more" if len(described) > _MOST_NAMED else ""
    return f"process{'es' if len(described) > 1 else ''} {', '.join(described[:_MOST_NAMED])}{more}"


def _list_open(folder: str) -> set[str]:
    """Return the paths that a process has open, by its folder of descriptors.

    A busy node has 100,000 descriptors, and every survey looks at all: so there are strings here, and no Path.
    """
    found: set[str] = set()
    with suppress(OSError):  # it ends meanwhile, or is another user's
        for number in os.listdir(folder):  # noqa: PTH208  (as said)
            with suppress(OSError):
                found.add(os.readlink(f"{folder}/{number}"))  # noqa: PTH115
    return found
