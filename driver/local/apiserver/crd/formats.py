"""String formats of schemas. Formats that are not in this table are not checked, as in Kubernetes."""

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable, Mapping
from datetime import date
from typing import Final

from driver.local.apiserver.times import parsed

_UUID: Final = "(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}"
_DURATION: Final = r"[-+]?(\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h|d|w)([-+]?(\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h))*|0"
_DATE_TIME: Final = r"\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})"
_EMAIL: Final = r"[^@\s]+@[^@\s]+"
_LABEL: Final = "[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?"
_HOSTNAME: Final = rf"{_LABEL}|({_LABEL}\.)+[A-Za-z]{{2,63}}"


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error:
        return False
    return True


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return len(text) == len("2006-01-02")


def _is_date_time(text: str) -> bool:
    return bool(re.fullmatch(_DATE_TIME, text)) and parsed(text.upper()) is not None


def _is_address(version: int) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            return ipaddress.ip_address(text).version == version
        except ValueError:
            return False

    return check


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return "/" in text


def _matching(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern)
    return lambda text: compiled.fullmatch(text) is not None


FORMATS: Final[Mapping[str, Callable[[str], bool]]] = {
    "byte": _is_base64,
    "cidr": _is_network,
    "date": _is_date,
    "date-time": _is_date_time,
    "duration": _matching(_DURATION),
    "email": _matching(_EMAIL),
    "hostname": _matching(_HOSTNAME),
    "ipv4": _is_address(4),
    "ipv6": _is_address(6),
    "uuid": _matching(_UUID),
}
