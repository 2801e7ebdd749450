"""Kerf's programs and the parts they are built from. See ARCHITECTURE.md for who may import whom."""

from typing import Final

DISTRIBUTION: Final = "kerf-dra"
"""The name on package indexes, where ``kerf`` is another program; the command is ``kerf``."""
VERSION: Final = "0.1.0"
"""Kerf's version, as in ``pyproject.toml``; here, so that a program knows it that was not installed as a package."""
