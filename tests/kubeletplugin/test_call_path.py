"""The call path from the kubelet to the hardware: the functions of the plugin that a claim passes through."""

import ast
import inspect
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

import pytest

from kerf_dra.driver import kubeletplugin
from kerf_dra.driver.kubeletplugin.backends.card_executor import CallQueue, CardExecutor
from kerf_dra.driver.kubeletplugin.grpc.dra_service import NodeClaimService
from kerf_dra.driver.runtime.concurrency import SingleFlight
from tests.fakes.claims import claim
from tests.fakes.hardware import FakeBackend
from tests.kubeletplugin.harness import machine

LONGEST: Final = 11
"""Functions from the service's method, which counts, to the backend's, which does not: nine in the event loop, two in
the worker thread."""
PLUGIN: Final = Path(kubeletplugin.__file__).parent
SHARED: Final = SingleFlight.do.__code__
"""The last of the call's task; the work goes on in a task of its own."""
HANDED_OVER: Final = CallQueue.call.__code__
"""The last in the event loop."""
SURVEYED: Final = CardExecutor.survey_under_lock.__code__
SERVED: Final = (NodeClaimService.serve_prepare.__qualname__, NodeClaimService.serve_unprepare.__qualname__)


@contextmanager
def recorded(*functions: CodeType) -> Iterator[Mapping[CodeType, list[CodeType]]]:
    """By which functions each of ``functions`` was reached inside, outermost first: those of its task."""
    paths: dict[CodeType, list[CodeType]] = {}

    def note(frame: FrameType | None, event: str, _: object) -> None:
        if event == "call" and frame is not None and (reached := frame.f_code) in functions:
            paths[reached] = [reached]
            while (frame := frame.f_back) is not None:
                paths[reached].insert(0, frame.f_code)

    sys.setprofile(note)
    try:
        yield paths
    finally:
        sys.setprofile(None)


@contextmanager
def recorded_in_thread(backend: FakeBackend, method: str) -> Iterator[list[CodeType]]:
    """The functions by which ``method`` was reached in its worker thread, outermost first."""
    path: list[CodeType] = []
    called = getattr(backend, method)

    def note(*args: object) -> object:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            path.insert(0, frame.f_code)
            frame = frame.f_back
        return called(*args)

    setattr(backend, method, note)
    try:
        yield path
    finally:
        setattr(backend, method, called)


def of_plugin(path: list[CodeType]) -> list[str]:
    """Select the functions of the plugin; a generator is for a ``with``, so a claim does not pass through it."""
    return [
        code.co_qualname
        for code in path
        if Path(code.co_filename).is_relative_to(PLUGIN)
        and not code.co_flags & (inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR)
    ]


@pytest.fixture
async def paths() -> AsyncIterator[Mapping[str, Sequence[str]]]:
    """The functions of the plugin from the socket to each method of the backend, and of its own first survey, in order.

    A repeated prepare surveys the card, because the claim may have lost its devices.
    """
    found: dict[str, Sequence[str]] = {}
    with machine() as node:
        held = node.cluster.add(claim("training", "gpu-0-1g-1gb-at-0"))
        async with AsyncExitStack() as running:
            with recorded(SURVEYED) as tasks:
                await running.enter_async_context(node.plugin())
            found["first survey"] = of_plugin(tasks[SURVEYED])
            for call, method in (
                (node.kubelet.prepare, "prepare"),
                (node.kubelet.prepare, "survey"),
                (node.kubelet.unprepare, "unprepare"),
            ):
                with recorded(SHARED, HANDED_OVER) as tasks, recorded_in_thread(node.backend, method) as in_thread:
                    await call(held)
                found[method] = of_plugin([*tasks[SHARED], *tasks[HANDED_OVER], *in_thread])
            yield found


@pytest.mark.parametrize(("method", "last"), [("prepare", "run_prepare"), ("unprepare", "run_release")])
async def test_a_claim_passes_at_most_eleven_functions_on_its_way_to_the_hardware_and_back(
    paths: Mapping[str, Sequence[str]], method: str, last: str
) -> None:
    path = paths[method]
    served = next(index for index, name in enumerate(path) if name in SERVED)
    assert path[-1] == f"DeviceJob.{last}"
    assert len(path) - served <= LONGEST, path


def definitions(path: Path) -> Iterator[tuple[str, str]]:
    """Each function of a module, nested ones and methods too, by its bare name, and where it is.

    What a protocol declares is left out: it never runs, so that no traceback has it.
    """
    pending: list[ast.AST] = [ast.parse(path.read_text())]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, f"{path.name}:{node.lineno}"
        if not (
            isinstance(node, ast.ClassDef)
            and any(ast.unparse(base).partition("[")[0] == "Protocol" for base in node.bases)
        ):
            pending += ast.iter_child_nodes(node)


def find_repeated(names: Iterable[str], folder: Path) -> Mapping[str, Sequence[str]]:
    """Where each of ``names`` that has not exactly one definition in ``folder`` is defined."""
    places: dict[str, list[str]] = {name: [] for name in names}
    for path in sorted(folder.rglob("*.py")):
        for name, place in definitions(path):
            if name in places:
                places[name].append(place)
    return {name: found for name, found in places.items() if len(found) != 1}


async def test_a_traceback_on_the_way_to_the_hardware_and_back_has_no_name_that_another_function_has(
    paths: Mapping[str, Sequence[str]],
) -> None:
    """A traceback and a profile show bare names, and once read prepare, prepare, _prepare, execute, prepare, _prepare.

    The backend's own methods, at which each path ends, all have the protocol's names.
    """
    names = {name.rpartition(".")[2] for path in paths.values() for name in path}
    assert find_repeated(names, PLUGIN) == {}


def test_a_function_with_the_name_of_another_one_is_found_wherever_it_is_defined(tmp_path: Path) -> None:
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims/one.py").write_text(
        "def prepare(): ...\ndef release():\n    def survey(): ...\n"
        "class Handler(Protocol):\n    def unprepare(self): ...\n"
    )
    (tmp_path / "two.py").write_text(
        "class Card:\n    async def prepare(self): ...\n    def survey(self): ...\n    def unprepare(self): ...\n"
    )
    assert find_repeated(["prepare", "unprepare", "survey", "release", "call"], tmp_path) == {
        "prepare": ["one.py:1", "two.py:2"],
        "survey": ["one.py:3", "two.py:3"],
        "call": [],
    }
