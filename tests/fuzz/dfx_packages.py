"""Inputs for what reads ``shell.json`` and ``accel.json`` of dfx-mgr: real ones, cut, spliced, with values changed."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from kerf_dra.driver.kubeletplugin.backends.slots.packages import InvalidPackageError, parse_accelerator, parse_shell

_SHELL: Final[dict[str, Any]] = {
    "shell_type": "PL_DFX",
    "num_pl_slots": 3,
    "num_aie_slots": 0,
    "uid": "0x2a",
    "device_name": "a0010000.dfx_manager",
}
_DEVICE: Final = {"dev_name": "20100000000.AES128", "reg_base": "0x20100000000", "reg_size": "0x10000"}
_ACCEL: Final[dict[str, Any]] = {"accel_type": "XRT_PL_DFX", "pid": 42, "accel_devices": [_DEVICE, _DEVICE]}
_JUNK: Final[tuple[Any, ...]] = (
    None, True, -1, 2**70, 1e308, "", "x", "../x", "0x", "\ud800", "a/b", [], [[]], {}, [{}], ["x"], "0" * 5000,
    [{"dev_name": 3}],
)  # fmt: skip
_PIECES: Final = (b"{", b"[", b'"', b":", b",", b"}", b"]", b"// comment\n", b"\xff", b"\0", b"[" * 3000, b"1e999")


def target(folder: Path) -> Callable[[bytes], None]:
    """Return what reads an input as either document: names of devices lead nowhere else."""
    del folder

    def read(data: bytes) -> None:
        try:
            slots = parse_shell(data).slots
        except InvalidPackageError as error:
            _check_message(error)
        else:
            assert slots >= 0
        try:
            found = parse_accelerator(data)
        except InvalidPackageError as error:
            _check_message(error)
            return
        assert all(name and "/" not in name and not name.startswith(".") for name in found.devices)

    return read


def generated(seed: int) -> bytes:
    """Return the input of a seed."""
    random_ = random.Random(seed)
    document = dict(random_.choice((_SHELL, _ACCEL, _ACCEL)))
    for _ in range(random_.randrange(3)):
        document[random_.choice(list(document))] = random_.choice(_JUNK)
    data = bytearray(json.dumps(document).encode())
    for _ in range(random_.choice((0, 0, 1, 3))):
        at = random_.randrange(len(data) + 1)
        data[at : at + random_.randrange(3)] = random_.choice(_PIECES)
    return bytes(data) if random_.random() < 0.9 else bytes(data[: random_.randrange(len(data) + 1)])


def _check_message(error: Exception) -> None:
    """An error quotes little of its input."""
    assert len(str(error)) < 2000
