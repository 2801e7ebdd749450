"""A stand-in for ``nvidia-cuda-mps-control``: the control daemon of NVIDIA's Multi-Process Service, and its client.

It is written into the driver's root as a program (``driver_tree``), so it imports the standard library only. ``-d``
starts the daemon in the background, ``-f`` in the foreground; without them commands are read from the standard input
and sent to the daemon of ``CUDA_MPS_PIPE_DIRECTORY``. It keeps what it gets and starts no servers of its own:
nothing computes.
"""

import os
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

_PIPES: Final = "/tmp/nvidia-mps"  # noqa: S108  (NVIDIA's default)
_CONTROL: Final = "control"
_PID: Final = "nvidia-cuda-mps-control.pid"
_LONGEST: Final = 65536
"""Bytes of a command and of its answer."""
_FIRST_SERVER: Final = 1000
"""The process id of the first server, which is none: there is no such process."""


class Daemon:
    """What the control daemon has got."""

    def __init__(self) -> None:
        self.is_over = False
        self._thread_percentage = 100.0
        self._memory_limits: dict[str, str] = {}
        self._servers: list[int] = []
        self._of_server: dict[int, float] = {}
        """The thread percentage of each server: that of the daemon when it began, unless it was set."""
        self._memory_of_server: dict[tuple[int, str], str] = {}

    def answer(self, line: str) -> str:
        """Carry out one command, and return what it prints."""
        command, *arguments = line.split() or [""]
        known: Mapping[str, Callable[..., str]] = {
            "get_server_list": lambda: "".join(f"{server}\n" for server in self._servers),
            "start_server": self._start_server,
            "shutdown_server": self._shut_down_server,
            "get_default_active_thread_percentage": lambda: f"{self._thread_percentage:.1f}\n",
            "set_default_active_thread_percentage": self._set_thread_percentage,
            "set_active_thread_percentage": self._set_server_thread_percentage,
            "get_active_thread_percentage": lambda server: f"{self._of_server[int(server)]:.1f}\n",
            "get_default_device_pinned_mem_limit": lambda device: f"{self._memory_limits.get(device, '0')}\n",
            "set_default_device_pinned_mem_limit": self._set_memory_limit,
            "set_device_pinned_mem_limit": self._set_server_memory_limit,
            "get_device_pinned_mem_limit": lambda server, device: f"{self._memory_of_server[int(server), device]}\n",
            "quit": self._quit,
        }
        try:
            return known[command](*arguments)
        except (KeyError, TypeError, ValueError):
            return f"Unknown or malformed command: {line}\n"

    def _start_server(self, option: str, user: str) -> str:
        if option != "-uid":
            raise ValueError(option)
        server = _FIRST_SERVER + int(user)
        self._servers.append(server)
        self._of_server[server] = self._thread_percentage
        self._memory_of_server.update({(server, device): limit for device, limit in self._memory_limits.items()})
        return ""

    def _shut_down_server(self, server: str, *_: str) -> str:
        self._servers.remove(int(server))
        return ""

    def _set_thread_percentage(self, percentage: str) -> str:
        self._thread_percentage = _to_percentage(percentage)
        return f"{self._thread_percentage:.1f}\n"

    def _set_server_thread_percentage(self, server: str, percentage: str) -> str:
        if int(server) not in self._servers:
            raise ValueError(server)
        self._of_server[int(server)] = _to_percentage(percentage)
        return f"{self._of_server[int(server)]:.1f}\n"

    def _set_server_memory_limit(self, server: str, device: str, limit: str) -> str:
        if int(server) not in self._servers:
            raise ValueError(server)
        self._memory_of_server[int(server), device] = limit
        return ""

    def _set_memory_limit(self, device: str, limit: str) -> str:
        self._memory_limits[device] = limit
        return ""

    def _quit(self, *_: str) -> str:
        self.is_over = True
        return ""


def _to_percentage(text: str) -> float:
    wanted = float(text)
    if not 0 < wanted <= 100:
        raise ValueError(text)
    return wanted


def main(arguments: list[str], environment: Mapping[str, str] = os.environ) -> int:
    """Run the daemon, or send commands to it."""
    folder = Path(environment.get("CUDA_MPS_PIPE_DIRECTORY", _PIPES))
    if arguments == ["-d"]:
        return _start(folder)
    if arguments == ["-f"]:
        return _serve(folder, lambda: None)
    if arguments:
        print("usage: nvidia-cuda-mps-control [-d | -f]", file=sys.stderr)
        return 1
    return _send(folder)


def _start(folder: Path) -> int:
    """Run the daemon in another process, and return once it serves."""
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        return 0 if os.read(reader, 1) else 1
    os.close(reader)
    os.setsid()

    def let_go() -> None:
        """Leave the streams of the process that has started the daemon, and let the first process end."""
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(null, stream)
        os.write(writer, b"1")

    os._exit(_serve(folder, let_go))


def _serve(folder: Path, tell_ready: Callable[[], object]) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)  # the path of a socket is short: it is bound by its name
    with socket.socket(socket.AF_UNIX) as listener:
        if _is_served():
            print("An instance of this daemon is already running", file=sys.stderr)
            return 1
        Path(_CONTROL).unlink(missing_ok=True)
        listener.bind(_CONTROL)
        listener.listen()
        Path(_PID).write_text(f"{os.getpid()}\n")
        tell_ready()
        daemon = Daemon()
        while True:
            connection, _ = listener.accept()
            with connection, suppress(OSError):  # a client may go at any moment
                answer = daemon.answer(connection.recv(_LONGEST).decode(errors="replace"))
                if daemon.is_over:  # before its client ends
                    for name in (_CONTROL, _PID):
                        Path(name).unlink(missing_ok=True)
                connection.sendall(answer.encode())
            if daemon.is_over:
                return 0


def _is_served() -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(_CONTROL) == 0 and probe.send(b"get_server_list") > 0


def _send(folder: Path) -> int:
    for line in map(str.strip, sys.stdin):
        try:
            os.chdir(folder)
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(_CONTROL)
                connection.sendall(line.encode())
                while answer := connection.recv(_LONGEST):
                    sys.stdout.write(answer.decode())
        except OSError:
            print("Cannot find MPS control daemon process", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
