"""Many claims of simulated time leave nothing behind, and their memory is flat."""

from typing import Any

import pytest

from tests.conftest import PROFILE, SEED
from tests.soak import node
from tests.soak.__main__ import run_in_processes
from tests.soak.memory import GROWTH_MIB, OBJECTS_GROWTH, Memory, is_flat
from tests.soak.run import soak

CLAIMS = 100_000
"""Of `make test-long`."""
PARTS = 2
"""Each in a process of its own, some minutes long: it takes many claims to see memory grow."""


def test_some_claims_come_and_go_under_faults() -> None:
    report = soak(150, seed=1)
    assert report.violations == []
    assert report.claims == 150
    assert report.restarts > 0


@pytest.mark.long
@pytest.mark.skipif(PROFILE == "default", reason="make test-long")
@pytest.mark.parametrize("part", range(PARTS))
def test_a_hundred_thousand_claims_leave_nothing_and_the_memory_is_flat(part: int) -> None:
    (report,) = run_in_processes(CLAIMS // PARTS, 1, seed=SEED + part)
    assert report.violations == []
    assert report.is_flat, report.memory
    assert report.claims == CLAIMS // PARTS


def test_hardware_that_keeps_a_partition_now_and_then_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class LeakyBackend(node.SoakBackend):
        releases = 0

        def unprepare(self, handle: Any) -> None:
            self.releases += 1
            if self.releases % 4:
                super().unprepare(handle)

    monkeypatch.setattr(node, "SoakBackend", LeakyBackend)
    assert len(soak(60, seed=2).violations) == 1


def test_memory_that_grows_is_not_flat() -> None:
    first = Memory(rss_mib=70.0, objects=90_000)
    assert is_flat(first, Memory(rss_mib=70.0 + GROWTH_MIB, objects=90_000 + OBJECTS_GROWTH))
    assert not is_flat(first, Memory(rss_mib=70.1 + GROWTH_MIB, objects=90_000))
    assert not is_flat(first, Memory(rss_mib=70.0, objects=90_001 + OBJECTS_GROWTH))
