"""Shared by all tests: the async backend and hypothesis's profiles."""

import os

import pytest
from hypothesis import HealthCheck, settings

from tests.runtime.real_time import REAL_TIME

# "default" keeps `make test` within minutes, with the same cases each time: a change is judged by what it changed.
# "long" is `make test-long`, which looks for new ones. No deadline: the machine may be busy.
settings.register_profile(
    "default", max_examples=50, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("long", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("KERF_HYPOTHESIS_PROFILE", "default"))


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    """asyncio: grpc.aio and aiohttp run nowhere else."""
    return REAL_TIME
