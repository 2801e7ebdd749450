"""CPU time of reading a thousand CDI spec files and injecting eight devices, compared with the Go library (1.1.1).

``python -m tests.bench.cdi`` is the process that is measured: it answers as ``tests/oracle/cdi/main.go`` does.
"""

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kerf_dra.cdi import (
    Cache,
    ContainerEdits,
    Device,
    DeviceNode,
    Kind,
    Mount,
    Spec,
    encode_json,
    encode_yaml,
    inject,
)
from tests.bench.measurement import Row

FILES = 1000
DEVICES = 8
ROUNDS = 15
GOAL = "<= 1.5 x"

_MODULE = Path(__file__).parents[1] / "oracle" / "cdi"
_KIND = Kind(vendor="k8s.gpu.example.com", class_name="claim")
_NAMES = [f"{_KIND}=claim-{number * FILES // DEVICES}" for number in range(DEVICES)]

_Timings = Sequence[Mapping[str, float]]


async def measure() -> list[Row]:
    # Not at the top: what is measured should not load it.
    from tests.oracle.judge import Judge, build

    rows: list[Row] = []
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        processes = [stack.enter_context(Judge(Path(sys.executable), ["-m", "tests.bench.cdi"]))]
        if shutil.which("go"):
            processes.append(stack.enter_context(Judge(build(_MODULE, scratch / "go"))))
        for suffix, encode in (("JSON", encode_json), ("YAML", encode_yaml)):
            folder = _written(scratch / suffix, suffix.lower(), encode)
            record = {"op": "time", "arg": [str(folder)], "devices": _NAMES}
            turns = [[process.ask(record) for process in processes] for _ in range(ROUNDS)]
            rows += _rows(suffix, *zip(*turns, strict=True))
        peaks = [[_peak_megabytes(process.pid)] for process in processes]
        rows.append(_row("peak memory", "MB", "", *peaks))
    return rows


def _written(folder: Path, suffix: str, encode: Callable[[Spec], bytes]) -> Path:
    folder.mkdir()
    for number in range(FILES):
        (folder / f"claim-{number}.{suffix}").write_bytes(encode(_claim(number)))
    return folder


def _claim(number: int) -> Spec:
    """Build a spec as a driver writes it for one claim: 2 variables, 4 nodes, 2 mounts."""
    edits = ContainerEdits(
        env=(f"ACME_VISIBLE={number}", "ACME_MODE=shared"),
        device_nodes=tuple(
            DeviceNode(path=f"/dev/acme{number}-{minor}", type="c", major=195, minor=minor, permissions="rw")
            for minor in range(4)
        ),
        mounts=tuple(
            Mount(host_path=path, container_path=path, options=("ro", "nosuid", "bind"))
            for path in ("/usr/lib/acme/libacme.so.1", "/usr/bin/acme-smi")
        ),
    )
    return Spec(kind=_KIND, devices=(Device(name=f"claim-{number}", container_edits=edits),))


def _rows(suffix: str, *timings: _Timings) -> list[Row]:
    def milliseconds(*keys: str) -> list[list[float]]:
        return [[1000 * sum(timing[key] for key in keys) for timing in one] for one in timings]

    return [
        _row(
            f"{FILES} {suffix} files read, {DEVICES} devices injected",
            "ms CPU",
            GOAL,
            *milliseconds("read_s", "inject_s"),
        ),
        _row(f"{DEVICES} devices injected", "ms CPU", "", *milliseconds("inject_s")),
        _row(f"{FILES} {suffix} files unchanged, refreshed", "ms CPU", GOAL, *milliseconds("refresh_s")),
    ]


def _row(name: str, unit: str, goal: str, ours: Sequence[float], theirs: Sequence[float] = ()) -> Row:
    return Row(name=f"cdi: {name}", unit=unit, samples=ours, baseline_name="Go", baseline=theirs, goal=goal)


def _peak_megabytes(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def _timed(record: Mapping[str, Any]) -> Mapping[str, float]:
    begin = time.process_time()
    cache = Cache([Path(folder) for folder in record["arg"]])
    read = time.process_time()
    inject(cache, {"ociVersion": "1.2.0"}, record["devices"])
    injected = time.process_time()
    cache.refresh()
    refreshed = time.process_time()
    return {"read_s": read - begin, "inject_s": injected - read, "refresh_s": refreshed - injected}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(_timed(json.loads(line))), flush=True)
