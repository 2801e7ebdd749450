"""Configuration of all tests: the async backend, hypothesis's profiles, and time limits."""

import faulthandler
import gc
import os
import sys
from collections.abc import Iterator
from random import Random
from typing import Final

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from hypothesis import HealthCheck, settings
from pytest_timeout import Settings

from tests.runtime.real_time import REAL_TIME

# "default" keeps `make test` within minutes, with the same seeds each time: a change is judged by what it changed. The
# cases are the same where the same modules of Kerf are loaded, because hypothesis draws some of their constants, too
# (it has no setting against that): a test that is run by itself may have other ones.
# "long" is `make test-long`, which looks for new ones within half an hour on two cores; "all" is the same without that
# limit. No deadline: the machine may be busy.
settings.register_profile(
    "default", max_examples=30, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
for _name, _examples in {"long": 200, "all": 2000}.items():
    settings.register_profile(
        _name, max_examples=_examples, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
PROFILE: Final = os.environ.get("KERF_HYPOTHESIS_PROFILE", "default")
settings.load_profile(PROFILE)
SEED: Final = int(os.environ.setdefault("KERF_SEED", str(Random().randrange(10**9))))
"""Chooses which schedules and claims a run of these profiles tries; the processes of pytest-xdist inherit it, and the
end of the run prints it."""

IS_LONG: Final = PROFILE != "default"
COSTLY: Final = settings(max_examples=settings().max_examples if IS_LONG else 15)
"""Of properties that would cost a second of the processor and more in `make test`, which has the same cases each time:
most breaks show in the first cases, and `make test-long` looks for the others with all of its own."""

_FIRST: Final = ("tests/flows/", "tests/testing/", "tests/structure/")
"""Folders whose tests one process has, one after the other: demos of up to a quarter of a minute, which wait most of
the time, and what reads all modules once in a process. (pytest-xdist gives each process an equal part of the list, and
those that have no others left take from the end of another's.)"""

LIMITS_S: Final = {"realcluster": 1800, "oracle": 1800, "long": 3600}
"""For tests with these marks instead of the limit in pyproject.toml: real clusters start and settle, oracles
compare thousands of cases, and "long" has four times the generated cases."""
_TO_RETURN_S: Final = 15
"""At its limit a test is interrupted as soon as Python code runs again. One that has not ended so much later, because a
C call or a fixture hangs, ends its process: pytest-xdist reports the crash of that test and goes on with the others."""
_LAST_S: Final = pytest.StashKey[float]()
"""The seconds after which the process of a test is ended."""

# Collecting some 11,000 tests makes objects that stay. Looking for garbage among them again and again takes as long
# as the collecting itself (17.6 s of the processor in each process, 8.2 without), so they are left out, then and later.
gc.disable()
_GARBAGE: Final = (50_000, 20, 20)
"""Generated cases, documents and event loops make objects by the hundred thousand: looking for cycles after each 700
takes a tenth of the processor's time of many tests."""


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(*_GARBAGE)
    gc.enable()


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("property")
        marks = [mark for mark in LIMITS_S if item.get_closest_marker(mark) or (mark == "long" and IS_LONG)]
        if marks and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(max(LIMITS_S[mark] for mark in marks)))
    # Those that take longest first: processes that have no others left share out the short ones.
    if IS_LONG:
        items.sort(key=lambda item: item.get_closest_marker("long") is None)
    else:
        items.sort(key=lambda item: not item.nodeid.startswith(_FIRST))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if IS_LONG:
        terminalreporter.write_line(f"the same schedules and claims again: KERF_SEED={SEED}")


def pytest_timeout_set_timer(item: pytest.Item, settings: Settings) -> None:
    item.stash[_LAST_S] = settings.timeout + _TO_RETURN_S
    _set_watchdog(item)


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Set the watchdog again: pytest and its plugins cancel their timers when a test fails, and fixtures may hang,
    too."""
    _set_watchdog(item)


def _set_watchdog(item: pytest.Item) -> None:
    """Start the interpreter's watchdog, which needs no lock; it writes the stacks, which name the test."""
    if _LAST_S in item.stash and not item.config.getoption("usepdb"):
        file = item.config.stash[fault_handler_stderr_fd_key]
        faulthandler.dump_traceback_later(item.stash[_LAST_S], exit=True, file=file)


def pytest_runtest_logfinish() -> None:
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    """The backend asyncio, the only one for grpc.aio and aiohttp."""
    return REAL_TIME


@pytest.fixture(autouse=True)
def nvml_of_one_test() -> Iterator[None]:
    """End what a test has left open of NVML, and take back its choice of a machine: a test that fails in the middle of
    its work on stand-in cards would hand them to all that follow in this process.
    """
    yield
    if "pynvml" in sys.modules:
        from kerf_dra.driver.testing.nvml.machine import MACHINE_VARIABLE
        from tests.fakes.nvml import end_sessions

        end_sessions()
        os.environ.pop(MACHINE_VARIABLE, None)
