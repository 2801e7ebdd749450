"""Makes xclbin files as AMD's tools do, with what a test wants in them (XRT, ``xclbin.h``).

The layout is written here once more and not taken from the parser under test.
"""

import struct
import uuid
from collections.abc import Sequence
from typing import Final

BITSTREAM: Final = 0
EMBEDDED_METADATA: Final = 2
MEM_TOPOLOGY: Final = 6
IP_LAYOUT: Final = 8
PDI: Final = 18
KERNEL: Final = 1
DDR4: Final = 1
HBM: Final = 6
STREAM: Final = 9
_HEAD_BYTES: Final = 456
_SECTION_BYTES: Final = 40

Section = tuple[int, bytes]
"""A kind and the data."""


def build_xclbin(
    afu_id: str,
    *,
    interface: str,
    kernels: Sequence[str] = ("aes:aes_1", "aes:aes_2"),
    banks: Sequence[tuple[str, int, int]] = (("DDR[0]", DDR4, 16 << 20), ("HOST[0]", 10, 16 << 20)),
    sections: Sequence[Section] | None = None,
    platform: str = "xilinx_u250_gen3x16_xdma_shell_4_1",
    mode: int = 1,
    signature: bytes = b"",
    padding: int = 64,
    magic: bytes = b"xclbin2\0",
) -> bytes:
    """Return a file; ``banks`` are name, type and KiB, ``sections`` all sections in place of the usual ones."""
    if sections is None:
        sections = [
            (BITSTREAM, b"BITS" + bytes(padding)),
            (EMBEDDED_METADATA, build_metadata(kernels)),
            (IP_LAYOUT, build_ip_layout([(KERNEL, name, 0x1800000 + 0x10000 * at) for at, name in enumerate(kernels)])),
            (MEM_TOPOLOGY, build_memory(banks)),
        ]
    table, body = b"", b""
    first = _align(_HEAD_BYTES + _SECTION_BYTES * len(sections))
    for kind, data in sections:
        table += struct.pack("<I16s4xQQ", kind, b"section", first + len(body), len(data))
        body += data.ljust(_align(len(data)), b"\0")
    content = (table.ljust(first - _HEAD_BYTES, b"\0")) + body + signature
    length = _HEAD_BYTES + len(content)
    head = struct.pack("<8si28s256sQ", magic, len(signature) or -1, b"\xff" * 28, b"\0" * 256, 1)
    inline = struct.pack(
        "<QQQHBBHH16s64s16s16sI4x",
        length, 1700000000, 0, 466, 2, 13, mode, 0,
        uuid.UUID(interface).bytes, platform.encode(), uuid.UUID(afu_id).bytes, b"", len(sections),
    )  # fmt: skip
    return head + inline + content


def build_ip_layout(ips: Sequence[tuple[int, str, int]]) -> bytes:
    """Return the section of (type, name, base address)."""
    entries = b"".join(struct.pack("<IIQ64s", type_, 0, address, name.encode()) for type_, name, address in ips)
    return struct.pack("<i4x", len(ips)) + entries


def build_memory(banks: Sequence[tuple[str, int, int]]) -> bytes:
    """Return the section of (name, type, KiB), all in use but those with a name that begins with a minus."""
    entries = b"".join(
        struct.pack("<BB6xQQ16s", type_, not name.startswith("-"), kibibytes, 0, name.encode())
        for name, type_, kibibytes in banks
    )
    return struct.pack("<i4x", len(banks)) + entries


def build_metadata(kernels: Sequence[str]) -> bytes:
    """Return the XML that names the kernels of compute units called ``KERNEL:INSTANCE``."""
    names = dict.fromkeys(name.partition(":")[0] for name in kernels)
    described = "".join(
        f'<kernel name="{name}" language="c" type="pl" hwControlProtocol="ap_ctrl_hs">'
        + "".join(f'<instance name="{one.partition(":")[2]}"/>' for one in kernels if one.partition(":")[0] == name)
        + "</kernel>"
        for name in names
    )
    core = f'<core name="OCL_REGION_0" target="fpga0_OCL_REGION_0" type="clc_region">{described}</core>'
    platform = (
        '<platform vendor="xilinx" boardid="u250" name="shell" featureRomTime="0" version="4.1">'
        f'<device name="fpga0" fpgaDevice="virtexuplus" addrWidth="0">{core}</device></platform>'
    )
    xml = f'<?xml version="1.0" encoding="UTF-8"?><project name="kerf">{platform}</project>'
    return xml.encode()


def _align(size: int) -> int:
    return -(-size // 8) * 8
