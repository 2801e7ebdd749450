"""The processes that have device nodes open, as ``/proc`` shows them. Opening a node to find out would reset its port
when it is closed (Linux ``drivers/fpga/dfl-afu-main.c``, ``afu_release``), and a survey changes nothing.
"""

import os
from collections.abc import Collection
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path
from typing import Final

_MOST_NAMED: Final = 4
"""Processes that one message names."""


def find_openers(proc: Path, names: AbstractSet[str]) -> dict[str, list[int]]:
    """Return the ids of the processes that have a device node open, by the node's name, as far as they can be seen.

    ``proc`` is the folder of processes, ``names`` are the last parts of the nodes' paths: a container has them at the
    same path. Processes of other PID namespaces are not seen: then only an attempt to open a node tells.
    """
    found: dict[str, list[int]] = {}
    with suppress(OSError):
        for pid in sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdecimal()):
            for name in names & _list_open(f"{proc}/{pid}/fd"):
                found.setdefault(name, []).append(pid)
    return found


def describe_processes(proc: Path, pids: Collection[int]) -> str:
    """Return the first processes with their names, as in "process 4711 (host_exerciser)"."""
    named = [f"{pid} ({name})" if (name := _read_name(proc / str(pid))) else f"{pid}" for pid in sorted(pids)]
    more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    return f"process{'es' if len(named) > 1 else ''} {', '.join(named[:_MOST_NAMED])}{more}"


def _read_name(process: Path) -> str:
    with suppress(OSError):
        return (process / "comm").read_text(errors="replace").strip()
    return ""


def _list_open(folder: str) -> set[str]:
    """Return the last parts of the paths that a process has open, by its folder of descriptors.

    A busy node has 100,000 descriptors, and every survey looks at all: so there are strings here, and no paths.
    """
    found: set[str] = set()
    with suppress(OSError):  # it ends meanwhile, or is another user's
        for number in os.listdir(folder):  # noqa: PTH208  (as said)
            with suppress(OSError):
                found.add(os.readlink(f"{folder}/{number}").rpartition("/")[2])  # noqa: PTH115
    return found
