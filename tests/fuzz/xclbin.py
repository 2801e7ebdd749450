"""Inputs for the parser of xclbin files: real files, cut, spliced and with bytes changed."""

import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kerf_dra.driver.kubeletplugin.backends.xrt.xclbin import HEAD, SECTION, InvalidXclbinError, read_xclbin_header
from tests.fakes.xrt.xclbin import IP_LAYOUT, MEM_TOPOLOGY, build_ip_layout, build_memory, build_xclbin

_ID: Final = "9c1d7a30-51b4-5f0e-8d5e-2f64a1c0b701"
_NUMBERS: Final = (0, 1, 7, 8, 40, 2**16, 2**31 - 1, 2**32 - 1, 2**63, 2**64 - 1)
_FIELDS: Final = (8, 304, 448, HEAD.size, HEAD.size + 24, HEAD.size + 32, HEAD.size + SECTION.size * 3)
"""Offsets of the signature's length, the file's length, the number of sections, parts of a section, and of data."""
_MOST_READ: Final = 2**21
"""More bytes than all that the parser reads: the table, and two sections of at most 1 MiB that cannot overlap it."""


def target(folder: Path) -> Callable[[bytes], None]:
    """Return what parses an input: it gives a header, and reads little, or says what is wrong."""
    del folder

    def parse(data: bytes) -> None:
        read: list[int] = []

        def read_at(offset: int, length: int) -> bytes:
            assert offset >= 0
            assert length >= 0
            read.append(length)
            return data[offset : offset + length]

        try:
            header = read_xclbin_header(read_at, len(data))
        except InvalidXclbinError:
            return
        finally:
            assert sum(read) < _MOST_READ
        assert len(header.interface_uuid) == len(header.afu_id) == len(_ID)
        assert 0 <= header.compute_units <= len(header.ips) <= len(data)
        assert 0 <= header.signature_bytes < len(data)

    return parse


def generated(seed: int) -> bytes:
    """Return the input of a seed: the longer it is changed, the less is left of a real file."""
    random_ = random.Random(seed)
    kernels = [(random_.choice((0, 1, 7)), f"k:k_{at}", random_.choice(_NUMBERS)) for at in range(random_.randrange(4))]
    sections = [
        (random_.choice((0, 0, 0, 2, 18)), bytes(random_.randrange(9))),
        (IP_LAYOUT, build_ip_layout(kernels)),
        (MEM_TOPOLOGY, build_memory([("DDR[0]", random_.randrange(12), 1)] * random_.randrange(3))),
    ]
    signature = bytes(random_.choice((0, 0, 0, 5)))
    chosen = random_.sample(sections, random_.randrange(4)) if random_.random() < 0.3 else sections
    file = bytearray(build_xclbin(_ID, interface=_ID, sections=chosen, signature=signature))
    for _ in range(random_.randrange(4)):
        at = random_.choice(
            (8, 304, 304 + 148, HEAD.size, HEAD.size + 24, HEAD.size + 32, HEAD.size + SECTION.size * 3)
        )
        at = at if random_.random() < 0.7 else random_.randrange(len(file))
        number = struct.pack("<Q", random_.choice(_NUMBERS))[: random_.choice((1, 4, 8))]
        file[at : at + len(number)] = number
    return bytes(file) if random_.random() < 0.8 else bytes(file[: random_.randrange(len(file) + 1)])
