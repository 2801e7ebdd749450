"""Concurrent runs use different instances, and none ends the cluster of another."""

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tools.realcluster import instances
from tools.realcluster.cluster import ready_s
from tools.realcluster.instances import BY_HAND, COUNT, NoInstanceError, free_instance, name_root, started_by_hand
from tools.realcluster.paths import ClusterPaths

HOLD = """
import sys
from pathlib import Path
from tools.realcluster.instances import free_instance
with free_instance(Path(sys.argv[1]), "1.37") as instance:
    print(instance, flush=True)
    sys.stdin.read()
"""


def test_whoever_comes_has_a_number_of_their_own(tmp_path: Path) -> None:
    with free_instance(tmp_path, "1.37") as first, free_instance(tmp_path, "1.37") as second:
        assert len({first, second, BY_HAND}) == 3
        with free_instance(tmp_path, "1.30") as other_release:
            assert other_release == first


def test_a_number_is_free_again_when_its_process_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        theirs = int(holder.stdout.readline())
        with free_instance(tmp_path, "1.37") as mine:
            assert mine != theirs
        holder.kill()
        holder.wait()
        with free_instance(tmp_path, "1.37") as mine:
            assert mine == theirs


def test_when_all_are_in_use_it_says_so(tmp_path: Path) -> None:
    with ExitStack() as stack:
        for _ in range(COUNT - 1):
            stack.enter_context(free_instance(tmp_path, "1.37"))
        with pytest.raises(NoInstanceError, match=f"{COUNT - 1} clusters of Kubernetes 1.37 run already"):
            stack.enter_context(instances.free_instance(tmp_path, "1.37"))


def test_down_ends_what_a_person_has_started_and_no_cluster_of_a_test(tmp_path: Path) -> None:
    for name in (name_root("1.37", BY_HAND), name_root("1.37", 1), name_root("1.37", 12), name_root("1.30", 1)):
        (tmp_path / name).mkdir()
        ClusterPaths(tmp_path / name).state.touch()
    (tmp_path / name_root("1.31", BY_HAND)).mkdir()  # being started, or being removed
    assert started_by_hand(tmp_path, ["1.30", "1.31", "1.37"]) == [tmp_path / "1.37"]
    assert started_by_hand(tmp_path, ["1.30"]) == []
    assert started_by_hand(tmp_path / "none", ["1.37"]) == []


@pytest.mark.parametrize(("load", "limit_s"), [(0.0, 120), (2.0, 120), (6.0, 360), (100.0, 600)])
def test_waiting_times_follow_the_load(load: float, limit_s: float) -> None:
    assert ready_s(load, cores=2) == limit_s
