"""What the memory of a kubelet plugin is before it does anything: its libraries, in the order of their imports.

Each row is what the import of one more library adds to a Python process, with all that it imports itself and that none
before it has. The last rows are Kerf's own modules.
"""

import os
import subprocess
import sys
from typing import Final

import anyio.to_thread
import msgspec

from tests.bench.measurement import Row

_TIMES: Final = 5
_IMPORTS: Final = (
    "asyncio",
    "sqlite3",
    "msgspec",
    "anyio",
    "yaml",
    "prometheus_client",
    "aiohttp",
    "grpc.aio",
    "click",
    "kerf_dra.driver.cli.daemons.kubelet_plugin",
    "kerf_dra.driver.kubeletplugin.app",
    "kerf_dra.driver.kubeletplugin.backends.nvidia.backend",
)
_SCRIPT: Final = """
import sys
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 2**20
sizes = [resident()]
for name in sys.argv[1:]:
    __import__(name)
    sizes.append(resident())
print("[" + ", ".join(map(str, sizes)) + "]")
"""


async def measure() -> list[Row]:
    runs = [await anyio.to_thread.run_sync(_import_all) for _ in range(_TIMES)]
    rows = [Row(name="memory: bare Python", unit="MB", samples=[sizes[0] for sizes in runs])]
    for index, name in enumerate(_IMPORTS):
        samples = [sizes[index + 1] - sizes[index] for sizes in runs]
        rows.append(Row(name=f"  {name.removeprefix('kerf_dra.driver.')}", unit="MB", samples=samples))
    return [*rows, Row(name="  all of it", unit="MB", samples=[sizes[-1] for sizes in runs])]


def _import_all() -> list[float]:
    """Return the megabytes of a process before the imports and after each."""
    command = [sys.executable, "-c", _SCRIPT, *_IMPORTS]
    done = subprocess.run(command, capture_output=True, check=True, env={**os.environ, "PYTHONHASHSEED": "0"})
    return msgspec.json.decode(done.stdout, type=list[float])
