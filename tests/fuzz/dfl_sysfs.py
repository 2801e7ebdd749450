"""Inputs for what reads a DFL card in ``/sys``: attributes with any bytes in them, and some that are missing."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kerf_dra.driver.kubeletplugin.backends.base import CardAbsentError, HardwareBusyError
from kerf_dra.driver.kubeletplugin.backends.dfl.driver_calls import DflDriver, LinuxSystemCalls
from kerf_dra.driver.kubeletplugin.backends.dfl.health import judge_condition
from kerf_dra.driver.kubeletplugin.backends.dfl.sysfs import CardFiles

_ID: Final = "9c1d7a3051b45f0e8d5e2f64a1c0b701"
_REGION: Final = "sys/devices/pci0000:3a/0000:3b:00.0/fpga_region/region0"
_FME: Final = f"{_REGION}/dfl-fme.0"
_PORT: Final = f"{_REGION}/dfl-port.0"
_FILES: Final = (
    f"{_FME}/ports_num",
    f"{_FME}/dfl-fme-region.0/fpga_region/region1/compat_id",
    f"{_FME}/errors/fme_errors",
    f"{_FME}/errors/catfatal_errors",
    f"{_FME}/hwmon/hwmon3/temp1_crit_alarm",
    f"{_FME}/hwmon/hwmon3/name",
    f"{_PORT}/id",
    f"{_PORT}/afu_id",
    f"{_PORT}/power_state",
    f"{_PORT}/errors/errors",
    "sys/devices/pci0000:3a/0000:3b:00.0/numa_node",
)
_VALUES: Final = (
    b"0\n", b"1\n", b"4\n", b"0x0\n", b"0x12\n", b"-1\n", b"", b"\n", b"\0", b"\xff" * 40, b"9" * 5000, b"6\n",
    b"0x" + b"f" * 16, _ID.encode() + b"\n", b"f" * 32, b"0" * 32, _ID.upper().encode(), b"1_0\n",
    "\u0661\n".encode(), b"0b1\n",
)  # fmt: skip
_END: Final = b"\n--\n"


def target(folder: Path) -> Callable[[bytes], None]:
    """Return what reads an input, the attributes' values in turn, as a machine with one card."""
    for name in _FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / "sys/class/fpga_region").mkdir(parents=True)
    (folder / "sys/class/fpga_region/region0").symlink_to(folder / _REGION)
    files = CardFiles(folder)
    driver = DflDriver(files, LinuxSystemCalls())

    def read(data: bytes) -> None:
        values = data.split(_END)
        for name, value in zip(_FILES, (*values, *([b""] * len(_FILES))), strict=False):
            (folder / name).write_bytes(value)
        for card in files.list_cards([]):
            assert len(card.interface_uuid) in {0, 36}
            for port in card.ports:
                try:
                    assert len(driver.read_afu_id(card, port)) in {0, 36}
                    files.read_port_errors(card, port)
                except (CardAbsentError, HardwareBusyError):
                    pass
            try:
                states = judge_condition(card.uuid, files.read_condition(card), {})
            except (CardAbsentError, HardwareBusyError):
                continue
            assert all(state.reason for state in states.values())

    return read


def generated(seed: int) -> bytes:
    """Return the input of a seed."""
    random_ = random.Random(seed)
    values = [random_.choice(_VALUES) for _ in _FILES]
    data = bytearray(_END.join(values))
    for _ in range(random_.randrange(3)):
        data[random_.randrange(len(data) + 1) :] = random_.randbytes(random_.randrange(40))
    return bytes(data)
