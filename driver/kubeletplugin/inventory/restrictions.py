"""What keeps devices of healthy cards from claims: others, modes, quarantine, refusals, orphans, reservations. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from kerf_dra.api.model.devices import DeviceTaint
from kerf_dra.api.model.names import DeviceId
from kerf_dra.api.model.prepared import PreparedClaim
from kerf_dra.driver.kubeletplugin.inventory.refusals import RefusalTracker
from kerf_dra.driver.kubeletplugin.inventory.reservations import Reservations
from kerf_dra.driver.kubeletplugin.inventory.surveys import SurveyTracker
from kerf_dra.driver.partitions.geometry import Partition
from kerf_dra.driver.partitions.records import from_card_part


class KnownAllocations:
    """The devices that claims have in their allocation, as far as this node knows.

    They are learned from a list of all claims, and until the next one from claims that are to be prepared.
    """

    def __init__(self, records: Mapping[str, PreparedClaim]) -> None:
        """``records`` is a live view of the records of this node's claims."""
        self._records = records
        self._known: frozenset[DeviceId] | None = None

    def has(self, device: DeviceId) -> bool:
        """Whether any claim may have ``device``; while no list is known, every device may be allocated."""
        if self._known is None or device in self._known:
            return True
        return any(held.share.id == device for record in self._records.values() for held in record.devices)

    def replace(self, devices: Iterable[DeviceId] | None) -> bool:
        """Apply a complete list, None: nobody knows; returns whether that changes anything."""
        before = self._known
        self._known = None if devices is None else frozenset(devices)
        return self._known != before

    def add(self, device: DeviceId) -> bool:
        """Apply that a claim has ``device``; returns whether that was not known."""
        if self._known is None or device in self._known:
            return False
        self._known |= {device}
        return True


class OrphanedDevices:
    """The devices that are in use though the API server no longer has their claims.

    To the scheduler they are free: a taint keeps it from allocating them, and what overlaps with them.
    """

    def __init__(self, *, driver: str) -> None:
        self._driver = driver
        self._partitions: dict[str, tuple[Partition, ...]] = {}

    @property
    def claim_uids(self) -> Collection[str]:
        return self._partitions.keys()

    def add(self, record: PreparedClaim) -> bool:
        """Apply that nobody knows the claim of ``record``; returns whether that is new."""
        is_new = record.claim.uid not in self._partitions
        devices = (device for device in record.devices if not device.admin_access)
        self._partitions[record.claim.uid] = tuple(from_card_part(device.part) for device in devices)
        return is_new

    def discard(self, claim_uid: str) -> bool:
        """Apply that the claim is there again, or its devices are released; returns whether that is new."""
        return self._partitions.pop(claim_uid, None) is not None

    def build_taints(self, partition: Partition) -> tuple[DeviceTaint, ...]:
        """Return the taint of a device that overlaps with one in use."""
        in_use = (held for partitions in self._partitions.values() for held in partitions)
        if any(held.overlaps(partition) for held in in_use):
            return (DeviceTaint(key=f"{self._driver}/orphaned", effect="NoSchedule"),)
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRestrictions:
    """Everything that restricts the devices of one node, as of now."""

    surveys: SurveyTracker
    refusals: RefusalTracker
    allocated: KnownAllocations
    orphaned: OrphanedDevices
    reservations: Reservations = field(default_factory=Reservations)

    @property
    def has_taints(self) -> bool:
        return bool(
            self.surveys.has_held or self.surveys.quarantine or self.refusals.placements or self.orphaned.claim_uids
        )

    def build_taints(self, partition: Partition) -> tuple[DeviceTaint, ...]:
        """Return the taints with which the device of ``partition`` is published, if it is."""
        return (
            *self.surveys.build_taints(partition),
            *self.refusals.build_taints(partition),
            *self.orphaned.build_taints(partition),
        )
