"""The parser of xclbin files (FP-03); ``tests/oracle/xrt`` compares it with libxrt's own."""

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.driver.kubeletplugin.backends.xrt.xclbin import (
    HEAD,
    InvalidXclbinError,
    Ip,
    MemoryBank,
    XclbinHeader,
    read_xclbin_header,
)
from tests.fakes.xrt import build_xclbin
from tests.fakes.xrt.machine import AES_ID, INTERFACE
from tests.fakes.xrt.xclbin import (
    BITSTREAM,
    DDR4,
    HBM,
    IP_LAYOUT,
    KERNEL,
    MEM_TOPOLOGY,
    PDI,
    STREAM,
    build_ip_layout,
    build_memory,
)
from tests.fuzz import xclbin as fuzz

NULL = "00000000-0000-0000-0000-000000000000"


def parse(data: bytes) -> XclbinHeader:
    return read_xclbin_header(lambda offset, length: data[offset : offset + length], len(data))


def build(**more: object) -> bytes:
    return build_xclbin(AES_ID, interface=INTERFACE, **more)  # type: ignore[arg-type]


def patched(offset: int, format_: str, value: int) -> bytes:
    """A file of which a number is another one."""
    data = bytearray(build())
    struct.pack_into(format_, data, offset, value)
    return bytes(data)


def test_a_file_says_its_interface_its_own_uuid_its_compute_units_and_its_memory() -> None:
    """FP-03."""
    banks = [("HBM[0]", HBM, 256 << 10), ("DDR[1]", DDR4, 16 << 20), ("-DDR[2]", DDR4, 16 << 20), ("s", STREAM, 9)]
    header = parse(build(kernels=("aes:aes_1", "fft:fft_1"), banks=banks))
    assert (header.interface_uuid, header.afu_id) == (INTERFACE, AES_ID)
    assert header.platform == "xilinx_u250_gen3x16_xdma_shell_4_1"
    assert header.bits_offset == 0, "the driver takes the whole file"
    assert header.ips == (
        Ip(type=KERNEL, name="aes:aes_1", base_address=0x1800000),
        Ip(type=KERNEL, name="fft:fft_1", base_address=0x1810000),
    )
    assert header.compute_units == 2
    assert header.banks == (
        MemoryBank(name="HBM[0]", size_bytes=256 << 20),
        MemoryBank(name="DDR[1]", size_bytes=16 << 30),
    ), "a bank that is not used and a stream are no memory"
    assert header.memory_bytes == (256 << 20) + (16 << 30)


def test_a_kernel_that_runs_by_itself_and_other_ips_are_no_compute_units() -> None:
    ips = [(KERNEL, "a:a_1", 0), (KERNEL, "free:free_1", 2**64 - 1), (5, "HBM", 0), (7, "ps:ps_1", 2**64 - 1)]
    header = parse(build(sections=[(PDI, b"x"), (IP_LAYOUT, build_ip_layout(ips))]))
    assert len(header.ips) == 4
    assert header.compute_units == 2, "one in the FPGA's logic, one on its processor"


