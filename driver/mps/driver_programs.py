"""How programs of NVIDIA's driver are run, such as ``nvidia-smi``: from the driver's root, with its libraries.

A driver container's root, or the host's, has a whole system: a program runs in it as after chroot(2), because its
libraries and those of the container that Kerf runs in need not fit one another. A root that has the driver's files only
(Google Kubernetes Engine) has no dynamic linker: its programs run with Kerf's own, and find the driver's libraries by
``LD_LIBRARY_PATH``. The same distinction is made by NVIDIA's DRA driver (``templates/mps-control-daemon.tmpl.yaml``).
"""

import os
import selectors
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kerf_dra.api.errors import TransientError
from kerf_dra.api.model.printable_text import to_one_line

_FOLDERS: Final = ("usr/bin", "bin", "usr/local/bin")
_LIBRARIES: Final = ("lib64", "usr/lib64", "lib", "usr/lib")
_LINKERS: Final = ("lib64/ld-linux-x86-64.so.2", "lib/ld-linux-aarch64.so.1")
"""The dynamic linkers of the architectures of NVIDIA's driver (System V ABI)."""
_MAX_OUTPUT: Final = 2**16
"""Bytes of output that are read: the list of a daemon's servers, or the table of a driver, has a few thousand."""
_LONGEST: Final = 300
"""Characters of a program's output that an error quotes."""


class ProgramFailedError(TransientError):
    """A program of the driver is not there, fails, or takes too long; the message has what it said.

    ``exit_code`` is None where it has not ended by itself; ``is_late``: it was killed at its time limit.
    """

    def __init__(self, message: str, *, exit_code: int | None = None, is_late: bool = False) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.is_late = is_late


@dataclass(frozen=True, slots=True)
class DriverProgram:
    """A program of the driver, which the administrator has installed; no shell is involved."""

    root: Path
    name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables for the program beside those of this process."""

    @property
    def is_there(self) -> bool:
        return self._find() is not None

    def run(self, *arguments: str, commands: str = "", timeout_s: float) -> str:
        """Run the program to its end with ``commands`` as its input, and return what it prints.

        Raises ProgramFailedError.
        """
        subject = " ".join((self.name, *arguments, *commands.split()))
        try:
            code, output, errors = self._run([*self._command(), *arguments], commands, timeout_s)
        except subprocess.TimeoutExpired as error:
            raise ProgramFailedError(f"{subject}: no end after {timeout_s:g} s", is_late=True) from error
        except OSError as error:
            raise ProgramFailedError(f"{subject}: {error.strerror}") from error
        if max(len(output), len(errors)) > _MAX_OUTPUT:
            raise ProgramFailedError(f"{subject}: more than {_MAX_OUTPUT} bytes of output")
        printed = output.decode(errors="replace")
        if code:
            said = to_one_line(printed + errors.decode(errors="replace"))
            raise ProgramFailedError(f"{subject}: exit code {code}: {said:.{_LONGEST}}", exit_code=code)
        return printed

    def _run(self, command: list[str], commands: str, timeout_s: float) -> tuple[int, bytes, bytes]:
        """Return the exit code and both outputs. Raises OSError and subprocess.TimeoutExpired."""
        pipe = subprocess.PIPE
        with subprocess.Popen(  # noqa: S603  (the driver's own program)
            command, env=self._environment(), stdin=pipe, stdout=pipe, stderr=pipe
        ) as process:
            try:
                output, errors = _exchange(process, commands.encode(), time.monotonic() + timeout_s)
            finally:
                process.kill()  # one that has ended is not touched
        return process.returncode, output, errors

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """Start the program in a session of its own, without input and output. Raises ProgramFailedError."""
        try:
            return subprocess.Popen(  # noqa: S603  (as above)
                [*self._command(), *arguments],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise ProgramFailedError(f"{self.name}: {error.strerror}") from error

    def _command(self) -> list[str]:
        found = self._find()
        if found is None:
            raise ProgramFailedError(f"there is no {self.name} below the driver root {self.root}")
        if self._is_system:
            return ["chroot", str(self.root), f"/{found.relative_to(self.root)}"]
        return [str(found)]

    def _find(self) -> Path | None:
        paths = (self.root / folder / self.name for folder in _FOLDERS)
        # A link that leads to the root's own /usr cannot be followed from here: that it is there is enough.
        return next((path for path in paths if path.is_symlink() or os.access(path, os.X_OK)), None)

    def _environment(self) -> dict[str, str]:
        own = {**os.environ, **self.environment}
        if self._is_system or self.root == Path("/"):
            return own
        folders = [str(self.root / folder) for folder in _FOLDERS]
        libraries = [str(self.root / folder) for folder in _LIBRARIES]
        before = [path] if (path := own.get("LD_LIBRARY_PATH")) else []
        return {
            **own,
            "PATH": ":".join([*folders, own.get("PATH", os.defpath)]),
            "LD_LIBRARY_PATH": ":".join([*libraries, *before]),
        }

    @property
    def _is_system(self) -> bool:
        """Whether the root is another one than this process's and has a system of its own."""
        if self.root == Path("/"):
            return False
        return any((self.root / linker).exists() or (self.root / linker).is_symlink() for linker in _LINKERS)


def _exchange(process: "subprocess.Popen[bytes]", commands: bytes, end: float) -> tuple[bytes, bytes]:
    """Give the program its input and return both outputs; the rest of one that is too large is not read.

    Raises subprocess.TimeoutExpired when the program has not ended at ``end``, by the monotonic clock.
    """
    assert process.stdin is not None
    with suppress(BrokenPipeError), process.stdin as given:
        given.write(commands)  # a pipe holds more than any commands have
    outputs = (bytearray(), bytearray())
    with selectors.DefaultSelector() as selector:
        for stream, output in zip((process.stdout, process.stderr), outputs, strict=True):
            assert stream is not None
            selector.register(stream, selectors.EVENT_READ, output)
        while selector.get_map() and max(map(len, outputs)) <= _MAX_OUTPUT:
            left = end - time.monotonic()
            ready = selector.select(left) if left > 0 else []
            if not ready:
                raise subprocess.TimeoutExpired(process.args, 0)
            for key, _ in ready:
                chunk = os.read(key.fd, _MAX_OUTPUT)
                key.data.extend(chunk)
                if not chunk:
                    selector.unregister(key.fileobj)
        if not selector.get_map():
            process.wait(max(0.0, end - time.monotonic()))
    return bytes(outputs[0]), bytes(outputs[1])
