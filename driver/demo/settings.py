"""What can be set for a demo."""

from dataclasses import dataclass
from pathlib import Path

from driver.partitions.geometry import GpuModel, Shell


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """Frozen. Names end in their unit."""

    files: tuple[Path, ...]
    """The user's own manifests; empty: the examples, and the rest of the story."""
    nodes: int
    gpu_model: GpuModel
    gpus: int
    """For each node; 0: none."""
    shell: Shell
    fpgas: int
    """For each node; 0: none."""
    keep: bool
    """Stay up after the story until interrupted."""
    verbose: bool
    """Show the programs' log files as they grow."""
    step_timeout_s: float = 60.0
    """Longest wait for any one thing to come about: on a loaded machine twenty times what it takes."""

    @property
    def node_names(self) -> tuple[str, ...]:
        return tuple(f"node-{number}" for number in range(1, self.nodes + 1))
