"""Both drivers on one node, with the same machine and the same kubelet's folder: one after the other, and at once.

A drained node moves from one to the other and back. The kubelet's part, and what docs/comparison.md leaves to
the administrator, are done here.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pynvml
import pytest

from kerf_dra.api.model.names import ClaimRef
from kerf_dra.driver.diagnostics.preflight.other_drivers import check_drivers
from kerf_dra.driver.diagnostics.preflight.results import CheckLevel
from kerf_dra.driver.testing.nvml import NvidiaMachine
from tests.fakes.nvml import open_nvml
from tests.kubeletplugin.harness import short_directory
from tests.oracle.nvidia_driver.drivers import KERF, MIG_MODES, NVIDIA, Driver, Pair, one_node, switch_mode
from tests.oracle.nvidia_driver.published_devices import WHOLE, PublishedDevices

pytestmark = pytest.mark.oracle

MODEL: Final = "h100-80gb-sxm"
PROFILE: Final = "3g.40gb"
DEVICES: Final = 52
"""26 of each card: itself, and its partitions at each place."""
LEAVES_MIG_MODE_ON: Final[Mapping[str, bool]] = {NVIDIA: False, KERF: True}
"""Whether a card stays in MIG mode after its last partition."""


@pytest.mark.parametrize("first", [NVIDIA, KERF])
async def test_a_drained_node_moves_to_the_other_driver_and_back_and_nothing_is_left(first: str, program: Path) -> None:
    with short_directory() as root:
        async with one_node(program, MODEL, root) as pair:
            one, other = pair.drivers if first == NVIDIA else pair.drivers[::-1]
            for cut, driver in enumerate((one, other, one, other)):
                cut %= 2  # the card that is cut now was used whole before
                switch_off_mig_mode(driver.machine)
                await driver.start()
                claims = await _prepare_claims(pair, driver, cut)
                assert [(each.card, each.profile) for each in driver.machine.list_instances()] == [(cut, PROFILE)]
                await _drain(pair, driver, claims)
                await driver.stop()
                await _remove_slices(pair, driver)
                assert _list_left(driver) == []
                modes = [False, False]
                modes[cut] = LEAVES_MIG_MODE_ON[driver.name]
                assert read_mig_modes(driver.machine) == modes


async def test_the_check_of_a_cluster_names_both_drivers_of_a_node(program: Path) -> None:
    with short_directory() as root:
        async with one_node(program, MODEL, root) as pair:
            for driver in pair.drivers:
                await driver.start()
                await pair.read_pools(driver)
            slices = (await pair.client.list(pair.kinds.resource_slices)).items
            problems = [one for one in check_drivers(slices, {KERF}) if one.level is CheckLevel.PROBLEM]
            assert len(problems) == 1
            assert all(name in problems[0].message for name in (KERF, NVIDIA, pair.kerf.node))


async def _prepare_claims(pair: Pair, driver: Driver, cut: int) -> Sequence[ClaimRef]:
    """Prepare a claim with a partition of the card with this number, and one with the other card whole."""
    published = PublishedDevices.of(await pair.read_pools(driver))
    assert len(published.devices) == DEVICES
    cards = sorted({place.card for place in published.devices})
    partition = min(place for place in published.devices if (place.card, place.profile) == (cards[cut], PROFILE))
    whole = next(place for place in published.devices if (place.card, place.profile) == (cards[1 - cut], WHOLE))
    claims = []
    for number, place in enumerate((partition, whole)):
        claims.append(await pair.create_claim(driver, f"{driver.name}-{number}", [published.devices[place]]))
        await driver.prepare(claims[-1])
    return claims


async def _drain(pair: Pair, driver: Driver, claims: Sequence[ClaimRef]) -> None:
    """End the claims, as the kubelet and Kubernetes' controllers do when their pods are evicted."""
    for claim in claims:
        await driver.unprepare(claim)
        await pair.delete_claim(claim)


async def _remove_slices(pair: Pair, driver: Driver) -> None:
    """Remove the driver's slices, as the kubelet does half a minute after the driver's socket is gone."""
    for each in (await pair.client.list(pair.kinds.resource_slices)).items:
        if each.spec.driver == driver.name:
            await pair.client.delete(pair.kinds.resource_slices, each.metadata.name)


def _list_left(driver: Driver) -> Sequence[str]:
    """List what a driver that has stopped leaves, but for its records: instances, CDI files and sockets."""
    registered = driver.folder / "kubelet/plugins_registry"
    instances = [str(one) for one in driver.machine.list_instances()]
    return [*instances, *(str(file) for folder in (driver.cdi_dir, registered) for file in folder.iterdir())]


def switch_off_mig_mode(machine: NvidiaMachine) -> None:
    """Do as the administrator does with ``nvidia-smi -mig 0`` before the other driver starts."""
    for card in range(len(MIG_MODES)):
        switch_mode(machine, card, is_on=False)


def read_mig_modes(machine: NvidiaMachine) -> list[bool]:
    with open_nvml(machine):
        cards = [pynvml.nvmlDeviceGetHandleByIndex(card) for card in range(len(MIG_MODES))]
        return [bool(pynvml.nvmlDeviceGetMigMode(card)[0]) for card in cards]
