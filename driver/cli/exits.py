"""Exit codes of ``kerf``."""

from typing import Final

EXIT_FAILED: Final = 1
"""Something that should have worked did not."""
EXIT_BAD_INPUT: Final = 2
"""What was given is wrong; nothing was done. The same code as for a wrong option."""
