"""A process that prepares or unprepares a claim on a whole NVIDIA card that is shared by MPS.

``python -m tests.kubeletplugin.backends.nvidia.sharing_process ROOT prepare|unprepare``. The card is the stand-in's;
the daemons are kept by another process, or by none.
"""

import sys
from pathlib import Path

import anyio

from kerf_dra.driver.testing.nvml.demonstration import StandInBackend
from tests.fakes.claims import claim, config
from tests.kubeletplugin.backends.nvidia import node
from tests.kubeletplugin.backends.one_call import call_plugin

MPS = {
    "apiVersion": "kerf.dev/v1alpha1",
    "kind": "GpuConfig",
    "sharing": {"strategy": "Mps", "mps": {"activeThreadPercentage": 30}},
}
CLAIM = claim("shared", "gpu-0", configs=[config(MPS)])
SHARING = "sharing"
"""The folder of shared devices."""


def hardware(root: Path) -> StandInBackend:
    """A backend of the card whose machine lies below ``root``, opened."""
    return node.hardware(root, sharingFolder=SHARING)


async def call(root: Path, operation: str) -> None:
    await call_plugin(root, CLAIM, operation, hardware(root))


if __name__ == "__main__":
    anyio.run(call, Path(sys.argv[1]), sys.argv[2])
