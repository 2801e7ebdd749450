"""The kubelet plugin of a new node, of two families, on a disk on which each sync waits to be let go.

``python -m tests.attack.slow_start_process PORT LOG GATE``: the probes' port, and the descriptors of two pipes. LOG
gets a line for each sync, STARTED when both families run, and ENDED when one of them has prepared a claim and has
handed over. A sync goes on when it has read a byte from GATE.
"""

import os
import sys

import anyio

from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kubeletplugin.handover import InstanceLock
from tests.fakes.claims import claim
from tests.fakes.system_calls import hold_syncs
from tests.kubeletplugin.test_hosted_families import SLICE, node
from tests.kubeletplugin.wait import until

STARTED, ENDED = "started", "ended"


async def main(port: int, log: int, gate: int) -> None:
    async with node() as new:
        new.address = f"127.0.0.1:{port}"
        hold_syncs([new.root], log, gate)
        async with new.running():
            await until(lambda: bool(new.checks) and not new.problems.keys() & {"gpu/start", "fpga/start"})
            os.write(log, f"{STARTED}\n".encode())
            kubelet = new.kubelet(GPU)
            await kubelet.register()
            await kubelet.prepare(new.clusters["gpu"].add(claim("training", SLICE)))
            with await InstanceLock(new.gpus.state).acquire(may_request=lambda: True):
                os.write(log, f"{ENDED}\n".encode())


if __name__ == "__main__":
    port, log, gate = map(int, sys.argv[1:])
    anyio.run(main, port, log, gate)
