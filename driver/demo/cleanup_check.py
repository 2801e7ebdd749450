"""What is left of claims on a node's disk once Kerf's programs have ended: looked up where they keep it."""

from pathlib import Path

from driver.demo.environment import Stage
from driver.demo.report import LeftReport
from driver.kubeletplugin.backends.simulated import open_backend
from driver.kubeletplugin.claims.checkpoint import open_checkpoint


def leftovers(stage: Stage) -> LeftReport:
    """Counted over all nodes. The programs must have ended: the checkpoint has one owner at a time."""
    nodes = stage.settings.node_names
    return LeftReport(
        partitions=sum(len(open_backend(stage.places.hardware_config(node)).held()) for node in nodes),
        cdi_files=sum(_files(stage.cluster.cdi_dir(node)) for node in nodes),
        checkpoint_records=sum(_records(stage.places.state(node)) for node in nodes),
        claims=len(stage.claims.store.values()),
    )


def _files(folder: Path) -> int:
    return len(list(folder.iterdir())) if folder.is_dir() else 0


def _records(folder: Path) -> int:
    with open_checkpoint(folder) as checkpoint:
        return len(checkpoint.records)
