"""Concurrent runs use different instances, and none ends the cluster of another."""

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.realcluster import instances
from tests.realcluster.instances import BY_HAND, COUNT, NoInstanceError, free_instance

HOLD = """
import sys
from pathlib import Path
from tests.realcluster.instances import free_instance
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
