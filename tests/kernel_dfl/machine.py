"""The guest with its two DFL cards, as the tests of the backend see a machine.

The files below ``/sys`` and ``/dev`` are the kernel's. What befalls a card goes to the parameters of the module that
plays it (``card/kerf_dfl_card.c``).
"""

import ctypes
import errno
import os
import subprocess
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kerf_dra.driver.kubeletplugin.backends.dfl import DflBackend
from kerf_dra.driver.kubeletplugin.backends.dfl.config import DflConfig
from kerf_dra.driver.kubeletplugin.backends.dfl.driver_calls import FME_PORT_PR, PORT_PR, LinuxSystemCalls
from tests.fakes.dfl.machine import AES_ID, BLANK_ID, FFT_ID, INTERFACE, DflMachine, build_bits
from tests.kubeletplugin.backends.dfl.machine import DflMachineUnderTest

ROOT: Final = Path("/")
CARDS: Final = 2
PORTS: Final = 2
"""Of each card."""
_CARD: Final = Path("/sys/module/kerf_dfl_card/parameters")
_DRIVER: Final = Path("/sys/bus/pci/drivers/dfl-pci")
_FUNCTIONS: Final = (AES_ID, FFT_ID, BLANK_ID)


def list_card_parameters() -> str:
    """Return the parameters with which the guest loads the module of the cards."""
    halves = [divmod(uuid.UUID(one).int, 1 << 64) for one in _FUNCTIONS]
    high, low = divmod(uuid.UUID(INTERFACE).int, 1 << 64)
    return " ".join(
        (
            "ids_high=" + ",".join(f"{one:#x}" for one, _ in halves),
            "ids_low=" + ",".join(f"{one:#x}" for _, one in halves),
            f"interface_high={high:#x} interface_low={low:#x}",
            f"first={_FUNCTIONS.index(BLANK_ID)}",
        )
    )


class GuestMachine(DflMachine):
    """The guest; ``folder`` has the descriptions and the images."""

    def __init__(self, folder: Path) -> None:
        super().__init__(ROOT)
        self.work = folder
        self.descriptions = folder / "descriptions"
        self.images = folder / "images"
        for one in (self.descriptions, self.images):
            one.mkdir(parents=True, exist_ok=True)
        self._users: dict[int, subprocess.Popen[bytes]] = {}
        self._away: dict[int, str] = {}

    def restore(self) -> None:
        """End all users, bring cards back, and make all ports blank, without errors and out of reset."""
        for port in [*self._users]:
            self.stop_using(port)
        for card in [*self._away]:
            self.bring_back(card)
        self.set_parameter("nonfatal_errors", "0,0")
        for name in ("next_load_errors", "silent_loads", "silent_resets"):
            self.set_parameter(name, "0")
        self.set_parameter("load_ticks", "2")
        for port in range(CARDS * PORTS):
            if self.try_to_read_afu_id(port) != BLANK_ID:
                self.bind_again(port // PORTS)
                self.set_afu_id(port, BLANK_ID)

    def set_parameter(self, name: str, value: str) -> None:
        (_CARD / name).write_text(value)

    def read_parameter(self, name: str) -> int:
        return int((_CARD / name).read_text())

    def try_to_read_afu_id(self, port: int) -> str:
        """Return the id of the port's function, or the name of the error of reading it."""
        try:
            return self.read_afu_id(port)
        except OSError as error:
            return errno.errorcode[error.errno or 0]

    def set_afu_id(self, port: int, afu_id: str) -> None:
        bits = ctypes.create_string_buffer(build_bits(afu_id), len(build_bits(afu_id)))
        request = PORT_PR.pack(PORT_PR.size, 0, port % PORTS, len(bits), ctypes.addressof(bits))
        calls = LinuxSystemCalls()
        descriptor = calls.open(f"/dev/dfl-fme.{port // PORTS}", os.O_RDWR | os.O_CLOEXEC)
        try:
            calls.ioctl(descriptor, FME_PORT_PR, request)
        finally:
            calls.close(descriptor)

    def use(self, port: int) -> None:
        with Path(f"/dev/dfl-port.{port}").open("rb+", buffering=0) as node:
            self._users[port] = subprocess.Popen(["sleep", "600"], pass_fds=(node.fileno(),))

    def stop_using(self, port: int) -> None:
        user = self._users.pop(port, None)
        if user is not None:
            user.kill()
            user.wait()

    def take_away(self, card: int) -> None:
        """Take the driver from the card: its regions and device nodes vanish."""
        self._away[card] = self._find_address(card)
        (_DRIVER / "unbind").write_text(self._away[card])

    def bring_back(self, card: int) -> None:
        (_DRIVER / "bind").write_text(self._away.pop(card))

    def bind_again(self, card: int) -> None:
        """Take the driver from the card, and give it back: the driver forgets what it knows of the card."""
        self.take_away(card)
        self.bring_back(card)

    def _find_address(self, card: int) -> str:
        return sorted(path.name for path in _DRIVER.glob("0000:*"))[card]


class GuestUnderTest(DflMachineUnderTest):
    """The guest's cards for the contract of backends."""

    def __init__(self, folder: Path, *, now: Callable[[], float] = time.monotonic) -> None:
        self.hardware: GuestMachine = GuestMachine(folder)
        self.hardware.restore()
        self.hardware.describe(PORTS)
        self.document = build_config(self.hardware)
        self._now = now
        self._points_left: int | None = None

    def open_backend(self) -> DflBackend:
        return DflBackend(self.document, calls=GuestCalls(self._pass_point), now=self._now)

    def make_unhealthy(self, card_uuid: str) -> None:
        errors = ["0"] * CARDS
        errors[self.fme(card_uuid)] = "4"
        self.hardware.set_parameter("nonfatal_errors", ",".join(errors))


class GuestCalls(LinuxSystemCalls):
    """The system calls, with ``at_change`` before and after each that changes a card."""

    def __init__(self, at_change: Callable[[], None]) -> None:
        self._at_change = at_change

    def ioctl(self, descriptor: int, request: int, argument: bytes | int) -> None:
        self._at_change()
        super().ioctl(descriptor, request, argument)
        self._at_change()

    def write(self, descriptor: int, data: bytes) -> None:
        self._at_change()
        super().write(descriptor, data)
        self._at_change()


def build_config(machine: GuestMachine) -> DflConfig:
    return DflConfig(
        description_folder=str(machine.descriptions),
        image_folder=str(machine.images),
        system_root=str(ROOT),
        health_poll_seconds=0.01,
        cache_folder=str(machine.work / "cache"),
    )
