"""Bare scalars, as Go's YAML reads them. What the Go library answers is in ``test_go_verdicts.py``."""

import math

import pytest

from kerf_dra.cdi.document.yaml_scalars import Value, as_integer, as_key, as_text, is_key, resolve

MEANINGS: list[tuple[str, Value]] = [
    ("", None),
    ("~", None),
    ("Null", None),
    ("nULL", "nULL"),
    ("y", True),
    ("NO", False),
    ("yEs", "yEs"),
    ("0x1F", 31),
    ("-0x10", -16),
    ("017", 15),
    ("0o17", 15),
    ("08", 8.0),
    ("0", 0),
    ("1_000", 1000),
    ("_1", "_1"),
    ("0b11", 3),
    ("0b-1", -1),
    ("0b2", "0b2"),
    ("+5", 5),
    ("1e3", 1000.0),
    ("1.", 1.0),
    (".5", 0.5),
    ("._5", "._5"),
    ("1e999", "1e999"),
    ("18446744073709551615", 2**64 - 1),
    ("18446744073709551616", 2.0**64),
    ("9" * 5000, "9" * 5000),
    ("12:30:45", "12:30:45"),
    ("2001-12-14", "2001-12-14"),
    ("-.INF", -math.inf),
    ("<<", "<<"),
    ("٣", "٣"),
    ("-", "-"),
]


@pytest.mark.parametrize(("text", "value"), MEANINGS)
def test_a_bare_scalar_means(text: str, value: Value) -> None:
    assert resolve(text) == value
    assert type(resolve(text)) is type(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.5, "1.5"),
        (1000.0, "1000"),
        (100000.0, "100000"),
        (1e6, "1e+06"),
        (1234567.0, "1.234567e+06"),
        (16777217.0, "1.6777216e+07"),
        (0.1, "0.1"),
        (1e-5, "1e-05"),
        (3e38, "3e+38"),
        (1e39, "+Inf"),
        (-1e39, "-Inf"),
        (math.inf, "+Inf"),
        (math.nan, "NaN"),
        (False, "false"),
        (7, "7"),
        (None, ""),
        ("x", "x"),
    ],
)
def test_a_text_field_turns_a_value_into(value: Value, text: str) -> None:
    assert as_text(value) == text


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (5, 5),
        (5.0, 5),
        (1.5, None),
        (2.0**60, 1152921504606847000),
        (1e21, None),
        (math.nan, None),
        (True, None),
        ("5", None),
    ],
)
def test_an_integer_field_turns_a_value_into(value: Value, number: int | None) -> None:
    assert as_integer(value) == number


def test_some_values_make_keys() -> None:
    assert as_key(math.nan) == ".nan"
    assert as_key(-math.inf) == "-.inf"
    assert as_key(1.5) == "1.5"
    assert is_key(2**63 - 1)
    assert not is_key(2**63)
    assert not is_key(None)
