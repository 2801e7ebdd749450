"""``python -m tools.demo_metrics``: records the metrics of Kerf's programs during ``kerf demo --keep``.

The file, ``tools/generate/demo_metrics.json``, has each series that the dashboard of ``deploy/monitoring`` wants, with
the samples at which its value changed; ``tools/generate/dashboard.py`` draws it. It is recorded again by hand, when the
dashboard asks for more or the demo does something else. Needs Linux: programs choose their ports themselves, and which
these are is read from ``/proc``.
"""

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from tools.generate.promql import parse
from tools.generate.recorded_metrics import DASHBOARD, RECORDED
from tools.sources import ROOT

_INTERVAL_S: Final = 1.0
"""Seconds between samples: cuts of the demo take tenths of a second, its steps some seconds."""
_STAY_S: Final = 15.0
"""Seconds for which the examples stay as they are at the end, so that the dashboard shows them."""
_LIMIT_S: Final = 300.0
"""Seconds that the demo may take."""
_KEPT: Final = b"stays up until Ctrl-C"
_LISTENS: Final = "0A"
"""The state of a listening socket in ``/proc/net/tcp`` (the kernel's TCP_LISTEN)."""

_Series = tuple[str, tuple[tuple[str, str], ...]]


def main() -> int:
    wanted = _list_wanted()
    samples = []
    log = ROOT / "build" / "demo.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("wb") as out:
        command = [sys.executable, "-m", "kerf_dra.driver.cli", "demo", "--keep", "--speed", "slow"]
        demo = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        begin, end = time.monotonic(), None
        while demo.poll() is None and time.monotonic() - begin < _LIMIT_S and (end is None or time.monotonic() < end):
            samples.append({key: value for pid in _list_programs(demo.pid) for key, value in _scrape(pid, wanted)})
            if end is None and _KEPT in log.read_bytes():
                end = time.monotonic() + _STAY_S
            time.sleep(max(0.0, begin + len(samples) * _INTERVAL_S - time.monotonic()))
        if demo.poll() is None:
            demo.send_signal(signal.SIGINT)
        demo.wait()
    first = next(number for number, sample in enumerate(samples) if sample)
    RECORDED.write_text(_encode(samples[first:]), encoding="utf-8")
    print(f"{RECORDED}: {len(samples) - first} samples")
    return 0 if end is not None else 1


def _list_wanted() -> frozenset[str]:
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    expressions = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    return frozenset(name for text in expressions for name in parse(text).metrics)


def _list_programs(parent: int) -> list[int]:
    """The children of the demo: Kerf's controller and plugins."""
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def _scrape(pid: int, wanted: frozenset[str]) -> Iterator[tuple[_Series, float]]:
    """Yield the series that one program serves; none while it starts or ends."""
    for port in _list_ports(pid):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=1) as answer:
                text = answer.read(1 << 22).decode()
        except (OSError, ValueError):
            continue
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name in wanted:
                    labels = {**sample.labels, "instance": str(pid)}
                    yield (sample.name, tuple(sorted(labels.items()))), sample.value


def _list_ports(pid: int) -> list[int]:
    """The TCP ports at which a process listens."""
    try:
        links = [str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()]
        rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    except OSError:  # it has ended
        return []
    sockets = {found[1] for link in links if (found := re.fullmatch(r"socket:\[(\d+)\]", link))}
    return [int(row[1].partition(":")[2], 16) for row in rows if row[3] == _LISTENS and row[9] in sockets]


def _encode(samples: list[dict[_Series, float]]) -> str:
    """Return the file: one line for each series, with the number of a sample and the value from it on; null: none."""
    instances = {pid: f"program-{number}" for number, pid in enumerate(dict.fromkeys(_list_instances(samples)))}
    lines = []
    for name, labels in sorted({key for sample in samples for key in sample}):
        values = [sample.get((name, labels)) for sample in samples]
        changes = [
            [number, value] for number, value in enumerate(values) if value != (values[number - 1] if number else None)
        ]
        named = {key: instances[value] if key == "instance" else value for key, value in labels}
        lines.append(json.dumps({"name": name, "labels": named, "changes": changes}))
    head = f'{{"interval_s": {_INTERVAL_S}, "samples": {len(samples)}, "series": [\n'
    return head + ",\n".join(lines) + "\n]}\n"


def _list_instances(samples: list[dict[_Series, float]]) -> Iterator[str]:
    yield from (dict(labels)["instance"] for sample in samples for _, labels in sorted(sample))


if __name__ == "__main__":
    sys.exit(main())
