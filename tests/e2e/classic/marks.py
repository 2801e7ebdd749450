"""Marks for tests of features that only some releases have."""

from typing import Final

import pytest

from tests.e2e.classic.dialects import dialect_of
from tools.realcluster.environment import chosen_classic_version

_dialect: Final = dialect_of(chosen_classic_version().resource_version)

immediate: Final = pytest.mark.skipif(
    not _dialect.has_immediate, reason=f"{_dialect.api_version} has no claims that are allocated without a pod"
)
referring: Final = pytest.mark.skipif(
    not _dialect.refers, reason=f"{_dialect.api_version} has parameters in claims, where they cannot change"
)
