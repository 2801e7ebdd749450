"""The string and integer types of Kerf's documents: their syntax, and their name in error messages (``title``).

Patterns mean the same in Python and in RE2, which evaluates them in the CRD: they are anchored and without look-around.
Every string has a ``max_length``, which bounds the cost of patterns and CRD rules.
"""

from typing import Annotated, Final, TypeAlias

import msgspec

_SUBDOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_NAME: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"

DNS_LABEL: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"

IDENTIFIER: Final = r"^[A-Za-z_][A-Za-z0-9_]*$"
"""The syntax of map keys that messages write like fields (``spec.minimum.memory``): they need no brackets."""

POSITIVE_QUANTITY: Final = (
    r"^\+?([0-9]*[1-9][0-9]*(\.[0-9]*)?|[0-9]*\.[0-9]*[1-9][0-9]*)"
    r"([KMGTPE]i|[numkMGTPE]|[eE][+-]?0*([1-3]?[0-9]{1,2}|400))?$"
)
"""The syntax of quantities above zero: a digit of the number is not 0. Exponents are at most 400
(``kerf_dra.api.model.quantity``)."""

_MAX_INT: Final = 2**31 - 1
"""The largest integer: valid in every language, more than any count of hardware, and 68 years in seconds."""

PositiveInt: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=_MAX_INT)]
Seconds: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=_MAX_INT)]

DeviceWord: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[A-Za-z0-9]([A-Za-z0-9._+-]*[A-Za-z0-9])?$",
        max_length=64,  # such words are string attributes of devices (DeviceAttributeMaxValueLength)
        title="name of a model, profile or function (letters, digits, '.', '_', '+', '-'; at most 64)",
    ),
]

FamilyName: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern=DNS_LABEL,
        max_length=63,  # a DNS label
        title="name of a family of devices such as gpu (a DNS label: lower-case letters, digits, '-'; at most 63)",
    ),
]

CapacityName: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern=IDENTIFIER,
        max_length=32,  # names of capacities without a domain (DeviceMaxIDLength)
        title="name of a capacity such as memory (a C identifier; at most 32 characters)",
    ),
]

DriverVersion: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[0-9]+(\.[0-9]+)*$",
        max_length=32,  # drivers have three or four numbers
        title="version of a driver such as 550.54.15",
    ),
]

MinimumDriverVersion: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[0-9]{1,9}(\.[0-9]{1,9}){0,2}$",
        max_length=29,  # three numbers, which is what the attribute driverVersion has of a version
        title="version of a driver such as 550.54.15 (at most three numbers)",
    ),
]

NodeName: TypeAlias = Annotated[str, msgspec.Meta(pattern=f"^{_SUBDOMAIN}$", max_length=253, title="node name")]

LabelKey: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern=f"^({_SUBDOMAIN}/)?{_NAME}$",
        max_length=317,  # a domain of 253, a slash, a name of 63
        title="label key such as example.com/rack",
    ),
]

LabelValue: TypeAlias = Annotated[
    str, msgspec.Meta(pattern=f"^({_NAME})?$", max_length=63, title="label value (letters, digits, '-', '_', '.')")
]

TaintKey: TypeAlias = Annotated[
    str, msgspec.Meta(pattern=f"^(({_SUBDOMAIN}/)?{_NAME})?$", max_length=317, title="taint key")
]
"""A label key, or empty for every taint."""

ExtendedResourceName: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        # `IsExtendedResourceName` of Kubernetes, except its ban on kubernetes.io, which is a cross-field rule
        pattern=f"^{_SUBDOMAIN}/{_NAME}$",
        max_length=308,  # quotas spell it "requests.<domain>/<name>": 253 - 9 for the domain, a slash, 63
        title="extended resource name such as example.com/gpu",
    ),
]
