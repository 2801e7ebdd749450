"""Every error code of NVML in every function of a release and of a survey: nothing is taken for gone that is there.

A node has two cards, two claims with a partition on each, and on each card a partition of another program. A function
fails a few times or from then on; once it does not, the claims end as if it never had. What is there is read past NVML.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final

import pytest

from kerf_dra.api.errors import KerfError
from kerf_dra.driver.kubeletplugin.backends.base import CardSurvey
from kerf_dra.driver.kubeletplugin.backends.nvidia.nvml.return_codes import ANSWERS
from kerf_dra.driver.testing.nvml.machine import EVERY_FUNCTION
from tests.fakes.claims import claim, ref
from tests.fakes.nvml import NEEDS_COMPILER
from tests.fakes.nvml_functions import CARD_READS, DESTROYS, ERRORS, INSTANCE_READS
from tests.kubeletplugin.backends.nvidia.node import H100, NvidiaNode
from tests.kubeletplugin.claim_fixture import PluginCore

pytestmark = NEEDS_COMPILER

Place = tuple[int, str, int]
"""Number of the card, profile, first memory slice."""

FIRST: Final = claim("first", "gpu-0-1g-20gb-at-0", "gpu-1-3g-40gb-at-4")
SECOND: Final = claim("second", "gpu-0-3g-40gb-at-4", "gpu-1-1g-20gb-at-0")
PLACES: Final[dict[str, set[Place]]] = {
    FIRST.metadata.uid: {(0, "1g.20gb", 0), (1, "3g.40gb", 4)},
    SECOND.metadata.uid: {(0, "3g.40gb", 4), (1, "1g.20gb", 0)},
}
FOREIGN: Final[set[Place]] = {(0, "2g.20gb", 2), (1, "2g.20gb", 2)}
READS: Final = (*INSTANCE_READS, *CARD_READS)
ANSWERING: Final = sorted({code for answer in ANSWERS.values() for code in answer.codes} - {"TIMEOUT"})
"""The codes that are an answer of some function, and might be taken for one of others."""
TIMES: Final = (1, 2, 12, 40, None)
"""How often in a row a function fails; None: from then on."""
BEFORE_IT: Final = 4
"""A fault begins after less calls of the function than this."""
CALLS: Final = 120
"""A fault of all functions begins before this call: a release of two devices makes some 100."""
DRAWS: Final = 6
"""How often a fault of all functions is tried with each code."""


@pytest.fixture
def node(tmp_path: Path) -> NvidiaNode:
    made = NvidiaNode(tmp_path, H100, H100)
    for number, held in enumerate((FIRST, SECOND)):
        made.cluster.add(held)
        made.cut_by_hand(14, 2, start=2, card=number)
    return made


def list_places(node: NvidiaNode) -> set[Place]:
    return {(one.card, one.profile, one.start) for one in node.machine.list_instances()}


def judge(node: NvidiaNode, core: PluginCore) -> Iterator[str]:
    """Yield what is wrong: what is on a card has a record or is another program's, and that is on its card."""
    there = list_places(node)
    known = {place for uid in core.checkpoint.records for place in PLACES[uid]}
    yield from (f"{place} is on a card and nobody's" for place in there - known - FOREIGN)
    yield from (f"{place} of another program was destroyed" for place in FOREIGN - there)


async def try_release(node: NvidiaNode, core: PluginCore, function: str, error: int, chance: Random) -> list[str]:
    """Unprepare the first claim while a function fails a few times, the second from then on; then both."""
    for held, times in ((FIRST, chance.choice(TIMES[:-1])), (SECOND, None)):
        skip = chance.randrange(CALLS if function == EVERY_FUNCTION else BEFORE_IT)
        node.machine.add_fault(function, error=error, skip=skip, times=times)
        with suppress(KerfError):
            await core.preparer.unprepare_claim(ref(held))
        if wrong := [*judge(node, core)]:
            return wrong
        node.machine.clear_faults()
    for held in (FIRST, SECOND):
        await core.preparer.unprepare_claim(ref(held))
    return [*judge(node, core), *(f"the record {uid} is left" for uid in core.checkpoint.records)]


@pytest.mark.parametrize("error", ERRORS)
async def test_a_release_removes_the_partition_or_keeps_its_record(error: str, node: NvidiaNode) -> None:
    chance = Random(error)
    async with node.plugin() as core:
        for function in (*DESTROYS, *READS, *[EVERY_FUNCTION] * DRAWS):
            for held in (FIRST, SECOND):
                await core.preparer.prepare_claim(ref(held))
            assert await try_release(node, core, function, ERRORS[error], chance) == [], function


@pytest.mark.parametrize("error", ANSWERING)
async def test_a_process_that_starts_while_a_function_fails_releases_nothing_that_is_there(
    error: str, node: NvidiaNode
) -> None:
    """It has never seen the cards answer: what they seem to be without is not what they have had before."""
    for function in (*READS, EVERY_FUNCTION):
        async with node.plugin() as core:
            await core.preparer.prepare_claim(ref(FIRST))
            await core.preparer.prepare_claim(ref(SECOND))
        with node.backend() as backend:
            node.machine.add_fault(function, error=ERRORS[error], times=None)
            with suppress(KerfError):  # that it cannot start is as good
                async with node.plugin_over(backend) as core:
                    for held in (FIRST, SECOND):
                        with suppress(KerfError):
                            await core.preparer.unprepare_claim(ref(held))
                    assert [*judge(node, core)] == [], function
        node.machine.clear_faults()
        async with node.plugin() as core:
            for held in (FIRST, SECOND):
                await core.preparer.unprepare_claim(ref(held))
            assert ([*judge(node, core)], [*core.checkpoint.records]) == ([], []), function


@pytest.mark.parametrize("error", ERRORS)
def test_a_survey_has_all_that_is_on_the_card_or_fails(error: str, node: NvidiaNode) -> None:
    node.cut_by_hand(9, 4, start=4)
    node.cut_by_hand(15, 2, start=0, card=1)
    with node.backend() as backend:
        uuids = [card.uuid for card in backend.discover()]
        for function in READS:
            for times in TIMES:
                node.machine.add_fault(function, error=ERRORS[error], times=times)
                for number, uuid in enumerate(uuids):
                    with suppress(KerfError):
                        found = backend.survey(uuid)
                        wanted = {place for place in list_places(node) if place[0] == number}
                        assert _places_of(number, found) == wanted, (function, times)
                node.machine.clear_faults()


def _places_of(card: int, survey: CardSurvey) -> set[Place]:
    return {(card, one.profile or "", one.placement.start) for one in survey.partitions if one.placement is not None}
