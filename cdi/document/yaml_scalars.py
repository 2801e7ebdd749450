"""Resolves unquoted YAML scalars as readers in Go do: by YAML 1.1 with the deviations of its Go implementation.

The rules are those of ``resolve`` in go-yaml v2, and of sigs.k8s.io/yaml for a number in a string field. They differ
from PyYAML's: ``1e3`` and ``0o17`` are numbers, ``y`` is a boolean, ``12:30`` is a string.
"""

import base64
import math
import re
import struct
from decimal import Decimal
from typing import TypeAlias

Value: TypeAlias = str | int | float | bool | None

INT64_MAX = 2**63 - 1

_WORDS: dict[str, Value] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_INTEGER = re.compile(
    r"(?P<sign>[-+]?)(?:0[xX](?P<x>[0-9a-fA-F]+)|0[bB](?P<b>[01]+)|0[oO]?(?P<o>[0-7]+)|(?P<d>0|[1-9]\d{0,19}))",
    re.ASCII,
)
"""A leading zero means octal. With a digit that is not octal the scalar is a float (08 is 8.0), and so is a number of
more digits than 64 bits have."""
_SIGNED_BINARY = re.compile(r"0b([-+][01]+)")
"""Go parses the digits after 0b, with a sign, when nothing else matches."""
_FLOAT = re.compile(r"[-+]?(?:\.\d+|\d+(?:\.\d*)?)(?:[eE][-+]?\d+)?", re.ASCII)
_DOT_FLOAT = re.compile(r"\.\d+(?:_\d+)*(?:[eE][-+]?\d+(?:_\d+)*)?", re.ASCII)
"""A number with a leading dot: Go removes underscores elsewhere, but here they must stand between digits."""
_BASES = {"x": 16, "b": 2, "o": 8, "d": 10}

_TIME = r"\d{1,2}:\d{1,2}:\d{1,2}(?:\.\d+)?"
_TIMESTAMP = re.compile(rf"\d{{4}}-\d{{1,2}}-\d{{1,2}}(?:[Tt]{_TIME}(?:Z|[-+]\d\d:\d\d)| {_TIME})?", re.ASCII)
"""A time without Go's check that the day exists, which no field of a spec needs."""

STANDARD_TAG = "tag:yaml.org,2002:"
"""The prefix that ``!!`` abbreviates."""

_TAGS: dict[type, str] = {int: "int", float: "float", bool: "bool", type(None): "null"}


def resolve(text: str) -> Value:
    """Return the value of the unquoted scalar ``text``.

    >>> [resolve(text) for text in ("0x10", "010", "1_000", "1e3", "on", "12:30:45", "~")]
    [16, 8, 1000, 1000.0, True, '12:30:45', None]
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "0123456789+-.":
        return text
    if text[0] == "." and not _DOT_FLOAT.fullmatch(text):
        return text
    digits = text.replace("_", "")
    integer = _INTEGER.fullmatch(digits)
    if integer:
        base = integer.lastgroup or "d"
        number = int(integer["sign"] + integer[base], _BASES[base])
        # Beyond signed and unsigned 64 bits a number is a float.
        if -INT64_MAX - 1 <= number < 2**64:
            return number
    binary = _SIGNED_BINARY.fullmatch(digits)
    if binary:
        return int(binary[1], 2)
    if _FLOAT.fullmatch(digits) and math.isfinite(float(digits)):
        return float(digits)
    return text


def resolve_tagged(tag: str, text: str) -> Value:
    """Return the value of ``text`` under an explicit tag without its ``STANDARD_TAG``; unknown tags mean string.

    Raises ValueError when the text does not have the tag's type.
    """
    if tag == "binary":
        data = base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True)
        # Go replaces each invalid byte, Python's "replace" some of them together.
        return re.sub("[\udc80-\udcff]", "\ufffd", data.decode(errors="surrogateescape"))
    if tag == "timestamp" and _TIMESTAMP.fullmatch(text):
        return text
    if tag not in ("timestamp", *_TAGS.values()):
        return text
    value = resolve(text)
    if _TAGS.get(type(value)) == tag:
        return value
    if tag == "float" and type(value) is int and value <= INT64_MAX:
        return float(value)
    raise ValueError(text)


def as_text(value: Value) -> str:
    """Return the content of a string field whose value in a document is ``value``.

    >>> [as_text(value) for value in (16, 1.50, 1e6, True, None)]
    ['16', '1.5', '1e+06', 'true', '']
    """
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case float():
            return _float32_text(value)
        case _:
            return str(value)


def is_key(value: Value) -> bool:
    """Whether ``value`` can be a key to readers; null and numbers that only fit unsigned 64 bits cannot."""
    return value is not None and not (isinstance(value, int) and value > INT64_MAX)


def as_key(value: Value) -> str:
    """Return the key that a document gives as ``value``: as ``as_text``, but infinities and NaN as in YAML."""
    text = as_text(value)
    return {"+Inf": ".inf", "-Inf": "-.inf", "NaN": ".nan"}.get(text, text)


def as_integer(value: Value) -> int | None:
    """Return the integer that ``value`` represents, a float by its shortest decimal form; None: it is no integer."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int):
        return value
    # From here on Go writes a float with an exponent, which no integer field accepts.
    if not abs(value) < 1e21:
        return None
    decimal = Decimal(repr(value))
    return int(decimal) if decimal == decimal.to_integral_value() else None


def _float32_text(value: float) -> str:
    """Format ``value`` rounded to 32 bits, with the fewest digits that identify it (Go's format 'g', -1, 32)."""
    if math.isnan(value):
        return "NaN"
    single = _float32(value)
    if math.isinf(single):
        return "+Inf" if single > 0 else "-Inf"
    # Nine significant digits always suffice for 32 bits.
    digits = next(text for text in (f"{single:.{n}e}" for n in range(9)) if _float32(float(text)) == single)
    mantissa, _, exponent = digits.partition("e")
    # Go's shortest 'g' has an exponent below -4 and from 6 on.
    if -4 <= int(exponent) < 6:
        return format(Decimal(digits), "f")
    return f"{mantissa}e{int(exponent):+03d}"


def _float32(value: float) -> float:
    try:
        (single,) = struct.unpack("<f", struct.pack("<f", value))
    except OverflowError:
        return math.copysign(math.inf, value)
    return float(single)
