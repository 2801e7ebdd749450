"""Large clusters of nodes with eight H100: the controller's memory for each, and ``kerf why`` and ``kerf frag``.

Baselines: a process that holds the decoded slices, and one that reads and decodes the lists that the commands read, and
keeps nothing. The API server is a process of its own (``tests/kube/large_cluster.py``). Times are those of the
processor, as other processes may use it, too.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from tests.bench.measurement import Row, say
from tests.controller.large_cluster_controller import counting_controller
from tests.kube.large_cluster import WAITING, serving_large_cluster
from tests.runtime.process_memory import ProcessMemory, read_memory

CARDS: Final = 8
SIZES: Final = (100, 1000, 5000)
DECODED: Final = 100
"""Nodes whose decoded slices are held: they take 100 MB."""
DIAGNOSED: Final = 3000
COMMANDS: Final[Mapping[str, Sequence[str]]] = {"why": ("why", "pod", WAITING), "frag": ("frag",)}
ORDERS: Final[Mapping[bool, str]] = {False: "", True: ", each in an order of its own"}
"""How rows are called of clusters whose nodes have some orders of devices in common, and of shuffled ones."""
NODE_GOAL: Final = "<= 40 KB"
BARE: Final = "lists read and decoded"
_BARE: Final = """
import sys, http.client
from kerf_dra.api.core.v1 import NODES, PODS
from kerf_dra.api.resource.v1 import KINDS

connection = http.client.HTTPConnection(sys.argv[1].removeprefix("http://"))
kept = []
for kind in (NODES, PODS, KINDS.resource_claims, KINDS.resource_slices):
    more = ""
    while True:
        connection.request("GET", f"{kind.path()}?limit=500&continue={more}")
        page = kind.decode_list(connection.getresponse().read())
        if sys.argv[2:] == ["keep"] and kind is KINDS.resource_slices:
            kept.append(page)
        more = page.metadata.continue_
        if not more:
            break
"""


class Usage(NamedTuple):
    """What a process has used until its end."""

    seconds: float
    """Of the processor."""
    peak_mib: float


async def measure() -> list[Row]:
    with TemporaryDirectory(prefix="kb") as folder:
        return [*await _measure_controller(Path(folder)), *_measure_commands(Path(folder))]


async def _measure_controller(folder: Path) -> list[Row]:
    decoded = _measure_decoded(folder)
    smallest = await _resident(1, folder)
    rows = [Row(name="controller, 1 node: memory", unit="MB", samples=[smallest.resident], goal="<= 64 MB")]
    for nodes in SIZES:
        say(f"a controller of {nodes} nodes with {CARDS} H100")
        memory = await _resident(nodes, folder)
        rows += [
            Row(
                name=f"controller, {nodes} nodes x {CARDS} H100: memory a node",
                unit="KB",
                samples=[(memory.resident - smallest.resident) * 1024 / nodes],
                baseline_name="its decoded slices",
                baseline=[decoded],
                goal=NODE_GOAL,
            ),
            Row(
                name="  peak, while it lists",
                unit="MB",
                samples=[memory.peak],
                baseline_name="in the end",
                baseline=[memory.resident],
                goal="ratio 2",
            ),
        ]
    return rows


async def _resident(nodes: int, folder: Path) -> ProcessMemory:
    async with counting_controller(nodes, CARDS, folder) as pid:
        return read_memory(pid)


def _measure_decoded(folder: Path) -> float:
    """Return the memory of the decoded slices of a node, in KiB."""
    peaks = []
    for nodes in (1, DECODED):
        with serving_large_cluster(nodes, CARDS, folder / "kubeconfig") as url:
            peaks.append(_run("-c", _BARE, url, "keep").peak_mib)
    few, many = peaks
    return (many - few) * 1024 / (DECODED - 1)


def _measure_commands(folder: Path) -> Iterator[Row]:
    kubeconfig = folder / "kubeconfig"
    for shuffled, order in ORDERS.items():
        with serving_large_cluster(DIAGNOSED, CARDS, kubeconfig, shuffled=shuffled) as url:
            bare = _run("-c", _BARE, url)
            for name, arguments in COMMANDS.items():
                title = f"kerf {name}, {DIAGNOSED} nodes x {CARDS} H100{order}"
                say(title)
                usage = _run("-m", "kerf_dra.driver.cli", *arguments, "--kubeconfig", str(kubeconfig))
                yield Row(
                    name=title,
                    unit="s",
                    samples=[usage.seconds],
                    baseline_name=BARE,
                    baseline=[bare.seconds],
                    goal="ratio 10",
                )
                yield Row(
                    name="  its memory",
                    unit="MB",
                    samples=[usage.peak_mib],
                    baseline_name=BARE,
                    baseline=[bare.peak_mib],
                    goal="<= 400 MB",
                )


def _run(*arguments: str) -> Usage:
    """Run Python until it ends, however that is: ``kerf why`` ends with 1 for a pod that fits nowhere."""
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    with process:
        assert process.stderr is not None
        errors = process.stderr.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode in (0, 1), errors.decode()
    assert b"Traceback" not in errors, errors.decode()
    return Usage(seconds=used.ru_utime + used.ru_stime, peak_mib=used.ru_maxrss / 1024)
