"""Inputs for what reads the answers of dfx-mgrd: real messages and tables, cut, spliced and with bytes changed."""

import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kerf_dra.driver.kubeletplugin.backends.slots.messages import (
    UnexpectedReplyError,
    parse_listing,
    parse_result,
    unpack_reply,
)

_HEADER: Final = "ID accelType userLoad userLoad Base UUID Parent Pid #slots slot load Accelerator\n"
_OLD_HEADER: Final = "# Accel_type user_load_type user_load_region Base Pid Base_type #slots slot->handle Accelerator\n"
_ROWS: Final = (
    " 1 XRT_PL_DFX  -         -         k26_2rp_... N/A       N/A       no_id (0+2+0)      1        3      aes-1\n",
    " 2 XRT_PL_DFX  -         -         k26_2rp_... N/A       N/A       id_err(0+2+0)      0,1      1,2    fft\n",
    " 3 RPU         -         -         rpu         N/A       N/A       no_id (2+0+0)      0        0      echo\n",
    " 4 -           Partial   rp0       -           N/A       N/A       -     -            -        5      a.bin\n",
    " 5 XRT_PL_DFX  -              -                k26_2rp     no_id PL_DFX    (0+2+0)            0->1,        a\n",
    "3:operating",
    "-1",
)
_PIECES: Final = (
    b" ",
    b"-1",
    b",",
    b"->",
    b"(0+9+0)",
    b"\n",
    b"\0",
    b"\xff",
    b"9" * 400,
    b"0" * 3,
    b"(",
    b":",
    b"\x85",
)


def target(folder: Path) -> Callable[[bytes], None]:
    """Return what reads an input as an answer: what it says is loaded has a name and a handle."""
    del folder

    def read(data: bytes) -> None:
        try:
            text = unpack_reply(data)
        except UnexpectedReplyError:
            return
        assert len(text) <= len(data)
        try:
            parse_result(text)
        except UnexpectedReplyError as error:
            _check_message(error)
        try:
            listing = parse_listing(text)
        except UnexpectedReplyError as error:
            _check_message(error)
            return
        for one in listing.loaded:
            assert one.package
            assert one.handle >= (0 if one.slot is not None else -1)
            assert one.slot is None or one.slot >= 0

    return read


def generated(seed: int) -> bytes:
    """Return the input of a seed."""
    random_ = random.Random(seed)
    rows = [random_.choice((_HEADER, _HEADER, _OLD_HEADER, "")), *random_.choices(_ROWS, k=random_.randrange(5))]
    text = bytearray("".join(rows).encode())
    for _ in range(random_.choice((0, 0, 1, 2, 5))):
        at = random_.randrange(len(text) + 1)
        text[at : at + random_.randrange(4)] = random_.choice(_PIECES)
    size = len(text) if random_.random() < 0.9 else random_.choice((0, 1, 2**15, 2**32 - 1))
    slot = 0 if random_.random() < 0.95 else random_.randrange(2**32)
    message = struct.pack("=IIII", random_.randrange(30), size, random_.choice((0, 16)), slot) + bytes(text) + bytes(8)
    return message if random_.random() < 0.9 else message[: random_.randrange(len(message) + 1)]


def _check_message(error: Exception) -> None:
    """An error quotes little of its input."""
    assert len(str(error)) < 2000
