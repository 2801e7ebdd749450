"""Runs the command line of ``cdi.cli`` as ``python -m cdi``."""

import sys

from cdi.cli import main

if __name__ == "__main__":
    sys.exit(main())
