"""Tests do not sleep: they wait on the virtual clock, or for a condition. Where real time passes is listed, and why.

Modules on the virtual clock (``tests/runtime/virtual_time.py``) may sleep as they like. Tools are judged as tests are,
because tests run some of them. Benchmarks are no tests.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
TESTS: Final = ROOT / "tests"
CLOCK: Final = TESTS / "runtime/virtual_time.py"
"""The virtual clock itself, whose ``pass_time`` refuses to let real time pass."""
SLEEPS: Final = {"time.sleep", "anyio.sleep", "asyncio.sleep"}

POLLS: Final = {
    "attack/test_exhaustion.py": "a thread that is idle again sets no event",
    "attack/test_server_answers.py": "a server that trickles sends a byte now and then, until its client gives up",
    "cdi/runtimes/conftest.py": "containerd has started when its socket is there",
    "cli/test_drain.py": "the API server is asked as its clients ask it",
    "controller/classic/cluster.py": "the controller writes to an API server behind sockets",
    "controller/large_cluster_controller.py": "the API server is asked what the controller has written",
    "controller/test_app.py": "the controller writes to an API server behind sockets",
    "e2e/churn.py": "pods of a real cluster live for some seconds each",
    "e2e/conftest.py": "a real node's slices have settled when they are the same after a while",
    "e2e/test_both_kinds.py": "what a class keeps changes every some seconds while pods come and go",
    "e2e/test_rolling_update.py": "pods come and go on a real cluster during an update",
    "e2e/wait.py": "a real cluster is asked",
    "e2e/why_audit.py": "the pods of a real cluster are listed while tests run",
    "fakes/kubelet.py": "the plugin's socket appears in a directory, which sets no event",
    "flows/test_card_maintenance.py": "the embedded cluster is asked as its users ask it",
    "flows/test_discovered_devices.py": "the embedded cluster is asked as its users ask it",
    "flows/test_discovery_handlers.py": "the embedded cluster is asked as its users ask it",
    "flows/test_early_preparation.py": "the embedded cluster is asked as its users ask it",
    "flows/test_lean_installation.py": "the embedded cluster is asked as its users ask it",
    "kube/test_against_the_embedded_cluster.py": "the API server is asked as its clients ask it",
    "kubeletplugin/cluster/test_classic.py": "the API server is asked as its clients ask it",
    "kubeletplugin/cluster/test_structured.py": "the API server is asked as its clients ask it",
    "kubeletplugin/deviceplugin/test_discovered_devices.py": "the API server is asked as its clients ask it",
    "kubeletplugin/discovery_handlers/test_on_an_api_server.py": "the API server is asked as its clients ask it",
    "kubeletplugin/fault_points/mps_daemons.py": "a daemon of MPS is asked for by a file of another process",
    "kubeletplugin/test_hand_cuts.py": "the API server is asked as its clients ask it; hardware is a file",
    "kubeletplugin/backends/nvidia/test_devices.py": "the API server is asked as its clients ask it",
    "kubeletplugin/backends/nvidia/test_lost_cards.py": "the plugin makes partitions again by itself",
    "kubeletplugin/backends/nvidia/test_plugin_health.py": "an Xid that nobody hears is lost: it is reported again",
    "kubeletplugin/test_with_the_embedded_cluster.py": "the API server is asked as its clients ask it",
    "kubeletplugin/wait.py": "what the plugin does by itself is seen in files and stand-ins",
    "kubeletplugin/watchdog_process.py": "the kubelet asks again as long as a claim cannot be prepared",
    "local/test_device_plugins.py": "a socket appears in a directory, which sets no event; the API server is asked",
    "local/test_kubelet.py": "the watcher of a directory sets no event",
    "oracle/kubelet_dra/node.py": "a kubelet calls again until the plugin, a process, is there",
    "oracle/kubelet_dra/test_drivers_of_others.py": "the same",
    "oracle/nvidia_driver/drivers.py": "drivers are processes that register by a file and publish to an API server",
    "oracle/sanity/test_peers.py": "the same",
    "sanity/toy_driver.py": "the API server is asked whether the slices are there",
    "tools/mutants/test_processes.py": "processes are asked whether they have ended",
    "tools/mutants/processes.py": "processes are asked whether they have ended",
    "tools/mutants/trials.py": "processes are asked whether they have ended",
    "tools/demo_metrics.py": "the programs of a demo are asked for their metrics once a second",
    "tools/environment.py": "pip is asked how far it is",
    "tools/realcluster/cluster.py": "a real control plane is asked whether it serves",
    "tools/realcluster/kerf.py": "processes of Kerf are asked whether they are ready",
    "tools/realcluster/kueue.py": "a process beside a real cluster is asked whether it is ready",
    "tools/realcluster/machine.py": "a machine is up when its first process has made a file",
    "tools/realcluster/nvidia_driver.py": "a process beside a real cluster is asked whether it is ready",
    "tools/realcluster/processes.py": "the kernel is asked for processes that start and end",
}
"""Modules that look again and again, in real time and within a bound, for what sets no event in their process."""

PAUSES: Final = {
    "e2e/test_restarts.py": "the API server is to be away for longer than clients' first retries",
    "e2e/test_whole_cards.py": "what was published first is to be what is published once a real node has settled",
    "fakes/dfx/daemon.py": "a load is to take longer than the scheduler of a real cluster takes to bind a pod",
    "gpu/test_samples_of_use.py": "a card is measured between two moments",
    "kube/test_against_the_embedded_cluster.py": "the leader stays until the other one, behind a socket, waits for it",
    "kubeletplugin/test_rolling_update.py": "an instance is to be still waiting after it has looked at the lock again",
}
"""Modules that let real time pass."""


class Sleep(NamedTuple):
    """One call that sleeps in real time."""

    module: str
    line: int
    is_poll: bool


def real_sleeps(module: str, text: str) -> Iterator[Sleep]:
    """The calls of a module's ``text`` that let time pass; with the virtual clock as its backend, none does."""
    tree = ast.parse(text)
    backends = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "anyio_backend")
    if any("VIRTUAL_TIME" in ast.unparse(backend.body[-1]) for backend in backends):
        return
    virtual = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.AsyncFunctionDef)
        and any(
            {"anyio_backend", "VIRTUAL_TIME"} <= set(re.findall(r"\w+", ast.unparse(each)))
            for each in node.decorator_list
        )
        for inner in ast.walk(node)
    }
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.While)]
    polls = {id(inner) for loop in loops for inner in ast.walk(loop)}
    for node in ast.walk(tree):
        is_sleep = isinstance(node, ast.Call) and ast.unparse(node.func) in SLEEPS and id(node) not in virtual
        if isinstance(node, ast.Call) and is_sleep and ast.unparse(node.args[0]) != "0":
            yield Sleep(module, node.lineno, id(node) in polls)