def test_a_signature_is_at_the_end_of_the_file_and_is_counted() -> None:
    assert parse(build()).signature_bytes == 0
    assert parse(build(signature=bytes(700))).signature_bytes == 700


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"", "does not begin with xclbin2", id="empty"),
        pytest.param(build(magic=b"xclbin1\0"), "does not begin with xclbin2", id="an old format"),
        pytest.param(build()[:300], "middle of its header", id="ends in the header"),
        pytest.param(build()[: HEAD.size + 50], "ends too early: it has 506 bytes", id="ends in the table"),
        pytest.param(build()[:-1], "ends too early", id="ends in the last section"),
        pytest.param(patched(304, "<Q", HEAD.size), "middle of the table", id="a length without its table"),
        pytest.param(build(mode=4), "built for an emulation", id="for an emulation of hardware"),
        pytest.param(build_xclbin(NULL, interface=INTERFACE), "has no UUID", id="no UUID"),
        pytest.param(build_xclbin(AES_ID, interface=NULL), "names no interface", id="no interface"),
        pytest.param(patched(8, "<i", 0), "its signature has 0 bytes", id="an empty signature"),
        pytest.param(patched(8, "<i", -2), "its signature has -2 bytes", id="a negative signature"),
        pytest.param(patched(8, "<i", 2**31 - 1), "its signature has 2147483647", id="a signature beyond the file"),
        pytest.param(patched(304 + 144, "<I", 0), "has 0 sections", id="no section"),
        pytest.param(patched(304 + 144, "<I", 65536), "has 65536 sections", id="too many sections"),
        pytest.param(patched(HEAD.size + 24, "<Q", 8), "kind 0 is not inside", id="a section in the header"),
        pytest.param(patched(HEAD.size + 24, "<Q", 2**64 - 8), "kind 0 is not inside", id="an offset beyond all"),
        pytest.param(patched(HEAD.size + 32, "<Q", 2**64 - 1), "kind 0 is not inside", id="a size beyond all"),
        pytest.param(build(sections=[(IP_LAYOUT, build_ip_layout([]))]), "no bits for the card", id="no bits"),
        pytest.param(build(sections=[(BITSTREAM, b"")]), "no bits for the card", id="no bit"),
        pytest.param(
            build(sections=[(BITSTREAM, b"x"), (IP_LAYOUT, b"\1\0\0\0")]), "IP_LAYOUT has 4 bytes", id="a short count"
        ),
        pytest.param(
            build(sections=[(BITSTREAM, b"x"), (IP_LAYOUT, struct.pack("<i4x", -1))]),
            "too few for its -1 entries",
            id="a negative count",
        ),
        pytest.param(
            build(sections=[(BITSTREAM, b"x"), (MEM_TOPOLOGY, struct.pack("<i4x", 2**31 - 1))]),
            "MEM_TOPOLOGY has 8 bytes, too few for its 2147483647",
            id="a count beyond the section",
        ),
        pytest.param(
            build(sections=[(BITSTREAM, b"x"), (IP_LAYOUT, struct.pack("<i4x", 2) + bytes(80))]),
            "too few for its 2 entries",
            id="an entry less than announced",
        ),
        pytest.param(
            build(sections=[(BITSTREAM, b"x"), (IP_LAYOUT, bytes(2**20 + 8))]), "at most 1048576 are read", id="large"
        ),
    ],
)
def test_what_is_wrong_in_a_file_is_said(data: bytes, message: str) -> None:
    with pytest.raises(InvalidXclbinError, match=message):
        parse(data)


def test_the_largest_sections_and_the_longest_table_are_read() -> None:
    largest = (IP_LAYOUT, build_ip_layout([(KERNEL, "a:a_1", 0)]).ljust(2**20, b"\0"))
    assert len(parse(build(sections=[largest, *[(BITSTREAM, b"x")] * 1023])).ips) == 1


@pytest.mark.parametrize("left", [0, 100, HEAD.size, HEAD.size + 100])
def test_a_file_that_becomes_shorter_while_it_is_read_is_refused(left: int) -> None:
    data = build()
    with pytest.raises(InvalidXclbinError):
        read_xclbin_header(lambda offset, length: data[offset : min(offset + length, left)], len(data))


def test_of_two_sections_of_a_kind_the_first_counts_as_for_the_library() -> None:
    layouts = [(IP_LAYOUT, build_ip_layout([(KERNEL, name, 0)])) for name in ("a:a_1", "b:b_1")]
    assert [ip.name for ip in parse(build(sections=[(BITSTREAM, b"x"), *layouts])).ips] == ["a:a_1"]


def test_what_follows_the_file_is_not_the_files() -> None:
    assert parse(build() + b"more").afu_id == AES_ID


@given(st.integers(0, 2**32) | st.binary(max_size=600))
def test_no_file_gives_anything_but_a_header_or_our_error(drawn: int | bytes) -> None:
    """``python -m tests.fuzz xclbin`` tries more."""
    data = fuzz.generated(drawn) if isinstance(drawn, int) else b"xclbin2\0" + drawn
    fuzz.target(None)(data)  # type: ignore[arg-type]


def test_a_file_that_promises_much_costs_little_memory() -> None:
    data = bytearray(build(sections=[(BITSTREAM, b"x"), (MEM_TOPOLOGY, build_memory([]))]))
    struct.pack_into("<Q", data, HEAD.size + 40 + 32, 2**40)
    struct.pack_into("<Q", data, 304, 2**50)
    tracemalloc.start()
    with pytest.raises(InvalidXclbinError, match="MEM_TOPOLOGY has 1099511627776 bytes"):
        read_xclbin_header(lambda offset, length: bytes(data[offset : offset + length]), 2**50)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20
