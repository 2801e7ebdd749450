"""Kubernetes' allocator as an oracle, and as the baseline of the benchmark."""

from pathlib import Path
from typing import Final

MODULE: Final = Path(__file__).parent
"""The Go module."""
