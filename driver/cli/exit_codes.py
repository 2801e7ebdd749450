"""Exit codes of ``kerf``."""

from typing import Final

EXIT_FAILED: Final = 1
"""Something that should have worked did not."""
EXIT_BAD_INPUT: Final = 2
"""What was given is wrong; nothing was done. The same code as for a wrong option."""
EXIT_DOES_NOT_FIT: Final = 1
"""The answer to a question is no."""
EXIT_NO_ANSWER: Final = 3
"""A question could not be answered: the cluster cannot be read, or the search was given up."""
