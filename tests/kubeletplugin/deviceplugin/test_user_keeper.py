"""Users of discovered devices and records of what containers have are made to agree."""

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from kerf_dra.api.kerf.discovery_objects import (
    DeviceUser,
    DiscoveredDeviceObject,
    DiscoveredDeviceStatus,
    DiscoveryConfigurationObject,
    device_name,
)
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.prepared import PreparedClaim
from kerf_dra.driver.families.shared.objects import join_objects
from kerf_dra.driver.kubeletplugin.deviceplugin.discovered_device_offer import UserKeeper
from kerf_dra.driver.kubeletplugin.deviceplugin.offer import record_uid
from tests.kubeletplugin.records import device, record

RESOURCE = "akri.sh/cameras"


class RecordingAllocator:
    """What the keeper asks for."""

    def __init__(self) -> None:
        self.adopted: list[str] = []
        self.entered: list[str] = []

    async def adopt(self, resource: str, device_id: str, is_user: Callable[[], Awaitable[bool]]) -> None:
        self.adopted.append(f"{resource}/{device_id}")

    async def enter_recorded(self, held: PreparedClaim) -> None:
        self.entered.append(held.claim.uid)


async def test_users_of_this_node_without_a_record_are_adopted_and_records_without_a_user_are_entered() -> None:
    name = device_name("cameras", "rtsp://10.0.0.7", node=None)
    users = tuple(
        DeviceUser(node=node, resource=RESOURCE, id=id_) for node, id_ in (("n1", "a"), ("n1", "b"), ("n2", "c"))
    )
    found = DiscoveredDeviceObject(
        metadata=ObjectMeta(name=name, resource_version="1"),
        spec={"configurationName": "cameras", "deviceID": "rtsp://10.0.0.7", "shared": True, "nodes": ["n1", "n2"]},
        status=DiscoveredDeviceStatus(users=users),
    )
    configuration = DiscoveryConfigurationObject(
        metadata=ObjectMeta(name="cameras"),
        spec={"discoveryHandler": {"name": "byHand"}, "capacity": 3, "extendedResourceDomain": "akri.sh"},
    )
    source: Any = SimpleNamespace(discovery=join_objects([configuration], [found]))
    of_claim = record("claim", device())
    of_user, of_nobody = (
        replace(held, claim=replace_uid(held, uid), resource=RESOURCE)
        for held, uid in ((record("user", device()), record_uid(RESOURCE, "a")), (record("nobody", device()), "nobody"))
    )
    records = {held.claim.uid: held for held in (of_claim, of_user, of_nobody)}
    checkpoint: Any = SimpleNamespace(records=records, get=records.get)
    allocator: Any = RecordingAllocator()
    offer: Any = SimpleNamespace(is_user=lambda *_: True)
    keeper = UserKeeper(source, node="n1", offer=offer, allocator=allocator, checkpoint=checkpoint, interval_s=60)
    await keeper.reconcile()
    assert (allocator.adopted, allocator.entered) == ([f"{RESOURCE}/b"], ["nobody"])


def replace_uid(held: PreparedClaim, uid: str) -> Any:
    return held.claim._replace(uid=uid)