def sources() -> list[Path]:
    """The modules of the tests and of the tools."""
    return [*sorted(TESTS.rglob("*.py")), *sorted((ROOT / "tools").rglob("*.py"))]


def found() -> list[Sleep]:
    paths = [path for path in sources() if not path.is_relative_to(TESTS / "bench") and path != CLOCK]
    assert len(paths) > 100, "these are the project's tests"
    texts = {path.relative_to(ROOT).as_posix().removeprefix("tests/"): path.read_text() for path in paths}
    return [sleep for module, text in texts.items() if "sleep(" in text for sleep in real_sleeps(module, text)]


def test_whoever_polls_in_real_time_is_listed_with_the_reason() -> None:
    assert {sleep.module for sleep in found() if sleep.is_poll} == set(POLLS)


def test_whoever_lets_real_time_pass_is_listed_with_the_reason() -> None:
    assert {sleep.module for sleep in found() if not sleep.is_poll} == set(PAUSES)


def test_sleep_is_not_imported_by_its_bare_name() -> None:
    """It would not be found above."""
    bare = re.compile(r"^\s*from (time|anyio|asyncio) import .*\bsleep\b", re.MULTILINE)
    assert bare.search("import time\nfrom time import monotonic, sleep\n")
    assert [path for path in sources() if bare.search(path.read_text())] == []


def test_a_sleep_counts_unless_it_is_on_the_virtual_clock_or_of_no_time() -> None:
    text = "def wait():\n    anyio.sleep(1)\n    asyncio.sleep(0)\n    while True:\n        time.sleep(2)\n"
    assert list(real_sleeps("a.py", text)) == [Sleep("a.py", 2, is_poll=False), Sleep("a.py", 5, is_poll=True)]
    assert list(real_sleeps("a.py", f"{text}\ndef anyio_backend():\n    return VIRTUAL_TIME\n")) == []
    one = '@parametrize("anyio_backend", [VIRTUAL_TIME])\nasync def test():\n    anyio.sleep(1)\n'
    assert list(real_sleeps("a.py", one)) == []
