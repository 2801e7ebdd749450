"""What a node keeps for extended resources is confirmed step by step, and only by complete answers."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace as replace_struct

from kerf_dra.api.model.devices import ResourcePool, ResourceSlice, ResourceSliceSpec
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import DriverName
from kerf_dra.driver.kubeletplugin.deviceplugin.reservation_keeper import ReservationKeeper, are_complete
from kerf_dra.driver.kubeletplugin.inventory.state.reservations import ReservationContext
from kerf_dra.driver.partitions.device_names import device_name
from kerf_dra.driver.runtime.backoff import Backoff
from tests.fakes.claims import DRIVER, claim
from tests.fakes.cluster import FakeCluster
from tests.kubeletplugin.claim_fixture import CARDS, NODE_DEVICES, SETTINGS
from tests.kubeletplugin.deviceplugin.node import resource
from tests.kubeletplugin.harness import LONGEST_S
from tests.kubeletplugin.observed_state import ObservedState, SmallestGpus
from tests.kubeletplugin.wait import until
from tests.runtime.counted_notifier import CountedNotifier

CLAIMED = "gpu-1-2g-2gb-at-0"
RETRY = Backoff(first_s=0.01, factor=1, limit_s=0.01, jitter=0)


class SlicedCluster(FakeCluster):
    """A cluster whose API server has these slices."""

    slices: Sequence[ResourceSlice] = ()

    async def list_published(self) -> Sequence[ResourceSlice]:
        await super().list_published()
        return self.slices


class ChoosingState(ObservedState):
    """A state that has placements chosen at once when it is asked for a publication."""

    def __init__(self, choose: Callable[[], None]) -> None:
        super().__init__(devices=NODE_DEVICES)
        self.cards = CARDS
        self._choose = choose

    def request_publication(self) -> None:
        super().request_publication()
        self._choose()


class KeeperFixture:
    """The keeper of a node that offers two small partitions."""

    def __init__(self, folder: Path) -> None:
        self.cluster = SlicedCluster()
        self.changed = CountedNotifier()
        self.state = ChoosingState(self.choose)
        self.reservations = self.state.restrictions.reservations
        self.reservations.changed = self.changed
        self.keeper = ReservationKeeper(
            settings=replace(SETTINGS, device_plugins_dir=folder, retry=RETRY, reservation_retry_s=0.02),
            cluster=self.cluster,
            state=self.state,
        )
        self.choose()

    def choose(self) -> None:
        """Choose what is kept, as the publisher does whenever it computes what it publishes."""
        claimed = self.reservations.claimed
        context = ReservationContext(
            cards=CARDS,
            in_use={},
            taken=claimed or (),
            can_grow=claimed is not None,
            rules=SmallestGpus(),
        )
        self.reservations.update((resource("1g.1gb", 2),), context)

    async def run(self, until_so: Callable[[], bool]) -> None:
        """Run the keeper until something is so."""
        with anyio.fail_after(LONGEST_S):
            async with anyio.create_task_group() as group:
                group.start_soon(self.keeper.run)
                await until(until_so)
                group.cancel_scope.cancel()

    @property
    def listed(self) -> list[str]:
        (name,) = self.reservations.names
        cards = {card.uuid: card for card in CARDS}
        return [device_name(cards[each.card_uuid], each) for each in self.reservations.list_placements(name)]


def resource_slice(*devices: str, generation: int = 1, count: int = 1, pool: str = "node-1/gpu") -> ResourceSlice:
    published = [offered for each in NODE_DEVICES.pools for content in each.slices for offered in content.devices]
    return ResourceSlice(
        metadata=ObjectMeta(name=f"{pool}-{generation}-{'-'.join(devices)}"),
        spec=ResourceSliceSpec(
            driver=DriverName(DRIVER),
            pool=ResourcePool(name=pool, generation=generation, resource_slice_count=count),
            devices=tuple(offered for offered in published if offered.name in devices),
        ),
    )


@pytest.mark.parametrize(
    ("slices", "is_complete"),
    [
        ((), True),
        ((resource_slice("gpu-0"),), True),
        ((resource_slice("gpu-0", count=2),), False),
        ((resource_slice("gpu-0", count=2), resource_slice("gpu-1", count=2)), True),
        ((resource_slice("gpu-0", count=2), resource_slice("gpu-1", count=2, generation=2)), False),
        ((resource_slice("gpu-0"), resource_slice("fpga-0", pool="node-1/fpga", count=2)), False),
    ],
    ids=["none", "one", "a part", "both", "of two generations", "another pool is not"],
)
def test_slices_are_complete_when_each_pool_has_all_of_one_generation(
    slices: Sequence[ResourceSlice], is_complete: bool
) -> None:
    assert are_complete(slices) is is_complete


async def test_what_is_in_no_slice_and_no_claim_is_listed(tmp_path: Path) -> None:
    fixture = KeeperFixture(tmp_path)
    fixture.cluster.slices = [resource_slice(CLAIMED)]
    fixture.cluster.add(claim("theirs", CLAIMED))
    await fixture.run(lambda: len(fixture.listed) == 2)
    assert {each.profile for each in fixture.reservations.claimed or ()} == {"2g.2gb"}
    assert fixture.state.noted["publication"] == 1, (
        "once what claims have is known, and for nothing that stays the same"
    )
    rounds = fixture.changed.rounds
    await fixture.run(lambda: fixture.changed.rounds > rounds + 1)
    assert fixture.cluster.reported == [], "nothing is missing"


async def test_slices_of_which_some_are_missing_say_nothing_of_what_is_in_the_others(tmp_path: Path) -> None:
    fixture = KeeperFixture(tmp_path)
    fixture.cluster.slices = [resource_slice(CLAIMED, count=2)]
    await fixture.run(lambda: fixture.cluster.slice_lists > 3)
    assert fixture.listed == []
    fixture.cluster.slices = [resource_slice(CLAIMED, count=2), resource_slice("gpu-1", count=2)]
    await fixture.run(lambda: len(fixture.listed) == 2)


async def test_where_claims_can_no_longer_be_listed_nothing_new_is_chosen_and_an_event_says_why(tmp_path: Path) -> None:
    fixture = KeeperFixture(tmp_path)
    fixture.reservations.set_claimed(())
    fixture.cluster.may_list = False
    await fixture.run(lambda: fixture.cluster.lists > 3)
    assert (fixture.reservations.claimed, fixture.listed) == (None, [])
    (told,) = (message for *_, message in fixture.cluster.reported)
    assert told == (
        "extended resources of gpu.kerf.dev are not offered in full: the plugin may not list ResourceClaims, so that "
        "it cannot know which placements claims have"
    )


async def test_without_the_kubelets_folder_nothing_is_offered_and_an_event_names_it(tmp_path: Path) -> None:
    fixture = KeeperFixture(tmp_path / "gone")
    fixture.reservations.set_claimed(())
    await fixture.run(lambda: fixture.reservations.claimed is None and bool(fixture.cluster.reported))
    assert fixture.cluster.lists == 0
    (told,) = (message for *_, message in fixture.cluster.reported)
    assert f"the plugin has no access to the kubelet's folder {tmp_path / 'gone'}" in told


async def test_a_device_with_admin_access_is_no_claims(tmp_path: Path) -> None:
    fixture = KeeperFixture(tmp_path)
    watched = claim("watched", CLAIMED)
    assert watched.status.allocation is not None
    devices = watched.status.allocation.devices
    results = tuple(replace_struct(each, admin_access=True) for each in devices.results)
    allocation = replace_struct(watched.status.allocation, devices=replace_struct(devices, results=results))
    fixture.cluster.add(replace_struct(watched, status=replace_struct(watched.status, allocation=allocation)))
    await fixture.run(lambda: fixture.reservations.claimed is not None)
    assert fixture.reservations.claimed == frozenset()
