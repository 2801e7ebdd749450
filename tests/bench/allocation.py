"""The allocator beside Kubernetes' own: claims per second in one process each, device by device the same.

The peer is the Go allocator that kube-scheduler uses (``tests/oracle/allocator``): one claim at a time, nodes tried
in order until one fits. It gets so many claims as it can place in a while; ours gets the same ones, and then more. No
two claims are the same, so nothing that is remembered of a claim answers another.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.driver.allocation import Fits
from tests.allocation.builders import decide
from tests.allocation.hard_cases.crossed import CROSSED
from tests.allocation.hard_cases.families import FAMILIES
from tests.allocation.hard_cases.linked import LINKED
from tests.bench import cluster_workload
from tests.bench.measurement import Row, say
from tests.oracle.allocator import MODULE
from tests.oracle.judge import Judge
from tests.oracle.judge import build as build_judge

NODES: Final = 500
MORE: Final = 2000
"""As many as the peer can take: 2 GB of memory, and 9 seconds for one claim where everything is taken."""
MANY: Final = 5000
CLAIMS: Final = 2000
"""Of ours, for a rate that is not that of the first few."""
GO_S: Final = 15.0
"""For the peer, in each scenario: its sample is small where it is slow, and each row says of how many claims it is."""
FEWEST: Final = {NODES: len(cluster_workload.KINDS), MORE: 2}
"""Claims of the peer's at least, however long they take: one of each kind, where that is minutes only two."""
GO_LIMIT_S: Final = 180.0
"""For one claim of the peer's, on a machine that has something else to do, too."""
_FEATURES: Final = (
    *("AdminAccess", "ConsumableCapacity", "DeviceBindingAndStatus", "DeviceTaints"),
    *("FractionalCapacityRange", "PartitionableDevices", "PrioritizedList"),
)
"""Those that are on by default in Kubernetes 1.37, by their names there."""
HARD_MS: Final = 100
"""What a recorded hard case may take (``python -m tests.conformance hard``); half of these families may take that."""
HARDEST_MS: Final = 1000
"""For the families of which no case is recorded: a tenth of what kube-scheduler gives a node."""
GOALS: Final = {"empty": 10, "spread": 10, "fragmented": 100, "packed": 100, "full": 100}


async def measure() -> list[Row]:
    figures = {nodes: _ours(nodes) for nodes in (NODES, MORE, MANY)}
    with tempfile.TemporaryDirectory() as folder:
        binary = build_judge(MODULE, Path(folder) / "oracle")
        rows = [row for nodes in (NODES, MORE) for row in _beside_go(binary, nodes, figures[nodes])]
    rows += [_growth(scenario, figures[NODES], figures[MANY]) for scenario in cluster_workload.SCENARIOS]
    return [*rows, *_size(NODES, figures[NODES], 300, 5), *_size(MANY, figures[MANY], 2000, 40), _hard()]


def _beside_go(binary: Path, nodes: int, ours: JsonObject) -> Iterator[Row]:
    with Judge(binary) as judge:
        judge.ask_encoded(_cluster(nodes))
        for scenario, meaning in cluster_workload.SCENARIOS.items():
            say(f"{nodes} nodes, {scenario}")
            theirs, places = _play(judge, scenario, nodes)
            played = ours["scenarios"][scenario]
            assert played["places"][: len(places)] == places, f"{scenario}: other devices than the peer's"
            seconds = played["seconds"][: len(places)]
            yield Row(
                name=f"{nodes} nodes, {scenario} ({meaning}): {len(places)} claims",
                unit="claims/s",
                samples=[_rate(seconds)],
                baseline_name="Go",
                baseline=[_rate(theirs)],
                goal=f">= {GOALS[scenario]} x",
            )


def _rate(seconds: list[float]) -> float:
    return len(seconds) / sum(seconds)


