"""Kubernetes quantities with exact arithmetic.

The rules are those of ``k8s.io/apimachinery/pkg/api/resource`` (``Quantity``): a decimal number with a suffix of one of
three families, kept to nano precision (finer digits round up, away from zero), printed in one canonical form.
Equality, order and hashing go by value: ``1Gi == 1073741824``.
"""

import re
from functools import lru_cache
from typing import Final, Literal, final

from kerf_dra.api.errors import InvalidQuantityError

NANO: Final = 10**9
"""The number of smallest units in 1: Kubernetes keeps quantities to 1e-9 (``resource.Nano``)."""

Family = Literal["decimal", "binary", "exponent"]
"""The suffixes with which a quantity is printed: ``k M G``, ``Ki Mi Gi`` or ``e3 e6``."""

_BINARY: Final = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIX: Final = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_SYNTAX: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>\d*)(?:\.(?P<fraction>\d*))?"
    r"(?:(?P<binary>[KMGTPE]i)|(?P<decimal>[numkMGTPE])|[eE](?P<exponent>[+-]?\d+))?",
    re.ASCII,
)
MAX_DIGITS: Final = 400
"""The most digits of a number; longer ones are rejected, as by the API server: parsing costs quadratic time."""
_MAX_EXPONENT: Final = 400
"""The largest exponent; larger ones are rejected, as by the API server: ``1e999999999`` would take 100s of MB."""
_CACHE_SIZE: Final = 4096
"""The quantities that are kept, parsed, and printed, about 0.5 MB each: a cluster has few (sizes of profiles)."""


@final
class Quantity:
    """An immutable amount: an exact value and the suffix family with which it is printed.

    >>> Quantity("1.5Gi")
    Quantity('1536Mi')
    >>> Quantity("1Gi") > Quantity("1G")
    True
    """

    __slots__ = ("family", "nano")

    nano: int
    """The value in units of 1e-9."""
    family: Family

    def __new__(cls, text: str | int) -> "Quantity":
        """Parse ``text``. Raises InvalidQuantityError when it is not a quantity."""
        if isinstance(text, int) and not isinstance(text, bool):
            return _intern(text * NANO, "decimal")
        return parse_quantity(text)

    @classmethod
    def of_nano(cls, nano: int, family: Family = "decimal") -> "Quantity":
        self = object.__new__(cls)
        object.__setattr__(self, "nano", nano)
        object.__setattr__(self, "family", family)
        return self

    @classmethod
    def of_bytes(cls, count: int) -> "Quantity":
        """Return ``count`` bytes, printed with binary suffixes."""
        return _intern(count * NANO, "binary")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Quantity is immutable; cannot set {name}")

    def __reduce__(self) -> tuple[object, ...]:
        return (Quantity.of_nano, (self.nano, self.family))

    @property
    def is_integer(self) -> bool:
        return self.nano % NANO == 0

    def __int__(self) -> int:
        """The value rounded up to a whole number, as ``Quantity.Value`` does in Go."""
        return -(-self.nano // NANO)

    def __bool__(self) -> bool:
        return self.nano != 0

    def __eq__(self, other: object) -> bool:
        return self.nano == other.nano if isinstance(other, Quantity) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.nano)

    def __lt__(self, other: "Quantity") -> bool:
        return self.nano < other.nano

    def __le__(self, other: "Quantity") -> bool:
        return self.nano <= other.nano

    def __gt__(self, other: "Quantity") -> bool:
        return self.nano > other.nano

    def __ge__(self, other: "Quantity") -> bool:
        return self.nano >= other.nano

    def __add__(self, other: "Quantity") -> "Quantity":
        return Quantity.of_nano(self.nano + other.nano, self.family)

    def __sub__(self, other: "Quantity") -> "Quantity":
        return Quantity.of_nano(self.nano - other.nano, self.family)

    def __mul__(self, times: int) -> "Quantity":
        return Quantity.of_nano(self.nano * times, self.family)

    def __neg__(self) -> "Quantity":
        return Quantity.of_nano(-self.nano, self.family)

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def __str__(self) -> str:
        """The canonical form: no fraction, the largest suffix that loses nothing."""
        return _format(self.nano, self.family)


@lru_cache(maxsize=_CACHE_SIZE)
def _format(nano: int, family: Family) -> str:
    if nano == 0:
        return "0"
    if family == "binary" and nano % NANO == 0 and abs(nano) >= 1024 * NANO:
        return _binary(nano // NANO)
    return _decimal(nano, exponents=family == "exponent")


def _binary(value: int) -> str:
    suffix = ""
    for candidate in _BINARY:
        if value % 1024:
            break
        value //= 1024
        suffix = candidate
    return f"{value}{suffix}"


def _decimal(nano: int, *, exponents: bool) -> str:
    mantissa, exponent = nano, -9
    while mantissa % 1000 == 0 and exponent < 18:
        mantissa //= 1000
        exponent += 3
    if not exponents:
        return f"{mantissa}{_DECIMAL_SUFFIX[exponent]}"
    return f"{mantissa}e{exponent}" if exponent else str(mantissa)


@lru_cache(maxsize=_CACHE_SIZE)
def parse_quantity(text: str) -> Quantity:
    """Parse ``text``, as ``Quantity`` does. Raises InvalidQuantityError."""
    match = _SYNTAX.fullmatch(text) if len(text) <= MAX_DIGITS else None
    if match is None or not (match["whole"] or match["fraction"]):
        raise InvalidQuantityError(text)
    fraction = match["fraction"] or ""
    digits = int((match["whole"] or "0") + fraction)
    multiplier, shift, family = 1, -len(fraction), "decimal"
    if match["binary"]:
        multiplier, family = 1024 ** _BINARY[match["binary"]], "binary"
    elif match["exponent"]:
        exponent = int(match["exponent"])
        if abs(exponent) > _MAX_EXPONENT:
            raise InvalidQuantityError(text)
        shift, family = shift + exponent, "exponent"
    elif match["decimal"]:
        shift += _DECIMAL[match["decimal"]]
    numerator, denominator = digits * multiplier * NANO, 1
    if shift >= 0:
        numerator *= 10**shift
    else:
        denominator = 10**-shift
    nano = -(-numerator // denominator)  # finer than nano rounds up, away from zero: the sign is applied afterwards
    return _intern(-nano if match["sign"] == "-" else nano, family)


@lru_cache(maxsize=_CACHE_SIZE)
def _intern(nano: int, family: Family) -> Quantity:
    """Return the one object of a value: what is read and what is built then compare by identity."""
    return Quantity.of_nano(nano, family)
