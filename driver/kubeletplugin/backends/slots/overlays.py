"""What is loaded, as the kernel says it: by the device tree overlays that are applied.

The daemon's table names a base design only while a slot of it is in use, and a daemon that was started again knows
nothing. But each load of a directory makes an overlay ``DIRECTORY_image_NUMBER`` in configfs, and its removal removes
that (Xilinx/libdfx, ``dfx_cfg_load`` and ``dfx_cfg_remove``), also of the base design before its packages.
"""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Final, NamedTuple

_OVERLAY: Final = re.compile(r"(.+)_image_[0-9]+")
_PACKAGE: Final = re.compile(r".+_slot[0-9]+")


class Overlays(NamedTuple):
    """The directories that are loaded, by their names."""

    bases: tuple[str, ...]
    """Those of base designs, such as ``k26_2rp``."""
    packages: tuple[str, ...]
    """Those of packages, such as ``aes-1_slot1``."""


def read_overlays(folder: Path, known: Collection[str]) -> Overlays | None:
    """Return what is loaded; None: ``folder`` cannot be read.

    The directories of packages end in their slot, unless one of the ``known`` base designs is named so.
    """
    try:
        overlays = [_OVERLAY.fullmatch(one.name) for one in folder.iterdir()]
    except OSError:
        return None
    names = sorted({one[1] for one in overlays if one is not None})
    packages = tuple(name for name in names if name not in known and _PACKAGE.fullmatch(name))
    return Overlays(bases=tuple(name for name in names if name not in packages), packages=packages)
