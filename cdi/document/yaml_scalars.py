"""Unquoted YAML scalars as readers in Go understand them: YAML 1.1, with the habits of its Go implementation.

The rules are those of ``resolve`` in go-yaml v2, and of what sigs.k8s.io/yaml then makes of a number that stands where
a text is wanted. They differ from PyYAML's: ``1e3`` and ``0o17`` are numbers, ``y`` is a boolean, ``12:30`` is a text.
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
# A leading zero alone means octal; a digit that is not octal makes the whole a float (08 is 8.0), and so does a number
# of more digits than 64 bits have.
_INTEGER = re.compile(
    r"(?P<sign>[-+]?)(?:0[xX](?P<x>[0-9a-fA-F]+)|0[bB](?P<b>[01]+)|0[oO]?(?P<o>[0-7]+)|(?P<d>0|[1-9]\d{0,19}))",
    re.ASCII,
)
# Go reads the digits of 0b11 on their own, sign and all, when nothing else fits.
_SIGNED_BINARY = re.compile(r"0b([-+][01]+)")
_FLOAT = re.compile(r"[-+]?(?:\.\d+|\d+(?:\.\d*)?)(?:[eE][-+]?\d+)?", re.ASCII)
# Go drops underscores from every number before it looks, but not if a dot comes first: then they must separate digits.
_DOT_FLOAT = re.compile(r"\.\d+(?:_\d+)*(?:[eE][-+]?\d+(?:_\d+)*)?", re.ASCII)
_BASES = {"x": 16, "b": 2, "o": 8, "d": 10}


_TIME = r"\d{1,2}:\d{1,2}:\d{1,2}(?:\.\d+)?"
# Go also looks whether the day exists. Who tags a text of a spec as a time, and errs at that, is let off.
_TIMESTAMP = re.compile(rf"\d{{4}}-\d{{1,2}}-\d{{1,2}}(?:[Tt]{_TIME}(?:Z|[-+]\d\d:\d\d)| {_TIME})?", re.ASCII)

STANDARD_TAG = "tag:yaml.org,2002:"
"""What ``!!`` stands for."""

_TAGS: dict[type, str] = {int: "int", float: "float", bool: "bool", type(None): "null"}


def resolve(text: str) -> Value:
    """What the bare scalar ``text`` means.

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
        # Signed or else unsigned 64 bits; beyond that a number is a float.
        if -INT64_MAX - 1 <= number < 2**64:
            return number
    binary = _SIGNED_BINARY.fullmatch(digits)
    if binary:
        return int(binary[1], 2)
    if _FLOAT.fullmatch(digits) and math.isfinite(float(digits)):
        return float(digits)
    return text


def resolve_tagged(tag: str, text: str) -> Value:
    """What ``text`` means under an explicit tag, given without ``STANDARD_TAG``. A tag nobody knows means text.

    Errors: ValueError when the text is not what the tag says.
    """
    if tag == "binary":
        data = base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True)
        # Go replaces each bad byte on its own, Python's "replace" some of them together.
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
    """What a text field holds when a document gives ``value`` there.

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
    """Whether readers can make a key of ``value``: of null and of what only fits unsigned 64 bits they cannot."""
    return value is not None and not (isinstance(value, int) and value > INT64_MAX)


def as_key(value: Value) -> str:
    """What the key is that a document gives as ``value``: as a text field, but infinities and NaN stay as in YAML."""
    text = as_text(value)
    return {"+Inf": ".inf", "-Inf": "-.inf", "NaN": ".nan"}.get(text, text)


def as_integer(value: Value) -> int | None:
    """The whole number that ``value`` is, or None. A float counts as the shortest decimal that stands for it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int):
        return value
    # Go writes a float with an exponent from here on, which no integer field takes.
    if not abs(value) < 1e21:
        return None
    decimal = Decimal(repr(value))
    return int(decimal) if decimal == decimal.to_integral_value() else None


def _float32_text(value: float) -> str:
    """``value`` rounded to 32 bits, in the fewest digits that tell it from its neighbours (Go's format 'g', -1, 32)."""
    if math.isnan(value):
        return "NaN"
    single = _float32(value)
    if math.isinf(single):
        return "+Inf" if single > 0 else "-Inf"
    # Nine significant digits always suffice for 32 bits.
    digits = next(text for text in (f"{single:.{n}e}" for n in range(9)) if _float32(float(text)) == single)
    mantissa, _, exponent = digits.partition("e")
    # Go's 'g' writes an exponent below -4 and from 6 on when it is free to choose the digits.
    if -4 <= int(exponent) < 6:
        return format(Decimal(digits), "f")
    return f"{mantissa}e{int(exponent):+03d}"


def _float32(value: float) -> float:
    try:
        (single,) = struct.unpack("<f", struct.pack("<f", value))
    except OverflowError:
        return math.copysign(math.inf, value)
    return float(single)
