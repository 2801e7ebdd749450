"""What a node offers of discovered devices, call by call: the refusals, and what it prefers."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from kerf_dra.api.deviceplugin.v1beta1 import PreferenceRequest
from kerf_dra.api.errors import KerfError
from kerf_dra.api.kerf.discovery_objects import DeviceUser, DiscoveredDeviceObject
from kerf_dra.driver.families.shared.users import NoCapacityError
from kerf_dra.driver.kube.http.errors import ConflictError, NotFoundError
from kerf_dra.driver.kubeletplugin.deviceplugin.discovered_device_offer import (
    ContendedDeviceError,
    DiscoveredDeviceOffer,
    RepeatedDeviceError,
)
from kerf_dra.driver.kubeletplugin.deviceplugin.offer import UnknownIdError
from tests.kubeletplugin.deviceplugin.test_device_users import (
    ANY,
    DRIVER,
    NAMES,
    PART,
    RESOURCES,
    Node,
    Server,
    Source,
    prepared,
)
from tests.kubeletplugin.observed_state import ObservedState

FIRST, SECOND = NAMES
THIS = RESOURCES[1]


class ContendedSource(Source):
    """Others are faster, so many times."""

    def __init__(self, server: Server, errors: Sequence[Exception]) -> None:
        super().__init__(server)
        self.errors = [*errors]
        self.reads = 0

    async def read(self, name: str) -> DiscoveredDeviceObject | None:
        self.reads += 1
        return await super().read(name)

    async def write_users(self, held: DiscoveredDeviceObject, users: Sequence[DeviceUser]) -> None:
        if self.errors:
            raise self.errors.pop()
        await super().write_users(held, users)


class Place:
    """A node, which can prepare ``ready``, and its API server."""

    def __init__(self, *errors: Exception, node: str = "n1", ready: Sequence[str] = NAMES) -> None:
        self.server = Server()
        self.source = ContendedSource(self.server, errors)
        offered = SimpleNamespace(partition=PART, backend="discovered")
        devices: Any = SimpleNamespace(find=lambda id_: offered if id_.device in ready else None)
        self.offer = DiscoveredDeviceOffer(self.source, driver=DRIVER, node=node, state=ObservedState(devices=devices))
        self.node = Node(node, self.source, self.offer)

    def configure(self, **spec: Any) -> None:
        self.server.configure(**spec)
        self.source.discovery = self.server.found()

    def use(self, name: str, *users: str, node: str = "n2") -> None:
        """Have a node's containers use a device, by its resource."""
        held = self.server.devices[name]
        entered = tuple(DeviceUser(node=node, resource=f"akri.sh/{name}", id=user) for user in users)
        self.server.write(held, status=replace(held.status, users=entered))
        self.source.discovery = self.server.found()

    async def enter(self, id_: str) -> None:
        await self.offer.enter(ANY, id_, prepared(self.node, ANY, id_))

    def users(self, name: str = FIRST) -> list[str]:
        return [user.id for user in self.server.devices[name].status.users]


def id_of(name: str, number: int) -> str:
    return f"{name.removeprefix('cameras-')}-{number}"


def conflict() -> Exception:
    return ConflictError("PATCH", 409, "Conflict", "the object has been modified")


def gone() -> Exception:
    return NotFoundError("PATCH", 404, "NotFound", "it is gone")


@pytest.mark.parametrize("errors", [[conflict()], [gone()], [conflict()] * 19], ids=["once", "made anew", "19 times"])
async def test_a_user_is_entered_although_others_have_written_in_between(errors: Sequence[Exception]) -> None:
    place = Place(*errors)
    await place.enter(id_of(FIRST, 0))
    assert place.users() == [id_of(FIRST, 0)]
    assert place.source.reads == len(errors) + 1


async def test_a_device_whose_object_changes_all_the_time_is_told_and_may_be_tried_again() -> None:
    place = Place(*[conflict()] * 20)
    with pytest.raises(ContendedDeviceError, match="has changed 20 times"):
        await place.enter(id_of(FIRST, 0))
    assert place.users() == []


async def test_a_device_whose_object_or_configuration_is_gone_has_no_users() -> None:
    place = Place()
    device = prepared(place.node, ANY, id_of(FIRST, 0))
    place.server.configure(capacity=0)  # invalid
    with pytest.raises(UnknownIdError, match="not among the devices"):
        await place.offer.enter(ANY, id_of(FIRST, 0), device)
    del place.server.devices[FIRST]
    with pytest.raises(UnknownIdError, match="not among the devices"):
        await place.offer.enter(ANY, id_of(FIRST, 0), device)
    await place.offer.leave(ANY, id_of(FIRST, 0), device)
    assert not await place.offer.is_user(FIRST, DeviceUser(node="n1", resource=ANY, id=id_of(FIRST, 0)))


