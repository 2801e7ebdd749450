"""Messages of dfx-mgrd, byte for byte, and its tables as it prints them."""

import pytest

from kerf_dra.driver.kubeletplugin.backends.slots.messages import (
    LIST_PACKAGE,
    LOAD_ACCEL,
    SHOW_ALL,
    Loaded,
    UnexpectedReplyError,
    pack_reply,
    pack_request,
    parse_listing,
    parse_result,
    show_base,
    unpack_reply,
    unpack_request,
)


def test_a_request_is_the_daemons_struct_with_eight_bytes_more() -> None:
    assert pack_request(LOAD_ACCEL, "aes-1") == bytes.fromhex(
        "06000000 06000000 00000000 00000000 6165732d3100 0000000000000000"
    )
    assert pack_request(LIST_PACKAGE, flags=SHOW_ALL)[:16] == bytes.fromhex("08000000 01000000 04000000 00000000")


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (bytes.fromhex("00000000 0c000000 00000000 00000000") + b"3:operating\0" + bytes(8), "3:operating"),
        (bytes.fromhex("00000000 02000000 10000000 00000000") + b"3\0" + bytes(8), "3"),
        (pack_reply("text"), "text"),
    ],
)
def test_an_answer_is_read_up_to_its_end(message: bytes, text: str) -> None:
    assert unpack_reply(message) == text


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        (b"", "0 bytes"),
        (bytes(23), "23 bytes"),
        (bytes.fromhex("08000000 05000000 00000000") + b"0->1,\0" + bytes(8), "older than June 2025"),
    ],
)
def test_an_answer_that_is_none_of_the_known_daemons_is_refused(message: bytes, fault: str) -> None:
    with pytest.raises(UnexpectedReplyError, match=fault):
        unpack_reply(message)


def test_a_request_is_read_as_it_was_packed_and_a_part_of_one_is_refused() -> None:
    message = pack_request(LOAD_ACCEL, "aes-1", flags=SHOW_ALL)
    assert unpack_request(message) == (LOAD_ACCEL, "aes-1", SHOW_ALL)
    for length in (0, 15):
        with pytest.raises(UnexpectedReplyError, match=f"a message of dfx-mgrd has {length} bytes"):
            unpack_request(message[:length])


@pytest.mark.parametrize(
    ("text", "result"),
    [("0", (0, "")), ("-1\n", (-1, "")), ("12:write error", (12, "write error")), ("3:", (3, ""))],
)
def test_a_result_is_a_number_and_perhaps_a_state(text: str, result: tuple[int, str]) -> None:
    assert parse_result(text) == result


@pytest.mark.parametrize("text", ["", "x", "1x", "--1", "Unsupported message id 6", "9" * 40])
def test_a_result_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(UnexpectedReplyError, match="in place of a number"):
        parse_result(text)


NEW = """\
boot.pdi PL UUID: N/A

ID accelType   userLoad  userLoad  Base        UUID      Parent    Pid   #slots       slot     load   Accelerator
               type      Region                          UUID            (RPU+PL+AIE) Location Handle
-- ----------- --------- --------- ----------- --------- --------- ----- ------------ -------- ------ -----------
 1 XRT_PL_DFX  -         -         k26_2rp_... N/A       N/A       no_id (0+2+0)      1        3      AES128-1
 2 XRT_PL_DFX  -         -         k26_2rp_... 0000002a  00000011  id_err(0+2+0)      -1       -1     FFT-0
 3             -         -         k26_2rp_... N/A       N/A       no_id (0+2+0)      0        2      FIR-0
 4 XRT_FLAT    -         -         k26-star... N/A       N/A       id_ok (0+0+0)      0        4      k26-starter-kits
 5 RPU         -         -         rpu         N/A       N/A       no_id (2+0+0)      0        0      echo
 6 -           Partial   rp0       -           N/A       N/A       -     -            -        5      top.bit.bin
 7 -           Full                -           N/A       N/A       -     -            -        6      full.bit.bin
"""
OLD = """\
#  Accel_type  user_load_type user_load_region Base        Pid   Base_type #slots(RPU+PL+AIE) slot->handle Accelerator
-- ----------- -------------- ---------------- ----------- ----- --------- ------------------ ------------ ---------
 1 XRT_PL_DFX  -              -                k26_2rp     no_id PL_DFX    (0+2+0)            0->1,1->2,   AES128
 2 XRT_PL_DFX  -              -                k26_2rp     id_errPL_DFX    (0+2+0)            -1           FFT
 3 -           Partial        rp0              -           -     -         -                  rp0->3       top.bit.bin
"""


def test_the_table_of_the_daemon_says_what_is_loaded_where() -> None:
    listing = parse_listing(NEW)
    assert listing.packages == ("AES128-1", "FFT-0", "FIR-0", "k26-starter-kits")
    assert listing.loaded == (
        Loaded(package="AES128-1", base="k26_2rp_...", slot=1, handle=3),
        Loaded(package="FIR-0", base="k26_2rp_...", slot=0, handle=2),
        Loaded(package="k26-starter-kits", base="k26-star...", slot=None, handle=4),
        Loaded(package="top.bit.bin", base="-", slot=None, handle=5),
        Loaded(package="full.bit.bin", base="-", slot=None, handle=6),
    )


def test_the_table_of_daemons_before_march_2026_is_understood() -> None:
    listing = parse_listing(OLD)
    assert listing.packages == ("AES128", "FFT")
    assert [(one.package, one.slot, one.handle) for one in listing.loaded] == [
        ("AES128", 0, 1),
        ("AES128", 1, 2),
        ("top.bit.bin", None, 3),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Unsupported message id 8",
        "slot\n1\n",
        "slot\n 1 XRT_PL_DFX - - base N/A N/A no_id (0+2+0) 0,1 2 aes\n",
        "slot->handle\n 1 XRT_PL_DFX - - base no_id PL_DFX (0+2+0) 0-1 aes\n",
        "slot\n 1 - Partial rp0 - N/A N/A - - - x top.bit.bin\n",
    ],
)
def test_a_table_that_is_not_understood_is_refused_and_not_guessed_at(text: str) -> None:
    with pytest.raises(UnexpectedReplyError):
        parse_listing(text)


def test_the_table_shows_the_first_eight_characters_of_a_long_name() -> None:
    assert [show_base(name) for name in ("k26_2rp", "k26_2rp_140", "k26_2rp_1409")] == [
        "k26_2rp",
        "k26_2rp_140",
        "k26_2rp_...",
    ]
