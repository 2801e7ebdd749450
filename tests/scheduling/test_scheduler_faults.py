"""Known faults of kube-scheduler, and in which releases Kerf leaves off what they would harm."""

import re
from pathlib import Path

import pytest

from kerf_dra.driver.scheduling.scheduler_faults import FAULTS, Feature, Release, find_fault
from tools.generate import compatibility


@pytest.mark.parametrize(
    ("release", "issue"),
    [
        (Release(1, 33, 9), None),
        (Release(1, 34, 0), "kubernetes/kubernetes#139034"),
        (Release(1, 35, 10), "kubernetes/kubernetes#139034"),
        (Release(1, 36, 0), "kubernetes/kubernetes#139034"),
        (Release(1, 36, 1), "kubernetes/kubernetes#139034"),
        (Release(1, 36, 2), None),
        (Release(1, 36, 10), None),
        (Release(1, 37, 0), None),
    ],
    ids=str,
)
def test_shares_are_left_off_where_they_are_given_twice(release: Release, issue: str | None) -> None:
    fault = find_fault(release, Feature.SHARES)
    assert (fault.issue if fault else None) == issue


def test_a_fault_without_a_fix_affects_every_release_since_its_first() -> None:
    (fault,) = (fault for fault in FAULTS if fault.fixed_in is None)
    assert not fault.affects(Release(1, 32, 2))
    assert fault.affects(Release(1, 99, 0))
    assert fault.releases == "1.33.0 and later"


def test_every_fault_names_its_thread_and_is_a_range_of_releases() -> None:
    for fault in FAULTS:
        assert re.fullmatch(r"[a-z-]+/[a-z-]+#\d+", fault.issue)
        assert fault.fixed_in is None or fault.since < fault.fixed_in
        assert not fault.measure.endswith(".")


def test_the_page_of_releases_has_the_table(tmp_path: Path) -> None:
    (path,) = compatibility.generate(tmp_path)
    assert (compatibility.ROOT / path).read_text() == (tmp_path / path).read_text(), "run `make generate`"
    assert "kubernetes/kubernetes#139034" in (tmp_path / path).read_text()
