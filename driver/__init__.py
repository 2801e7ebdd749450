"""Kerf's programs and the parts they are built from. See ARCHITECTURE.md for who may import whom."""

from typing import Final

DISTRIBUTION: Final = "kerf-dra"
"""The name on package indexes, where ``kerf`` is another program; the command is ``kerf``."""
VERSION: Final = "0.1.0"
"""Kerf's version, as in ``pyproject.toml``; here, so that a program knows it that was not installed as a package."""


def describe_left_out(what: str, package: str) -> str:
    """Return a sentence about a part of Kerf that imitates a cluster or hardware, which this installation lacks."""
    return (
        f"{what} is not in this installation, which was built without simulated hardware (there is no {package}): "
        f"build the image with `make image ARGS=--with-simulated`, or install the whole package {DISTRIBUTION}"
    )
