"""The call path from the kubelet to the hardware: the functions of the plugin that a claim passes through."""

import inspect
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

import driver.kubeletplugin
from driver.kubeletplugin.grpc.dra_service import NodeClaimService
from driver.runtime.concurrency import SingleFlight
from tests.fakes.claims import claim
from tests.fakes.hardware import FakeBackend
from tests.kubeletplugin.harness import machine

LONGEST: Final = 8
"""Functions from the service's method, which counts, to the backend's, which does not."""
PLUGIN: Final = Path(driver.kubeletplugin.__file__).parent
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


def of_plugin(path: list[CodeType]) -> list[str]:
    """Select the functions of the plugin; a generator is for a ``with``, so a claim does not pass through it."""
    return [
        code.co_qualname
        for code in path
        if Path(code.co_filename).is_relative_to(PLUGIN)
        and not code.co_flags & (inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR)
    ]


async def test_a_claim_passes_at_most_eight_functions_on_its_way_to_the_hardware_and_back() -> None:
    with machine() as node:
        held = node.cluster.add(claim("training", "gpu-0-1g-1gb-at-0"))
        async with node.plugin():
            for call, service, hardware in (
                (node.kubelet.prepare, NodeClaimService.prepare, FakeBackend.prepare),
                (node.kubelet.unprepare, NodeClaimService.unprepare, FakeBackend.unprepare),
            ):
                with recorded(SHARED, hardware.__code__) as paths:
                    await call(held)
                before, after = paths[SHARED], paths[hardware.__code__]
                path = of_plugin([*before[before.index(service.__code__) :], *after])
                assert len(path) <= LONGEST, path
