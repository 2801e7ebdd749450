"""What a case is tried on: the cards of the guest, or the stand-in for them, each with its own way to have a fault."""

import ctypes
import errno
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kerf_dra.driver.kubeletplugin.backends.dfl import DflBackend
from kerf_dra.driver.kubeletplugin.backends.dfl.config import DflConfig
from kerf_dra.driver.kubeletplugin.backends.dfl.driver_calls import FME_PORT_PR, PORT_PR, SystemCalls
from tests.fakes.dfl import DflMachine
from tests.fakes.dfl.machine import CardLayout, FakeSystemCalls
from tests.fakes.dfl.virtual_functions import SriovCalls, add_sriov
from tests.kernel_dfl.machine import PORTS, GuestCalls, GuestMachine, build_config
from tests.kubeletplugin.backends.dfl.machine import DflMachineUnderTest

CRC_ERROR: Final = 2
INCOMPATIBLE: Final = 4
"""Bits of the register with the errors of a load (Linux ``drivers/fpga/dfl-fme-mgr.c``)."""
_STATUS: Final = {CRC_ERROR: "reconfig CRC error", INCOMPATIBLE: "reconfig incompatible image"}


class Bench(ABC):
    """Two cards with two blank ports each, and the system calls with which they are used."""

    machine: DflMachine
    document: DflConfig
    calls: SystemCalls

    @abstractmethod
    def fail_next_load(self, error: int) -> None:
        """Let the card say that the next load failed, with this error."""

    @abstractmethod
    def hang_next_load(self) -> None:
        """Let the next load never end."""

    @abstractmethod
    def hang_next_reset(self) -> None:
        """Let the next reset of a port not be answered in the time that the driver waits for it."""

    @abstractmethod
    def slow_next_load(self) -> None:
        """Let the next load take five seconds, in which a plugin starts."""

    @abstractmethod
    def log_errors(self, port: int, errors: int) -> None:
        """Let a port log errors."""

    @abstractmethod
    def build_calls(self, at_change: Callable[[], None]) -> SystemCalls:
        """Return system calls with ``at_change`` before and after each that changes a card."""

    def open_backend(self, calls: SystemCalls | None = None) -> DflBackend:
        backend = DflBackend(self.document, calls=calls or self.calls)
        backend.open()
        return backend

    def read_id(self, port: int) -> str:
        """Return the name of the function in a port's slot, or of the error of reading it."""
        try:
            return self.machine.read_afu_id(port)
        except OSError as error:
            return name_error(error)

    def open_fme(self) -> int:
        return self.calls.open(str(self.machine.folder / "dev/dfl-fme.0"), os.O_RDWR | os.O_CLOEXEC)

    def open_port(self, port: int, flags: int = 0) -> int:
        return self.calls.open(str(self.machine.folder / f"dev/dfl-port.{port}"), os.O_RDWR | os.O_CLOEXEC | flags)

    def load(self, bits: bytes, *, port: int = 0, argsz: int = PORT_PR.size, flags: int = 0) -> None:
        """Load the bits of an image into a port of the first card. Raises OSError."""
        memory = ctypes.create_string_buffer(bits, max(1, len(bits)))
        self.call_fme(FME_PORT_PR, PORT_PR.pack(argsz, flags, port, len(bits), ctypes.addressof(memory)))

    def call_fme(self, request: int, argument: bytes | int) -> None:
        """Call the management engine of the first card. Raises OSError."""
        descriptor = self.open_fme()
        try:
            self.calls.ioctl(descriptor, request, argument)
        finally:
            self.calls.close(descriptor)

    def call_port(self, port: int, request: int, argument: bytes | int = 0) -> None:
        """Open a port of the first card, and call it. Raises OSError."""
        descriptor = self.open_port(port)
        try:
            self.calls.ioctl(descriptor, request, argument)
        finally:
            self.calls.close(descriptor)

    def write(self, path: Path, text: str) -> None:
        """Write to an attribute in ``/sys``. Raises OSError."""
        descriptor = self.calls.open(str(path), os.O_WRONLY | os.O_CLOEXEC)
        try:
            self.calls.write(descriptor, text.encode())
        finally:
            self.calls.close(descriptor)


class GuestBench(Bench):
    """The kernel's own driver."""

    def __init__(self, folder: Path) -> None:
        self.machine: GuestMachine = GuestMachine(folder)
        self.machine.restore()
        self.machine.describe(PORTS)
        self.document = build_config(self.machine)
        self.calls = GuestCalls(lambda: None)

    def fail_next_load(self, error: int) -> None:
        self.machine.set_parameter("next_load_errors", str(error))

    def hang_next_load(self) -> None:
        self.machine.set_parameter("silent_loads", "1")

    def hang_next_reset(self) -> None:
        self.machine.set_parameter("silent_resets", "40")  # ticks, four times what the driver waits

    def slow_next_load(self) -> None:
        self.machine.set_parameter("load_ticks", "50000")

    def log_errors(self, port: int, errors: int) -> None:
        values = ["0"] * 4
        values[port] = str(errors)
        self.machine.set_parameter("port_errors", ",".join(values))
        wait_until(lambda: (self.machine.port_folder(port) / "errors/errors").read_text().strip() == f"{errors:#x}")

    def build_calls(self, at_change: Callable[[], None]) -> SystemCalls:
        return GuestCalls(at_change)


class StandInBench(Bench):
    """The stand-in of ``tests/fakes/dfl``."""

    def __init__(self, folder: Path) -> None:
        layouts = (
            CardLayout(pci_address="0000:00:02.0", ports=PORTS),
            CardLayout(pci_address="0000:00:03.0", ports=PORTS),
        )
        self.machine = DflMachine.create(folder, layouts)
        add_sriov(self.machine, PORTS)
        self.machine.leave_undriven()
        self.machine.describe(PORTS)
        self.document = DflMachineUnderTest.describe(self.machine)
        self.calls = SriovCalls(self.machine)

    def fail_next_load(self, error: int) -> None:
        self.machine.add_fault("pr", "errno", f"{errno.EIO} {_STATUS[error]}")

    def hang_next_load(self) -> None:
        self.machine.add_fault("pr", "errno", str(errno.ETIMEDOUT))

    def hang_next_reset(self) -> None:
        self.machine.add_fault("reset", "errno", str(errno.ETIMEDOUT))

    def slow_next_load(self) -> None:
        self.machine.add_fault("pr", "delay", "5000")

    def log_errors(self, port: int, errors: int) -> None:
        (self.machine.port_folder(port) / "errors/errors").write_text(f"{errors:#x}\n")

    def build_calls(self, at_change: Callable[[], None]) -> SystemCalls:
        return FakeSystemCalls(at_change)


def name_error(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, str(error))


def wait_until(condition: Callable[[], bool], attempts: int = 1000) -> None:
    """Wait until a condition holds, which is looked at each millisecond. Raises TimeoutError."""
    pause = threading.Event()
    for _ in range(attempts):
        if condition():
            return
        pause.wait(0.001)
    raise TimeoutError("the condition does not hold after so many looks at it")
