"""NVIDIA's DRA driver and Kerf's plugin on equal stand-in machines: every difference is a row of the table.

NVIDIA's driver is built from its module, and runs unmodified with its feature gate DynamicMIG. Each machine has a card
whose MIG mode is on, and one whose mode is off.
"""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from random import Random
from typing import Final

import pytest

from tests.kubeletplugin.harness import short_directory
from tests.oracle.nvidia_driver.differences import Comparison, Verdict
from tests.oracle.nvidia_driver.drivers import Driver, DriverEndedError, Pair, RefusedError, two_drivers
from tests.oracle.nvidia_driver.models import CASES, MODELS, find_profiles_that_fail
from tests.oracle.nvidia_driver.published_devices import PublishedDevices, compare_combinations, compare_published
from tests.oracle.nvidia_driver.sequence_runner import SequenceRunner
from tests.oracle.nvidia_driver.sequences import SequenceGenerator, list_situations

pytestmark = pytest.mark.oracle

_MANY_CARDS: Final = "h100-80gb-sxm"
"""A model of the short form, too, whose MIG mode a driver switches."""
_LONGEST_S: Final = 7200
"""The limit for a model: 40 sequences took 17 minutes where 25 other processes wanted the two cores."""


@pytest.mark.timeout(_LONGEST_S)
@pytest.mark.parametrize("model", MODELS)
async def test_both_drivers_do_the_same_but_for_what_the_table_explains(
    model: str, program: Path, verdict: Verdict
) -> None:
    """Among the rows are NVIDIA's #1480, a 7g that cannot be prepared, and #1452, a half-made instance that stays."""
    rows: list[Comparison] = []
    with short_directory() as root:
        try:
            async with two_drivers(program, model, root) as pair:
                theirs, ours = [PublishedDevices.of(await pair.read_pools(driver)) for driver in pair.drivers]
                rows += compare_published(theirs, ours)
                rows += compare_combinations(theirs, ours, cases=CASES, random=Random(model))
                rows += [row async for sequence in _run_sequences(model, pair, (theirs, ours)) for row in sequence]
        except* DriverEndedError as ended:
            rows.append(Comparison("NVIDIA's driver", "starts", str(ended.exceptions[0]), "yes"))
    unexplained = verdict.add(model, rows)
    assert unexplained == [], "\n".join(map(str, unexplained))


async def test_what_both_publish_of_nine_cards_with_partitions_differs_as_the_table_says(
    program: Path, verdict: Verdict
) -> None:
    """Each card has a counter set, and a slice has at most eight of them (KEP-4815)."""
    with short_directory() as root:
        async with two_drivers(program, _MANY_CARDS, root, mig_modes=[True] * 9) as pair:
            theirs, ours = [await _describe_published(pair, driver) for driver in pair.drivers]
    unexplained = verdict.add(_MANY_CARDS, [Comparison("nine cards", "devices of nine cards", theirs, ours)])
    assert unexplained == []


async def _describe_published(pair: Pair, driver: Driver) -> str:
    try:
        published = PublishedDevices.of(await pair.read_pools(driver))
    except RefusedError as error:
        return f"refused: {error}"
    return f"{len(published.devices)} on {len({place.card for place in published.devices})} cards"


async def _run_sequences(
    model: str, pair: Pair, published: Sequence[PublishedDevices]
) -> AsyncIterator[Sequence[Comparison]]:
    """Run the generated sequences, then those of situations, each of which both drivers begin on a new node."""
    every = sorted(published[0].devices.keys() & published[1].devices.keys())
    profiles = find_profiles_that_fail(model)
    failing = {what: [one for one in every if one.profile in names] for what, names in profiles.items()}
    places = [one for one in every if not any(one in failed for failed in failing.values())]
    first, second = sorted({place.card for place in every})
    for number in range(CASES):
        random = Random(f"{model} {number}")
        generator = SequenceGenerator(random, published, places, single_partition_cards=frozenset({second}))
        yield await SequenceRunner(pair, published, f"sequence {number}").run(generator.generate())
        if any(driver.machine.list_instances() for driver in pair.drivers):
            await pair.renew()  # what is left would show in the next sequences, too
    for situation, steps in list_situations(places, failing, (first, second)):
        await pair.renew()
        yield await SequenceRunner(pair, published, situation, situation).run(steps)
