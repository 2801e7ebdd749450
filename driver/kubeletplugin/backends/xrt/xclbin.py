"""Reads xclbin files: what AMD's tools build for a card's region, in the container format AXLF. Pure.

A file begins with ``struct axlf``: magic, length of a signature, an inline header with the file's length, its own UUID
and that of the interface it was built for; then a table of sections, and their data (Xilinx/XRT, ``src/runtime_src/
core/include/xclbin.h``; all numbers little-endian, UUIDs in the order of their text). Only the table and a few small
sections are read, and no input makes this use more than a few times the size of these.
"""

import struct
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from kerf_dra.api.errors import PermanentError
from kerf_dra.driver.kubeletplugin.backends.fpga.images.header import ImageHeader, ReadAt

MAGIC: Final = b"xclbin2\0"
HEAD: Final = struct.Struct("<8si28s256sQ QQQHBBHH16s64s16s16sI 4x")
"""``struct axlf`` without its first section: magic, length of the signature, reserved, key block, unique id; then
``struct axlf_header``: length, two times, version, mode, action mask, interface UUID, platform, UUID, name of a file
for debugging, number of sections."""
SECTION: Final = struct.Struct("<I16s4xQQ")
"""``struct axlf_section_header``: kind, name, offset, size."""
_COUNT: Final = struct.Struct("<i4x")
"""How many entries a section has, at its begin; they follow at the next multiple of eight bytes."""
IP: Final = struct.Struct("<IIQ64s")
"""``struct ip_data``: type, properties, base address, name."""
BANK: Final = struct.Struct("<BB6xQQ16s")
"""``struct mem_data``: type, whether it is used, size in KiB, base address, name."""
NO_SIGNATURE: Final = -1
_MAX_SECTIONS: Final = 1024
"""Far more than tools write; the format allows 65,536."""
_MAX_SECTION_BYTES: Final = 1 << 20
"""The most bytes of a section that is read here: more than 10,000 compute units, of which a driver takes 128."""
_NO_ADDRESS: Final = (1 << 64) - 1
"""The base address of a kernel that runs by itself and is never called."""


class SectionKind(IntEnum):
    """``enum axlf_section_kind``, as far as it is needed."""

    BITSTREAM = 0
    EMBEDDED_METADATA = 2
    MEM_TOPOLOGY = 6
    IP_LAYOUT = 8
    PDI = 18
    PARTIAL_PDI = 19


class IpType(IntEnum):
    """``enum IP_TYPE``, as far as it is needed."""

    KERNEL = 1
    PS_KERNEL = 7


_BITS: Final = frozenset({SectionKind.BITSTREAM, SectionKind.PDI, SectionKind.PARTIAL_PDI})
"""The sections with what the card is configured with; at least one is there."""
_EMULATION: Final = frozenset({4, 5, 6})
"""``enum XCLBIN_MODE``: files for emulations of hardware and software, which no card takes."""
_MEMORIES: Final = frozenset({0, 1, 2, 4, 6})
"""``enum MEM_TYPE``: DDR3, DDR4, DRAM, global and HBM; the others are streams, memory of the host, or inside of the
FPGA."""


class InvalidXclbinError(PermanentError):
    """A file is no xclbin for a card; the message says what is wrong in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ip:
    """An entry of the layout of a design: a compute unit, or something else with registers."""

    type: int
    name: str
    """``KERNEL:INSTANCE`` for a compute unit."""
    base_address: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBank:
    """A memory that a design uses."""

    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class XclbinHeader(ImageHeader):
    """What an xclbin file says of itself."""

    platform: str
    """The platform that it was built for, such as ``xilinx_u250_gen3x16_xdma_shell_4_1``."""
    signature_bytes: int
    """The length of its PKCS #7 signature, which the card's management driver checks; 0: it has none."""
    ips: tuple[Ip, ...]
    banks: tuple[MemoryBank, ...]
    """The memories outside of the FPGA that its kernels use."""

    @property
    def memory_bytes(self) -> int:
        """The memory outside of the FPGA that its kernels can use."""
        return sum(bank.size_bytes for bank in self.banks)


