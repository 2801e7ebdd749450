"""Runs the command line of ``kerf_dra.cdi.cli`` as ``python -m cdi``."""

import sys

from kerf_dra.cdi.cli import main

if __name__ == "__main__":
    sys.exit(main())
