"""Calls share NVML, an act has it alone, and neither waits without end for the other."""

import threading
from collections.abc import Callable

import pytest

from kerf_dra.driver.kubeletplugin.backends.nvidia.nvml.exclusive_use import ExclusiveUse

LONGEST_S = 60.0


def in_thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_an_act_waits_for_the_calls_that_run_and_calls_wait_for_the_act() -> None:
    use, order = ExclusiveUse(), list[str]()
    is_running, may_end, act_runs, act_ends = (threading.Event() for _ in range(4))

    def call() -> None:
        with use.shared():
            is_running.set()
            assert may_end.wait(LONGEST_S)
            order.append("call")

    def act() -> None:
        with use.exclusive("reset"):
            order.append("act")
            act_runs.set()
            assert act_ends.wait(LONGEST_S)

    def later() -> None:
        with use.shared():
            order.append("later")

    threads = [in_thread(call)]
    assert is_running.wait(LONGEST_S)
    threads.append(in_thread(act))
    may_end.set()
    assert act_runs.wait(LONGEST_S)
    threads.append(in_thread(later))
    threads[2].join(0.05)
    assert order == ["call", "act"]
    act_ends.set()
    for thread in threads:
        thread.join(LONGEST_S)
    assert order == ["call", "act", "later"]


def test_a_call_inside_another_one_does_not_wait_for_an_act_that_waits_for_it() -> None:
    use, done = ExclusiveUse(), threading.Event()
    with use.shared():
        thread = in_thread(lambda: _act(use, done))
        thread.join(0.05)
        with use.shared():
            assert not done.is_set()
    thread.join(LONGEST_S)
    assert done.is_set()


def test_an_act_that_raises_leaves_nothing_locked() -> None:
    use = ExclusiveUse()
    with pytest.raises(ZeroDivisionError), use.exclusive("reset"):
        raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError), use.shared():
        raise ZeroDivisionError
    with use.exclusive("reset"):
        pass
    with use.shared():
        pass


def _act(use: ExclusiveUse, done: threading.Event) -> None:
    with use.exclusive("reset"):
        done.set()
