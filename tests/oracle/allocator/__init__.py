"""Kubernetes' allocator as a judge, and as the peer of the bench."""

from pathlib import Path
from typing import Final

MODULE: Final = Path(__file__).parent
"""The Go module."""
