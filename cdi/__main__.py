"""``python -m cdi``: see ``cdi.cli``."""

import sys

from cdi.cli import main

if __name__ == "__main__":
    sys.exit(main())
