"""The memory of another process, as Linux counts it (proc_pid_status(5))."""

from pathlib import Path
from typing import NamedTuple


class ProcessMemory(NamedTuple):
    """What of a process is in memory, libraries that others use included, in MiB."""

    resident: float
    """Now (VmRSS)."""
    peak: float
    """At most, since its program was started (VmHWM)."""


def read_memory(pid: int) -> ProcessMemory:
    """Read the memory of a process, which must not have ended."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return ProcessMemory(*(int(fields[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM")))
