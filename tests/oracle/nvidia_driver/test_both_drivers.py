"""NVIDIA's DRA driver and Kerf's plugin on equal stand-in machines: every difference is a row of the table.

NVIDIA's driver is built from its module, and runs unmodified with its feature gate DynamicMIG. Each machine has a card
whose MIG mode is on, and one whose mode is off.
"""

from pathlib import Path
from random import Random

import pytest

from tests.kubeletplugin.harness import short_directory
from tests.oracle.nvidia_driver.differences import Comparison, Verdict
from tests.oracle.nvidia_driver.drivers import DriverEndedError, two_drivers
from tests.oracle.nvidia_driver.models import CASES, MODELS
from tests.oracle.nvidia_driver.published_devices import PublishedDevices, compare_combinations, compare_published

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("model", MODELS)
async def test_both_drivers_do_the_same_but_for_what_the_table_explains(
    model: str, program: Path, verdict: Verdict
) -> None:
    rows: list[Comparison] = []
    with short_directory() as root:
        try:
            async with two_drivers(program, model, root) as pair:
                published = [PublishedDevices.of(await pair.read_pools(driver)) for driver in pair.drivers]
                rows += compare_published(*published)
                rows += compare_combinations(*published, cases=CASES, random=Random(model))
        except* DriverEndedError as ended:
            rows.append(Comparison("NVIDIA's driver", "starts", str(ended.exceptions[0]), "yes"))
    unexplained = verdict.add(model, rows)
    assert unexplained == [], "\n".join(map(str, unexplained))
