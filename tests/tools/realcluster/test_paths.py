"""Ports of the clusters on one machine."""

import subprocess
import sys
from dataclasses import astuple

from tools.realcluster.paths import BLOCK, free_port, free_ports

GIVE = "from tools.realcluster.paths import free_port; print(free_port(), flush=True); input()"


def test_processes_that_live_at_the_same_time_are_given_different_ports() -> None:
    own = {*astuple(free_ports()), free_port()}
    with subprocess.Popen([sys.executable, "-c", GIVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        given = int(other.stdout.readline())
        other.kill()
    assert {given // BLOCK}.isdisjoint(port // BLOCK for port in own)


def test_a_port_is_not_given_again_while_it_may_still_be_needed() -> None:
    assert len({free_port() for _ in range(BLOCK // 2)}) == BLOCK // 2
