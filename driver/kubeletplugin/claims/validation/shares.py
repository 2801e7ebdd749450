"""What a result says of a share of a device: its ID, and the amounts that it consumes (KEP-5075). Pure.

kube-scheduler gives a share ID to each result of a device with ``allowMultipleAllocations``, with admin access, too,
and records for each capacity of the device what the share consumes. Of an exclusive device it records neither. One
claim may have several shares of one device.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from kerf_dra.api.errors import Problem
from kerf_dra.api.model.allocations import DeviceRequestAllocationResult
from kerf_dra.api.model.names import DeviceId, ShareId
from kerf_dra.api.model.printable_text import to_one_line
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.kubeletplugin.inventory.devices import PartitionDevice
from kerf_dra.driver.partitions.geometry import NOTHING
from kerf_dra.driver.partitions.shared_devices import find_least_share

_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""The form of a share ID (``resource.k8s.io`` validation); it becomes a part of CDI device names."""
_LONGEST_NAME: Final = 100
"""Characters of a capacity's name in an error: more than one with a domain has (63 + 1 + 32, KEP-5075)."""


class ShareAmount(NamedTuple):
    """What a share consumes of one capacity."""

    path: str
    """The field path in the claim."""
    capacity: str
    """The name of the capacity, without the driver's domain."""
    amount: Quantity


class ShareDemand(NamedTuple):
    """What a claim needs of one capacity of a device in shares, to be compared with what other claims have of it."""

    share: ShareId
    amount: ShareAmount
    whole: Quantity
    """What the device has."""


class AllocatedResult(NamedTuple):
    """One result of a claim, with the device of this node that it names."""

    path: str
    """The field path in the claim."""
    result: DeviceRequestAllocationResult
    device: PartitionDevice

    @property
    def holds_device(self) -> bool:
        """Whether the result keeps the device from others: with admin access it does not (KEP-5018)."""
        return not self.result.admin_access

    def list_amounts(self) -> list[ShareAmount]:
        domain = f"{self.result.driver}/"
        return [
            ShareAmount(
                f"{self.path}.consumedCapacity[{to_one_line(name[:_LONGEST_NAME])}]", name.removeprefix(domain), amount
            )
            for name, amount in self.result.consumed_capacity.items()
        ]


def check_share(one: AllocatedResult) -> Iterator[Problem]:
    """Yield a problem for each field of a result that is not that of its device, shared or exclusive."""
    name, is_shared, share_id = one.result.device, one.device.partition.shared, one.result.share_id
    if share_id is not None and not is_shared:
        yield Problem(f"{one.path}.shareID", f"device {name} is exclusive: only shared devices have share IDs")
    elif share_id is not None and not _UUID.fullmatch(share_id):
        yield Problem(f"{one.path}.shareID", f"{share_id!r:.80} is not a UUID in lower case")
    elif share_id is None and is_shared and one.device.divided:
        yield Problem(f"{one.path}.shareID", f"required, as device {name} is shared: it identifies the share")
    if one.result.consumed_capacity and (not is_shared or share_id is None):
        yield Problem(
            f"{one.path}.consumedCapacity", f"device {name} is allocated as a whole: only shares consume a part"
        )
    elif is_shared and share_id is not None:
        yield from _check_amounts(one)


def _check_amounts(one: AllocatedResult) -> Iterator[Problem]:
    name, divided, amounts = one.result.device, one.device.divided, one.list_amounts()
    named = {each.capacity for each in amounts}
    if len(named) < len(amounts):
        yield Problem(f"{one.path}.consumedCapacity", "a capacity is named twice, with and without the driver's domain")
    for path, capacity, amount in amounts:
        whole = one.device.capacity.get(capacity)
        if whole is None:
            known = ", ".join(sorted(one.device.capacity))
            yield Problem(path, f"device {name} has no such capacity, only {known}")
        elif amount < NOTHING or (not amount and find_least_share(capacity, divided)):
            yield Problem(path, f"{amount} is out of range: a share consumes more than 0")
        elif amount > whole:
            yield Problem(path, f"{amount} is out of range: device {name} has {whole}")
    if divided and divided not in named and one.holds_device:
        message = f"required: without {divided} the share of device {name} would have no limit"
        yield Problem(f"{one.path}.consumedCapacity[{divided}]", message)


def list_demands(results: Iterable[AllocatedResult]) -> Iterator[ShareDemand]:
    """Yield what the results that hold shares need of their devices."""
    for one in results:
        for amount in one.list_amounts() if one.holds_device else ():
            if amount.capacity in one.device.capacity:
                yield ShareDemand(one.result.share, amount, one.device.capacity[amount.capacity])


def check_totals(results: Iterable[AllocatedResult]) -> Iterator[Problem]:
    """Yield a problem for each share that consumes more than the shares before it have left of the device."""
    left: dict[tuple[DeviceId, str], Quantity] = {}
    for one in results:
        for path, capacity, amount in one.list_amounts() if one.holds_device else ():
            whole = one.device.capacity.get(capacity, NOTHING)
            rest = left.get((one.result.id, capacity), whole)
            if not NOTHING < amount <= whole:
                continue  # a problem by itself, or nothing
            if amount > rest:
                reason = f"the claim's other shares leave {rest} of device {one.result.device}"
                yield Problem(path, f"{amount} is out of range: {reason}")
            else:
                left[one.result.id, capacity] = rest - amount