async def test_who_is_a_user_is_what_the_api_server_says_now() -> None:
    place = Place()
    mine, other = (DeviceUser(node=node, resource=ANY, id=id_of(FIRST, 0)) for node in ("n1", "n2"))
    await place.enter(id_of(FIRST, 0))
    assert await place.offer.is_user(FIRST, mine)
    assert not await place.offer.is_user(FIRST, other)
    await place.offer.leave(ANY, id_of(FIRST, 0), prepared(place.node, ANY, id_of(FIRST, 0)))
    assert not await place.offer.is_user(FIRST, mine)


async def test_a_device_without_capacity_says_who_has_it() -> None:
    place = Place()
    place.use(FIRST, "x", "y")
    with pytest.raises(NoCapacityError, match="2 of 2 are in use, on n2"):
        await place.enter(id_of(FIRST, 0))


@pytest.mark.parametrize("how", ["not ready", "not seen"])
def test_a_device_that_cannot_be_prepared_or_is_not_seen_is_for_nobody(how: str) -> None:
    place = Place(ready=[SECOND] if how == "not ready" else NAMES)
    if how == "not seen":
        place.use(FIRST, id_of(FIRST, 0), node="n1")
        held = place.server.devices[FIRST]
        place.server.write(held, spec={**held.spec, "nodes": ["n2"]})
        place.source.discovery = place.server.found()
    healths = {each.id: each.health for each in place.offer.list_devices(THIS)}
    assert healths == {id_of(FIRST, 0): "Unhealthy", id_of(FIRST, 1): "Unhealthy"}
    with pytest.raises(UnknownIdError):
        place.offer.check(THIS, [id_of(FIRST, 0)])
    place.offer.check(ANY, [id_of(SECOND, 0)])
    if how == "not ready":
        with pytest.raises(UnknownIdError):
            place.offer.resolve(THIS, id_of(FIRST, 0), None)


@pytest.mark.parametrize(
    ("resource", "unique", "ids", "error"),
    [
        (ANY, True, [id_of(FIRST, 0), id_of(SECOND, 1)], None),
        (ANY, True, [id_of(FIRST, 0), id_of(FIRST, 1)], RepeatedDeviceError),
        (ANY, False, [id_of(FIRST, 0), id_of(FIRST, 1)], None),
        (THIS, True, [id_of(FIRST, 0), id_of(FIRST, 1)], None),
        (THIS, True, [id_of(SECOND, 0)], UnknownIdError),
        (ANY, True, [id_of(FIRST, 2)], UnknownIdError),
    ],
)
def test_what_a_container_cannot_have_is_refused(
    resource: str, unique: bool, ids: Sequence[str], error: type[KerfError] | None
) -> None:
    place = Place()
    place.configure(uniqueDevices=unique)
    if error is None:
        place.offer.check(resource, ids)
    else:
        with pytest.raises(error):
            place.offer.check(resource, ids)


@pytest.mark.parametrize(
    ("used", "size", "must", "preferred"),
    [
        ({FIRST: 1}, 1, [], [id_of(SECOND, 0)]),
        ({SECOND: 1}, 1, [], [id_of(FIRST, 0)]),
        ({FIRST: 1}, 2, [], [id_of(SECOND, 0), id_of(FIRST, 0)]),
        ({FIRST: 1}, 3, [], [id_of(SECOND, 0), id_of(FIRST, 0), id_of(SECOND, 1)]),
        ({FIRST: 1}, 1, [id_of(FIRST, 1)], [id_of(FIRST, 1)]),
        ({SECOND: 1}, 2, [id_of(FIRST, 1)], [id_of(FIRST, 1), id_of(SECOND, 0)]),
        ({FIRST: 1}, 1, ["other-0", id_of(FIRST, 1), id_of(SECOND, 1)], [id_of(FIRST, 1)]),
        (
            {FIRST: 1},
            9,
            [id_of(FIRST, 1)],
            [id_of(FIRST, 1), id_of(SECOND, 0), id_of(SECOND, 1), id_of(FIRST, 0)],
        ),
        ({FIRST: 1}, 9, [], [id_of(SECOND, 0), id_of(FIRST, 0), id_of(SECOND, 1), id_of(FIRST, 1)]),
    ],
)
def test_different_devices_with_the_most_capacity_left_are_preferred(
    used: dict[str, int], size: int, must: Sequence[str], preferred: Sequence[str]
) -> None:
    place = Place()
    for name, count in used.items():
        place.use(name, *map(str, range(count)))
    available = [id_of(name, number) for name in NAMES for number in range(2)]
    request = PreferenceRequest(available=tuple(available), must_include=tuple(must), size=size)
    assert [[*each] for each in place.offer.prefer(ANY, [request, request])] == [preferred] * 2


def test_of_equal_devices_nodes_begin_with_different_ones() -> None:
    request = PreferenceRequest(available=(id_of(FIRST, 0), id_of(SECOND, 0)), must_include=(), size=1)
    chosen = {Place(node=node).offer.prefer(ANY, [request])[0] for node in ("n1", "n2", "n3")}
    assert len(chosen) == 2
