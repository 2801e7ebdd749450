"""The memory of the controller in a large cluster."""

from pathlib import Path
from typing import Final

import pytest

from tests.controller.large_cluster_controller import counting_controller
from tests.runtime.process_memory import read_memory

NODES: Final = 1000
CARDS: Final = 8
BASE_MIB: Final = 64
"""The controller's memory in a small cluster, the evaluation of CEL included."""
NODE_KIB: Final = 40
"""Its memory for a node with eight H100: 208 devices, which are 243 KB of JSON and 900 KB when they are decoded."""


@pytest.mark.long
@pytest.mark.parametrize("shuffled", [False, True])
async def test_a_controller_of_1000_nodes_needs_a_tenth_of_its_limit(tmp_path: Path, *, shuffled: bool) -> None:
    """It was killed at its limit of 1 GiB, and so was the next leader: their caches held all devices of all nodes.

    That each node publishes its devices in an order of its own changes nothing.
    """
    async with counting_controller(NODES, CARDS, tmp_path, shuffled=shuffled) as pid:
        memory = read_memory(pid)
    limit = BASE_MIB + NODES * NODE_KIB / 1024
    assert memory.resident <= limit
    assert memory.peak <= 2 * limit, "while it listed"
