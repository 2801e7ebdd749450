"""``python -m kerf_dra.driver.cli``: the same as ``kerf``, for child processes that must run this very interpreter."""

import sys

from kerf_dra.driver.cli import main

sys.exit(main())
