"""Chromium of Debian, for the tests of ``kerf view`` and the pictures of its pages.

``python -m tools.browser`` installs it where it is missing, as root.
"""

import os
import shutil
import sys
from pathlib import Path
from typing import Final

from tools.realcluster.requirements import MissingRequirementsError, install_packages

PACKAGE: Final = "chromium"
"""Debian's package, which has the program of this name."""


def find_chromium() -> Path:
    """Return the program, installed now where it is missing. Raises MissingRequirementsError."""
    if shutil.which(PACKAGE) is None:
        if os.geteuid() or shutil.which("apt-get") is None:
            raise MissingRequirementsError(f"there is no {PACKAGE}: install the package {PACKAGE} (Debian's name)")
        install_packages([PACKAGE])
    return Path(shutil.which(PACKAGE) or f"/usr/bin/{PACKAGE}")


def main() -> int:
    try:
        find_chromium()
    except MissingRequirementsError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