def _hard() -> Row:
    """Problems on which a plain depth-first search takes exponential time, one of each family."""
    problems = [build(32) for build in {**FAMILIES, **LINKED, **CROSSED}.values()]
    samples: list[float] = []
    for problem in problems:
        begin = time.process_time()
        outcome = decide(problem.slices, *problem.claims)
        samples.append((time.process_time() - begin) * 1000)
        assert isinstance(outcome, Fits) == problem.fits
    return Row(
        name=f"hard problems of size 32: each of {len(problems)} families",
        unit="ms",
        samples=samples,
        goal=f"median <= {HARD_MS} ms, p99 <= {HARDEST_MS} ms",
    )


def _ours(nodes: int) -> JsonObject:
    """Measure Kerf's allocator in a process of its own, whose memory holds nothing but the cluster."""
    command = [sys.executable, "-m", "tests.bench.cluster_workload", str(nodes), str(CLAIMS)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return cast("JsonObject", json.loads(done.stdout))


def _cluster(nodes: int) -> Iterator[bytes]:
    names = [cluster_workload.node_name(number) for number in range(nodes)]
    features = dict.fromkeys(_FEATURES, True)
    record: JsonObject = {
        "op": "cluster",
        "features": features,
        "classes": [KINDS.device_classes.encode(each) for each in cluster_workload.CLASSES.values()],
        "nodes": names,
    }
    yield json.dumps(record).encode().removesuffix(b"}") + b', "slices": ['
    for number, encoded in enumerate(cluster_workload.slices(nodes)):
        yield b", " + encoded if number else encoded
    yield b"]}"


def _play(judge: Judge, scenario: str, nodes: int) -> tuple[list[float], list[list[str] | None]]:
    devices = [
        {"driver": cluster_workload.DRIVER, "pool": f"{node}/gpu", "device": device}
        for node, held in cluster_workload.taken(scenario, nodes)
        for device in held
    ]
    judge.ask({"op": "taken", "allocated": {"devices": devices}})
    _place(judge, cluster_workload.nothing())  # compiles the class; ours has looked at every node before, too
    seconds: list[float] = []
    places: list[list[str] | None] = []
    for asked in cluster_workload.claims(scenario, CLAIMS):
        answer = _place(judge, asked)
        seconds.append(answer["seconds"])
        results = answer["results"]
        given = [each["device"] for each in results[0]["devices"]["results"]] if results else []
        places.append([answer["node"], *given] if results else None)
        if sum(seconds) > GO_S and len(places) >= FEWEST[nodes]:
            break
    return seconds, places


def _place(judge: Judge, asked: ResourceClaim) -> Any:
    claim = KINDS.resource_claims.encode(asked)
    claim["spec"]["devices"]["requests"][0]["exactly"]["allocationMode"] = "ExactCount"  # else the API server's default
    answer = judge.ask({"op": "place", "claims": [claim], "limit": GO_LIMIT_S})
    assert answer["error"] is None, answer
    return answer


def _growth(scenario: str, few: JsonObject, many: JsonObject) -> Row:
    return Row(
        name=f"{MANY} nodes, {scenario}: {CLAIMS} claims",
        unit="claims/s",
        samples=[_rate(many["scenarios"][scenario]["seconds"])],
        baseline_name=f"{NODES} nodes",
        baseline=[_rate(few["scenarios"][scenario]["seconds"])],
        goal="> 0.5 x",
    )


def _size(nodes: int, figures: JsonObject, most_mb: float, most_s: float) -> list[Row]:
    return [
        Row(
            name=f"{nodes} nodes: memory of the index",
            unit="MB",
            samples=[figures["memory_mb"]],
            goal=f"<= {most_mb:.0f} MB",
        ),
        Row(
            name=f"{nodes} nodes: from decoded slices to the index",
            unit="s",
            samples=[figures["index_s"]],
            goal=f"<= {most_s:.0f} s",
        ),
        Row(name=f"{nodes} nodes: one slice changes", unit="ms", samples=figures["slice_ms"], goal="<= 1 ms"),
        Row(name=f"{nodes} nodes: one claim comes", unit="ms", samples=figures["claim_ms"], goal="<= 1 ms"),
    ]
