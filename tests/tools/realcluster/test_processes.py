"""Which processes count as running."""

import sys
from pathlib import Path

from tests.e2e.wait import eventually
from tools.realcluster.processes import Processes

# The main thread ends, another one keeps the port until it may end, too.
SCRIPT = """
import ctypes, socket, sys, threading
from pathlib import Path
may_end, port = Path(sys.argv[1]), socket.create_server(("127.0.0.1", 0))
def stay():
    while not may_end.exists():
        threading.Event().wait(0.01)
    port.close()
threading.Thread(target=stay).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def test_a_program_runs_as_long_as_one_of_its_threads(tmp_path: Path) -> None:
    """An API server that was killed still had its port for a moment, and the next one could not have it."""
    processes = Processes(tmp_path / "processes", tmp_path / "logs")
    processes.start("program", [sys.executable, "-c", SCRIPT, str(tmp_path / "end")])
    pid = processes.pid("program")

    async def is_left() -> bool:
        return state_of(pid) == "Z"

    async def has_ended() -> bool:
        return not processes.is_running("program")

    await eventually("the main thread has ended", is_left)
    assert processes.is_running("program")
    (tmp_path / "end").touch()
    await eventually("the program has ended", has_ended)
    await processes.kill("program")
    assert processes.names == []
