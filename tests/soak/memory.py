"""The memory of this process, at moments of a long run."""

import gc
import os
from pathlib import Path
from typing import Final, NamedTuple

MOMENTS: Final = (0.1, 0.5, 1.0)
"""Parts of the run after which the memory is read; what the first part fills are caches."""
GROWTH_MIB: Final = 8.0
"""Growth from the first moment to the last that counts as none: 2.3 were seen in 20,000 claims and 4.1 in 50,000, with
as many objects as before. A claim that leaves 200 bytes adds 9 in 50,000; objects are counted besides."""
OBJECTS_GROWTH: Final = 2_000
"""The same in Python's objects: the node's own state at a moment differs by some hundreds."""


class Memory(NamedTuple):
    """What a process needs now."""

    rss_mib: float
    objects: int
    """Objects that Python's collector knows."""

    def __str__(self) -> str:
        return f"{self.rss_mib:.1f} MiB, {self.objects} objects"


def read_memory() -> Memory:
    """Collect garbage, and read what is left."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Memory(rss_mib=pages * os.sysconf("SC_PAGE_SIZE") / 2**20, objects=len(gc.get_objects()))


def is_flat(first: Memory, last: Memory) -> bool:
    """Whether the memory has not grown."""
    return last.rss_mib - first.rss_mib <= GROWTH_MIB and last.objects - first.objects <= OBJECTS_GROWTH
