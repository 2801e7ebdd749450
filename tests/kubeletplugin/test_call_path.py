"""The call path from the kubelet to the hardware: the functions of the plugin that a claim passes through."""

import inspect
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

from kerf_dra.driver import kubeletplugin
from kerf_dra.driver.kubeletplugin.backends.card_executor import CallQueue
from kerf_dra.driver.kubeletplugin.grpc.dra_service import NodeClaimService
from kerf_dra.driver.runtime.concurrency import SingleFlight
from tests.fakes.claims import claim
from tests.fakes.hardware import FakeBackend
from tests.kubeletplugin.harness import machine

LONGEST: Final = 12
"""Functions from the service's method, which counts, to the backend's, which does not: nine in the event loop, three
in the worker thread."""
PLUGIN: Final = Path(kubeletplugin.__file__).parent
SHARED: Final = SingleFlight.do.__code__
"""The last of the call's task; the work goes on in a task of its own."""


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


async def test_a_claim_passes_at_most_twelve_functions_on_its_way_to_the_hardware_and_back() -> None:
    handed_over = CallQueue.call.__code__
    with machine() as node:
        held = node.cluster.add(claim("training", "gpu-0-1g-1gb-at-0"))
        async with node.plugin():
            for call, service, method in (
                (node.kubelet.prepare, NodeClaimService.prepare, "prepare"),
                (node.kubelet.unprepare, NodeClaimService.unprepare, "unprepare"),
            ):
                with recorded(SHARED, handed_over) as paths, recorded_in_thread(node.backend, method) as in_thread:
                    await call(held)
                before = paths[SHARED]
                path = of_plugin([*before[before.index(service.__code__) :], *paths[handed_over], *in_thread])
                assert path[-1] == f"DeviceJob.{'prepare' if method == 'prepare' else 'release'}"
                assert len(path) <= LONGEST, path
