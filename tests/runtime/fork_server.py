"""Processes of tests that start with their modules loaded: forks of a server that has imported them (multiprocessing).

A new interpreter takes half a second of processor time to import the plugin, a fork some milliseconds.
"""

from collections.abc import Callable
from multiprocessing import get_context
from typing import Final

_LOADED: Final = (
    "pytest",  # a fork imports its parent's __main__
    "tests.kubeletplugin.watchdog_process",
    "tests.kubeletplugin.backends.nvidia.node",
    "tests.kubeletplugin.backends.simulated.machine",
    "tests.kubeletplugin.backends.slots.machine",
    "tests.kubeletplugin.backends.simulated.step_process",
)
_LONGEST_S: Final = 240.0
"""A process that has not ended by then hangs, and is killed."""


def run_in_fork(work: Callable[..., None], *arguments: object) -> int:
    """Call a function in a process of its own; returns its exit code, or less than 0: the signal that killed it."""
    context = get_context("forkserver")
    context.set_forkserver_preload([*_LOADED])
    process = context.Process(target=work, args=arguments)
    process.start()
    process.join(_LONGEST_S)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise TimeoutError(f"{work.__module__} has not ended after {_LONGEST_S} s")
    code = process.exitcode
    process.close()
    return code
