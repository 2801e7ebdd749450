"""A library of NVIDIA's that lacks something or contradicts itself: what is wrong is named once, other cards go on.

A node has two cards. What the library says of the first one is wrong, or of the machine; a claim wants the second one.
"""

from typing import Any, Final

import msgspec
import pynvml
import pytest
from anyio import to_thread

from kerf_dra.driver.kubeletplugin.backends.nvidia.nvml.library import NvmlLibrary
from kerf_dra.driver.testing.nvml.layout import assign
from tests.attack.kinds import cases
from tests.fakes.claims import claim
from tests.fakes.nvml import NEEDS_COMPILER
from tests.kubeletplugin.backends.nvidia.node import H100, NvidiaNode
from tests.kubeletplugin.backends.nvidia.test_boots import published, serving
from tests.kubeletplugin.backends.nvidia.test_unusual_libraries import ContradictoryLibrary
from tests.kubeletplugin.harness import short_directory
from tests.kubeletplugin.wait import until

pytestmark = NEEDS_COMPILER

SECOND: Final = "gpu-1-3g-40gb-at-4"
DEVICES: Final = 26
"""What an H100 is published as: the whole card, and each profile at each placement."""
PROFILE: Final = 2
"""The number of the profile in question, in the state of a card."""
TIMES: Final = 3
"""How often the cards are discovered again."""


class Case(msgspec.Struct, frozen=True):
    """What is wrong, by fields of the stand-in's state, and what follows."""

    says: str
    """Part of the only warning."""
    is_offered: bool = True
    """Whether the first card is published."""
    card: dict[str, Any] = {}
    profile: dict[str, Any] = {}
    placement: dict[str, Any] = {}
    engines: dict[str, Any] = {}
    added: str = ""
    """A third card that is counted: a copy of the second one but for its number, or an empty one."""
    lacks: dict[str, str] = {}
    """The error of a function, of a library that lacks it or has another version of its structure."""
    counts: str = ""
    """The function that counts wrongly for the first card, and what it counts."""
    count: int = 0


def build_library(node: NvidiaNode, case: Case) -> NvmlLibrary | None:
    """Return a library that miscounts something of the first card; None: the case is about something else."""

    def miscount(answer: Any, *arguments: Any) -> Any:
        if pynvml.nvmlDeviceGetIndex(arguments[0]) == 0:
            arguments[-1]._obj.value = case.count
        return answer

    return ContradictoryLibrary(node.machine.driver_root, case.counts, miscount) if case.counts else None


def damage(node: NvidiaNode, case: Case) -> None:
    """Let the library say what the case is about."""
    with node.machine._state() as state:
        first = state.cards[0]
        profile = first.profiles[PROFILE]
        for row, values in (
            (first, case.card),
            (profile, case.profile),
            (profile.engines, case.engines),
            (profile.placements[0], case.placement),
        ):
            assign(
                row, **{name: one.encode("latin-1") if isinstance(one, str) else one for name, one in values.items()}
            )
        if case.added:
            state.n_cards = 3
        if case.added == "copy":
            state.cards[2] = state.cards[1]
            state.cards[2].minor = 2
    for function, error in case.lacks.items():
        node.machine.add_fault(function, error=getattr(pynvml, f"NVML_ERROR_{error}"), times=None)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The messages of the backend for NVIDIA cards."""
    found = (record for record in caplog.records if record.levelname in ("WARNING", "ERROR"))
    return [record.getMessage() for record in found if ".backends.nvidia" in record.name]


@pytest.mark.parametrize(
    "case",
    cases(
        "test_contradictory_libraries.py::test_what_nvml_says_wrongly_is_named_once_and_claims_get_other_cards", Case
    ),
)
async def test_what_nvml_says_wrongly_is_named_once_and_claims_get_other_cards(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    with short_directory() as root:
        node = NvidiaNode(root, H100, H100)
        damage(node, case)
        held = node.cluster.add(claim("second", SECOND))
        async with serving(node, root, build_library(node, case)) as (kubelet, backend):
            await until(lambda: SECOND in published(node))
            await kubelet.prepare(held)
            for _ in range(TIMES):
                await to_thread.run_sync(backend.discover)
            devices = published(node)
            assert sum(name.startswith("gpu-1") for name in devices) == DEVICES
            assert any(name.startswith("gpu-0") for name in devices) is case.is_offered
            await kubelet.unprepare(held)
        (line,) = warnings(caplog)
        assert case.says in line
        assert line.isprintable()
