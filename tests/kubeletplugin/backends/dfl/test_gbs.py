"""The parser of GBS files (FP-04)."""

import json
import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.driver.kubeletplugin.backends.dfl.gbs import HEAD_BYTES, MAGIC, InvalidGbsError, parse_gbs
from tests.fakes.dfl import build_gbs
from tests.fakes.dfl.machine import AES_ID, INTERFACE
from tests.fuzz import gbs as fuzz


def file_of(metadata: object, bits: bytes = b"bits") -> bytes:
    text = json.dumps(metadata).encode()
    return MAGIC + struct.pack("<I", len(text)) + text + bits


def parse(data: bytes) -> Any:
    return parse_gbs(data[:HEAD_BYTES], len(data))


def test_a_file_says_its_interface_its_accelerator_and_where_its_bits_are() -> None:
    """FP-04, with metadata as Intel's packager writes them, and one that fills them up with zeros."""
    data = build_gbs(AES_ID, bits=b"BITS")
    header = parse(data)
    assert (header.interface_uuid, header.afu_id, header.name) == (INTERFACE, AES_ID, "function")
    assert data[header.bits_offset :] == b"BITS"
    published = {
        "version": 640,
        "afu-image": {
            "clock-frequency-high": 312,
            "clock-frequency-low": 156,
            "power": 50,
            "interface-uuid": "1a422218-6dba-448e-b302-425cbcde1406",
            "magic-no": 488605312,
            "accelerator-clusters": [
                {"total-contexts": 1, "name": "nlb_400", "accelerator-type-uuid": "d8424dc4a4a3c413f89e433683f9040b"}
            ],
        },
        "platform-name": "MCP",
    }
    text = json.dumps(published).encode() + bytes(3)
    header = parse(MAGIC + struct.pack("<I", len(text)) + text + b"bits")
    assert header.interface_uuid == "1a422218-6dba-448e-b302-425cbcde1406"
    assert header.afu_id == "d8424dc4-a4a3-c413-f89e-433683f9040b"


GOOD = build_gbs(AES_ID)
IMAGE = {"interface-uuid": INTERFACE, "accelerator-clusters": [{"accelerator-type-uuid": AES_ID}]}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"", "does not begin with", id="empty"),
        pytest.param(b"\x7fELF" + GOOD, "does not begin with", id="an OpenCL binary"),
        pytest.param(MAGIC + b"\x10\0", "before the length", id="ends in the length"),
        pytest.param(MAGIC + struct.pack("<I", 0) + b"{}", "have 0 bytes", id="no metadata"),
        pytest.param(MAGIC + struct.pack("<I", 4096) + bytes(5000), "have 4096 bytes", id="metadata too long"),
        pytest.param(GOOD[:60], "middle of its metadata", id="ends in the metadata"),
        pytest.param(build_gbs(AES_ID, bits=b""), "no bits", id="no bits"),
        pytest.param(build_gbs(AES_ID, clusters=2), "2 accelerator clusters", id="two clusters"),
        pytest.param(build_gbs(AES_ID, clusters=0), "0 accelerator clusters", id="no cluster"),
        pytest.param(file_of({}), "afu-image", id="no image"),
        pytest.param(file_of({"afu-image": {**IMAGE, "interface-uuid": "x"}}), "interface-uuid is not a UUID", id="id"),
        pytest.param(file_of({"afu-image": {**IMAGE, "interface-uuid": 5}}), "interface-uuid", id="a number"),
        pytest.param(file_of([[]]), "cannot be read", id="a list"),
        pytest.param(
            MAGIC + struct.pack("<I", 4095) + b'{"x":' + b"[" * 4096, "cannot be read", id="nested without end"
        ),
    ],
)
def test_what_is_wrong_in_a_file_is_said(data: bytes, message: str) -> None:
    """FP-04."""
    with pytest.raises(InvalidGbsError, match=message):
        parse(data)


@given(st.integers(0, 2**32) | st.binary(max_size=100))
def test_no_file_gives_anything_but_a_header_or_our_error(drawn: int | bytes) -> None:
    """``python -m tests.fuzz gbs`` tries more."""
    data = fuzz.generated(drawn) if isinstance(drawn, int) else MAGIC + drawn
    fuzz.target(None)(data)  # type: ignore[arg-type]


def test_a_file_that_promises_much_costs_little_memory() -> None:
    data = MAGIC + struct.pack("<I", 4095) + b"[" * 4095 + b"x"
    tracemalloc.start()
    with pytest.raises(InvalidGbsError):
        parse_gbs(data, 2**40)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * 2**20
