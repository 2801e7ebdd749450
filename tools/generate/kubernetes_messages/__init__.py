"""Generates the protobuf messages of the built-in kinds that the embedded API server serves, from Go's types.

A Go program prints the tags of the types in ``k8s.io/api`` (``main.go``; ``go.mod`` beside it locks the version).
Without the Go toolchain the file stays as it is. A test of ``make oracle`` generates it again and compares.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kerf_dra.driver.local.apiserver.kinds.served_kinds import builtin_types
from kerf_dra.driver.local.apiserver.settings import ApiServerSettings
from tools.generate.page_block import ROOT

__all__ = ["MESSAGES", "ROOT", "generate"]

MESSAGES: Final = Path("driver/local/apiserver/_generated/kubernetes_messages.json")
_META_KINDS: Final = ("/v1/DeleteOptions", "/v1/Status", "/v1/WatchEvent")
_SUBRESOURCE_KINDS: Final = ("/v1/Binding", "policy/v1/Eviction")
_BUILD_TIMEOUT_S: Final = 900
"""For a build without caches on a slow machine, downloads included."""


def generate(target: Path) -> list[Path]:
    """Write the file below ``target`` and return its path relative to it; none without the Go toolchain."""
    go = shutil.which("go")
    if go is None:
        print(f"{MESSAGES} stays as it is: it needs the Go toolchain", file=sys.stderr)
        return []
    command = [go, "run", "-mod=readonly", ".", *_META_KINDS, *_SUBRESOURCE_KINDS, *sorted(_served_kinds())]
    program = Path(__file__).parent
    ended = subprocess.run(command, cwd=program, check=True, stdout=subprocess.PIPE, timeout=_BUILD_TIMEOUT_S)
    described = json.loads(ended.stdout)
    path = target / MESSAGES
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_format(described["kinds"], described["messages"]))
    return [MESSAGES]


def _served_kinds() -> Iterator[str]:
    for type_ in builtin_types(ApiServerSettings()):
        for version in type_.versions:
            yield f"{type_.group}/{version.name}/{type_.kind}"
            yield f"{type_.group}/{version.name}/{type_.list_kind}"


def _format(kinds: dict[str, str], messages: dict[str, object]) -> str:
    """Return JSON with a line for each kind and message, so that a change can be read."""
    sections = (f'"{name}": {{\n{_rows(rows)}\n}}' for name, rows in (("kinds", kinds), ("messages", messages)))
    return "{" + ",\n".join(sections) + "}\n"


def _rows(rows: dict[str, str] | dict[str, object]) -> str:
    return ",\n".join(f"{json.dumps(name)}: {json.dumps(rows[name])}" for name in sorted(rows))
