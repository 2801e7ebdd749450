"""The users of a device where its nodes count them, in ``DiscoveredDevice.status.users``. Pure.

That is so where no scheduler counts the users of devices that several nodes reach (Kubernetes 1.29 to 1.31): pods ask
for extended resources, of which each kubelet counts those of its own node only. A user has one of the device's
capacity, whether by the resource of the configuration (any of its devices) or by that of the device (this one). A node
writes the list on condition that the object is as it was read, so that of two nodes that enter the last user one fails.

To the kubelet a device is as many ids as it has capacity, ``<digest>-<number>``, the same for both resources and on all
nodes. An id stands for no place of the device: it distinguishes the users of one node and resource.
"""

from collections.abc import Iterable, Sequence

from kerf_dra.api.errors import TransientError
from kerf_dra.api.kerf.discovery_objects import DeviceUser
from kerf_dra.driver.families.shared.objects import Discovery, FoundDevice


class NoCapacityError(TransientError):
    """A device has as many users as its capacity; one may end."""

    def __init__(self, device: str, users: Sequence[DeviceUser], capacity: int) -> None:
        nodes = ", ".join(sorted({user.node for user in users}))
        super().__init__(
            f"DiscoveredDevice {device} has no capacity left: {len(users)} of {capacity} are in use, on {nodes}"
        )


def name_resources(one: FoundDevice) -> tuple[str, ...]:
    """Return the extended resources by which pods get a device: of its configuration, of itself. Empty: by none."""
    domain = one.configuration.spec.extended_resource_domain
    return () if domain is None else (f"{domain}/{one.configuration.metadata.name}", f"{domain}/{one.name}")


def list_resources(discovery: Discovery, node: str) -> tuple[str, ...]:
    """Return the extended resources that ``node`` offers: of what it sees, or its containers use."""
    return tuple(sorted({name for one in discovery.devices.values() for name in _list_offered(one, node)}))


def list_members(discovery: Discovery, resource: str, node: str) -> tuple[FoundDevice, ...]:
    """Return the devices that ``node`` offers by a resource, by name."""
    found = (one for one in discovery.devices.values() if resource in _list_offered(one, node))
    return tuple(sorted(found, key=lambda one: one.name))


def list_ids(one: FoundDevice, own: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the ids of a device: as many as its capacity, and those of ``own`` beyond it, of before it was lowered."""
    ids = [f"{one.digest}-{number}" for number in range(one.capacity)]
    return (*ids, *sorted({*own} - {*ids}))


def digest_of(id_: str) -> str:
    """Return the digest of the device of which ``id_`` is an id."""
    return id_.rpartition("-")[0]


def list_own(users: Iterable[DeviceUser], node: str, resource: str) -> tuple[str, ...]:
    """Return the ids of the users on ``node`` by a resource."""
    return tuple(user.id for user in users if (user.node, user.resource) == (node, resource))


def count_free(one: FoundDevice) -> int:
    """Return how many users more a device can have; 0 also where it has more than its capacity, which was lowered."""
    return max(0, one.capacity - len(one.users))


def must_differ(one: FoundDevice, resource: str) -> bool:
    """Whether a container that gets several devices by ``resource`` may have this one only once."""
    return one.configuration.spec.unique_devices and not resource.endswith(f"/{one.name}")


def list_healthy(one: FoundDevice, *, node: str, resource: str) -> tuple[str, ...]:
    """Return the ids of a device that the kubelet of ``node`` may give to containers; the others are unhealthy there.

    Those that containers have, and as many more as the device has capacity left: what other nodes and the other
    resource have is gone from here. Of a device that must not be twice in a container one more is enough for the
    resource of the configuration, so that a kubelet that chooses several has different ones. A device that the node
    does not see is not available there, nor is one that has too many users, until enough of them have ended.
    """
    if node not in one.device.spec.nodes or len(one.users) > one.capacity:
        return ()
    own = list_own(one.users, node, resource)
    free = min(count_free(one), 1) if must_differ(one, resource) else count_free(one)
    others = [each for each in list_ids(one) if each not in own]
    return (*own, *others[:free])


def enter_user(
    device: str, capacity: int, users: tuple[DeviceUser, ...], user: DeviceUser
) -> tuple[DeviceUser, ...] | None:
    """Return the users of ``device`` with ``user``; None: it is one already.

    Raises NoCapacityError when there are as many as its ``capacity``.
    """
    if user in users:
        return None
    if len(users) >= capacity:
        raise NoCapacityError(device, users, capacity)
    return (*users, user)


def remove_user(users: tuple[DeviceUser, ...], user: DeviceUser) -> tuple[DeviceUser, ...] | None:
    """Return the users without ``user``; None: it is none of them."""
    return tuple(each for each in users if each != user) if user in users else None


def _list_offered(one: FoundDevice, node: str) -> tuple[str, ...]:
    if node in one.device.spec.nodes:
        return name_resources(one)
    return tuple({user.resource: None for user in one.users if user.node == node})
