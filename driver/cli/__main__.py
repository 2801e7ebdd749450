"""``python -m driver.cli``: the same as ``kerf``, for child processes that must run this very interpreter."""

import sys

from driver.cli import main

sys.exit(main())
