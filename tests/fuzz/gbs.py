"""Inputs for the parser of GBS files: real headers, cut, spliced and with bytes changed."""

import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kerf_dra.driver.kubeletplugin.backends.dfl.gbs import HEAD_BYTES, MAGIC, InvalidGbsError, parse_gbs

_ID: Final = "9c1d7a30-51b4-5f0e-8d5e-2f64a1c0b701"
_CLUSTER: Final = {"total-contexts": 1, "name": "aes", "accelerator-type-uuid": _ID}
_PIECES: Final = (b"{", b"[", b'"', b":", b",", b"}", b"]", b"null", b"1e999", b"\\ud800", b"\xff", b"\0", b"[" * 2000)


def target(folder: Path) -> Callable[[bytes], None]:
    """Return what parses an input: it gives a header whose parts are in the file, or says what is wrong."""
    del folder

    def parse(data: bytes) -> None:
        try:
            header = parse_gbs(data[:HEAD_BYTES], len(data))
        except InvalidGbsError:
            return
        assert len(MAGIC) < header.bits_offset < len(data)
        assert len(header.interface_uuid) == len(header.afu_id) == len(_ID)

    return parse


def generated(seed: int) -> bytes:
    """Return the input of a seed: the longer it is changed, the less is left of a real file."""
    random_ = random.Random(seed)
    clusters = [_CLUSTER] * random_.choice((0, 1, 1, 1, 2))
    document: object = {"version": 640, "afu-image": {"interface-uuid": _ID, "accelerator-clusters": clusters}}
    for key in random_.sample(("power", "magic-no", "interface-uuid"), random_.randrange(3)):
        document["afu-image"][key] = random_.choice((None, 1, "x", [], {}, _ID))  # type: ignore[index]
    metadata = bytearray(json.dumps(document).encode())
    for _ in range(random_.randrange(4)):
        at = random_.randrange(len(metadata) + 1)
        metadata[at : at + random_.randrange(3)] = random_.choice(_PIECES)
    length = len(metadata) if random_.random() < 0.8 else random_.choice((0, 1, 4095, 4096, 2**32 - 1))
    file = MAGIC + struct.pack("<I", length) + bytes(metadata) + bytes(random_.randrange(9))
    return file if random_.random() < 0.8 else file[: random_.randrange(len(file) + 1)]