def read_xclbin_header(read_at: ReadAt, size: int) -> XclbinHeader:
    """Read what a file of ``size`` bytes says of itself (``ImageFormat``). Raises InvalidXclbinError."""
    head = read_at(0, HEAD.size)
    if not head.startswith(MAGIC):
        raise InvalidXclbinError("it is no xclbin file: it does not begin with xclbin2")
    if len(head) < HEAD.size:
        raise InvalidXclbinError("it ends in the middle of its header")
    (_, signature_bytes, _, _, _, length, _, _, _, _, _, mode, _, interface, platform, own, _, count) = HEAD.unpack(
        head
    )
    if length > size:
        raise InvalidXclbinError(f"it ends too early: it has {size} bytes and says that it has {length}")
    if mode in _EMULATION:
        raise InvalidXclbinError("it was built for an emulation, and not for a card")
    if not any(own):
        raise InvalidXclbinError("it has no UUID")
    if not any(interface):
        raise InvalidXclbinError("it names no interface: it was built for a platform without one")
    signed_bytes = _check_signature(signature_bytes, length)
    sections = _read_sections(read_at, count, length - signed_bytes)
    if not _BITS & sections.keys():
        raise InvalidXclbinError("it has no bits for the card")
    ips = tuple(_read_ips(read_at, sections))
    return XclbinHeader(
        interface_uuid=str(uuid.UUID(bytes=interface)),
        afu_id=str(uuid.UUID(bytes=own)),
        compute_units=sum(_is_compute_unit(ip) for ip in ips),
        platform=_decode(platform),
        signature_bytes=signed_bytes,
        ips=ips,
        banks=tuple(_read_banks(read_at, sections)),
    )


def _check_signature(signature_bytes: int, length: int) -> int:
    """Return the length of the signature, which the last bytes of the file are; 0: there is none."""
    if signature_bytes == NO_SIGNATURE:
        return 0
    if not 0 < signature_bytes <= length - HEAD.size:
        raise InvalidXclbinError(f"its signature has {signature_bytes} bytes, and the file has {length}")
    return signature_bytes


def _read_sections(read_at: ReadAt, count: int, end: int) -> Mapping[int, tuple[int, int]]:
    """Return offset and size of the first section of each kind; all of them end before ``end``."""
    if not 0 < count <= _MAX_SECTIONS:
        raise InvalidXclbinError(f"it has {count} sections; 1 to {_MAX_SECTIONS} are possible")
    table_end = HEAD.size + count * SECTION.size
    table = read_at(HEAD.size, count * SECTION.size)
    if table_end > end or len(table) < count * SECTION.size:
        raise InvalidXclbinError("it ends in the middle of the table of its sections")
    found: dict[int, tuple[int, int]] = {}
    for kind, _, offset, section_size in SECTION.iter_unpack(table):
        if section_size and (offset < table_end or offset + section_size > end):
            raise InvalidXclbinError(f"its section of kind {kind} is not inside of the file")
        if section_size:
            found.setdefault(kind, (offset, section_size))
    return found


def _read_ips(read_at: ReadAt, sections: Mapping[int, tuple[int, int]]) -> Sequence[Ip]:
    return [
        Ip(type=type_, name=_decode(name), base_address=address)
        for type_, _, address, name in _read_entries(read_at, sections, SectionKind.IP_LAYOUT, IP)
    ]


def _read_banks(read_at: ReadAt, sections: Mapping[int, tuple[int, int]]) -> Sequence[MemoryBank]:
    return [
        MemoryBank(name=_decode(name), size_bytes=kibibytes * 1024)
        for type_, is_used, kibibytes, _, name in _read_entries(read_at, sections, SectionKind.MEM_TOPOLOGY, BANK)
        if is_used and type_ in _MEMORIES
    ]


def _read_entries(
    read_at: ReadAt, sections: Mapping[int, tuple[int, int]], kind: SectionKind, entry: struct.Struct
) -> Sequence[tuple]:  # type: ignore[type-arg]  # (what a structure has)
    """Return the entries of a section of one kind; none, where there is no such section."""
    if kind not in sections:
        return []
    offset, size = sections[kind]
    if size > _MAX_SECTION_BYTES:
        raise InvalidXclbinError(f"its section {kind.name} has {size} bytes; at most {_MAX_SECTION_BYTES} are read")
    data = read_at(offset, size)
    (count,) = _COUNT.unpack_from(data) if len(data) >= _COUNT.size else (-1,)
    if count < 0 or _COUNT.size + count * entry.size > len(data):
        raise InvalidXclbinError(f"its section {kind.name} has {len(data)} bytes, too few for its {count} entries")
    return list(entry.iter_unpack(data[_COUNT.size : _COUNT.size + count * entry.size]))


def _is_compute_unit(ip: Ip) -> bool:
    return ip.type == IpType.PS_KERNEL or (ip.type == IpType.KERNEL and ip.base_address != _NO_ADDRESS)


def _decode(text: bytes) -> str:
    """Return what is before the first zero; what is no ASCII is replaced."""
    return text.partition(b"\0")[0].decode("ascii", errors="replace")
