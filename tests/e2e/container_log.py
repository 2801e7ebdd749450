"""The reports that test containers write to their logs: environment, device nodes, files of their devices."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.e2e.pods import END, FILE

_LINE: Final = re.compile(r"^\S+ (?:stdout|stderr) [FP] ?(.*)$")
"""The CRI's log format: time, stream, full or partial, text."""
_VARIABLE: Final = re.compile(r"^([A-Za-z_][A-Za-z0-9_]*)=(.*)$")
_NODE: Final = re.compile(r"^c\S+ +\d+ +\S+ +\S+ +(\d+), *(\d+) .* (\S+)$")
"""A character device in the output of ``ls -l``: major, minor, name."""
_DIRECTORY: Final = re.compile(r"^(/dev\S*):$")


@dataclass(frozen=True, slots=True)
class ContainerReport:
    """What a container sees after one start."""

    environment: Mapping[str, str]
    device_nodes: Mapping[str, tuple[int, int]]
    """The major and minor number of each device node, by path."""
    files: Mapping[str, str]
    """The content, by path, of the device metadata files (KEP-5304), and of what an MPS daemon shares with clients."""

    @property
    def kerf_devices(self) -> Mapping[str, str]:
        """The UUID of each device, such as ``gpu-0-1g-10gb-at-0``, from the variables that the simulated backend
        sets."""
        prefix = "KERF_DEVICE_"
        return {
            name.removeprefix(prefix).lower().replace("_", "-"): value
            for name, value in self.environment.items()
            if name.startswith(prefix)
        }

    @property
    def card_nodes(self) -> frozenset[str]:
        """The device nodes of cards."""
        return frozenset(path for path in self.device_nodes if path.startswith(("/dev/nvidia", "/dev/dfl")))


def read(log: Path) -> ContainerReport | None:
    """Return the report of the last start that is complete in the log; None without one."""
    try:
        text = log.read_text()
    except FileNotFoundError:
        return None
    lines = [match[1] for line in text.splitlines() if (match := _LINE.match(line))]
    ends = [number for number, line in enumerate(lines) if line == END]
    if not ends:
        return None
    begin = ends[-2] + 1 if len(ends) > 1 else 0
    return _parse(lines[begin : ends[-1]])


def _parse(lines: list[str]) -> ContainerReport:
    environment: dict[str, str] = {}
    nodes: dict[str, tuple[int, int]] = {}
    files: dict[str, str] = {}
    directory = ""
    for number, line in enumerate(lines):
        if line.startswith(FILE):
            files = _files(lines[number:])
            break
        if match := _DIRECTORY.match(line):
            directory = match[1]
        elif match := _NODE.match(line):
            nodes[f"{directory}/{match[3]}"] = (int(match[1]), int(match[2]))
        elif not directory and (match := _VARIABLE.match(line)):
            environment[match[1]] = match[2]
    return ContainerReport(environment=environment, device_nodes=nodes, files=files)


def _files(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    path = ""
    for line in lines:
        if line.startswith(FILE):
            path = line.removeprefix(FILE)
            found[path] = ""
        else:
            found[path] += f"{line}\n"
    return found
