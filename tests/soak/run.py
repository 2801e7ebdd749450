"""One process of a soak: rounds of claims on one node, with the memory at some moments."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio

from tests.runtime.memory_folder import memory_folder
from tests.runtime.virtual_time import VIRTUAL_TIME
from tests.schedules.player import silent
from tests.soak.memory import MOMENTS, Memory, is_flat, read_memory
from tests.soak.node import SoakNode

ROUND: Final = 500
"""Claims until the node comes to rest, where nothing may be left, and starts anew."""
_PROGRESS_S: Final = 10.0


@dataclass(kw_only=True)
class Report:
    """What one process has done, or all of them."""

    claims: int = 0
    restarts: int = 0
    reboots: int = 0
    driver_reloads: int = 0
    kubelet_losses: int = 0
    clock_changes: int = 0
    violations: list[str] = field(default_factory=list)
    memory: list[dict[str, str]] = field(default_factory=list)
    """For each process: the memory by the part of the run."""
    is_flat: bool = True

    @property
    def is_good(self) -> bool:
        return not self.violations and self.is_flat

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "violations": len(self.violations), "first_violation": (*self.violations, "")[0]}


def soak(claims: int, seed: int, *, shows_progress: bool = False) -> Report:
    """Run so many claims; ends at the first violation."""
    report = Report()
    memory: dict[float, Memory] = {}
    shown = time.monotonic()
    with memory_folder() as folder, silent():
        node = SoakNode(seed, Path(folder))
        while node.claims < claims and not report.violations:
            wanted = min(ROUND, claims - node.claims)
            try:
                anyio.run(node.run, wanted, backend=VIRTUAL_TIME[0], backend_options=VIRTUAL_TIME[1])
            except Exception as error:  # what went wrong is the report
                while isinstance(error, ExceptionGroup):
                    error = error.exceptions[0]
                report.violations.append(f"seed {seed}, after {node.claims} claims: {type(error).__name__}: {error}")
            for moment in MOMENTS:
                if moment not in memory and node.claims >= moment * claims:
                    memory[moment] = read_memory()
            if shows_progress and time.monotonic() - shown > _PROGRESS_S:
                shown = time.monotonic()
                print(f"{node.claims / claims:4.0%}, {node.restarts} restarts", file=sys.stderr, flush=True)
    report.claims, report.restarts, report.reboots = node.claims, node.restarts, node.reboots
    report.driver_reloads, report.kubelet_losses = node.reloads, node.losses
    report.clock_changes = node.clock_changes
    report.memory = [{f"{moment:.0%}": str(read) for moment, read in memory.items()}]
    report.is_flat = len(memory) < len(MOMENTS) or is_flat(memory[MOMENTS[0]], memory[MOMENTS[-1]])
    return report


def merge(reports: Sequence[Report]) -> Report:
    """Return the report of all processes."""
    return Report(
        claims=sum(one.claims for one in reports),
        restarts=sum(one.restarts for one in reports),
        reboots=sum(one.reboots for one in reports),
        driver_reloads=sum(one.driver_reloads for one in reports),
        kubelet_losses=sum(one.kubelet_losses for one in reports),
        clock_changes=sum(one.clock_changes for one in reports),
        violations=[violation for one in reports for violation in one.violations],
        memory=[part for one in reports for part in one.memory],
        is_flat=all(one.is_flat for one in reports),
    )
