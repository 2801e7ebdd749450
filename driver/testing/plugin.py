"""A stand-in for the kubelet plugin: it calls a backend by the plugin's rules, and keeps its records in memory.

What on a card is a claim's own and what is another's, the plugin's own ``ownership`` decides.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase
from kerf_dra.api.model.names import ClaimRef, DeviceId, ShareId
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.families.base import Family
from kerf_dra.driver.kubeletplugin.backends.base import (
    AllocatedDevice,
    Backend,
    CardSurvey,
    FoundPartition,
    Handle,
)
from kerf_dra.driver.kubeletplugin.backends.ownership import BEFORE, check_free, find_ours, list_before
from kerf_dra.driver.kubeletplugin.backends.survey_validation import survey_card
from kerf_dra.driver.partitions.device_names import device_name
from kerf_dra.driver.partitions.geometry import Card, Partition
from kerf_dra.driver.testing.journal import KillableJournal
from kerf_dra.driver.testing.machine import MachineUnderTest

_POOL = "node-1"
"""The name of the pool, of which a backend reads nothing."""


@dataclass(slots=True, kw_only=True, eq=False)
class DeviceRecord:
    """What the plugin knows of one device of a claim; it survives the process."""

    device: AllocatedDevice
    config: DeviceConfigBase | None
    journal: KillableJournal = field(default_factory=KillableJournal)
    handle: Handle | None = None
    """The result of prepare; None: it did not return yet."""

    @property
    def partition(self) -> Partition:
        return self.device.partition


class PluginStandIn:
    """The plugin's processes, one after another: ``restart`` ends one and begins the next, with the same records."""

    def __init__(self, machine: MachineUnderTest, family: Family) -> None:
        self.machine = machine
        self.family = family
        self.records: list[DeviceRecord] = []
        """The devices that are prepared or begun."""
        self.backend: Backend = machine.open_backend()
        self.backend.open()
        self.cards: Sequence[Card] = self.backend.discover()
        """The cards that this process found at its start."""

    def close(self) -> None:
        self.backend.close()

    def restart(self) -> None:
        """End this process, killed or not, and begin a new one, which nothing kills."""
        self.disarm()
        self.close()
        self.backend = self.machine.open_backend()
        self.backend.open()
        self.cards = self.backend.discover()

    def disarm(self) -> None:
        """Let nothing kill the process any more."""
        for record in self.records:
            record.journal.kill_at(None)
        if self.machine.has("kill_at"):
            self.machine.kill_at(None)
        if self.machine.has("fail_at"):
            self.machine.fail_at(None)

    def card(self, card_uuid: str) -> Card:
        return next(card for card in self.cards if card.uuid == card_uuid)

    def allocate(
        self, partition: Partition, claim: str, *, admin_access: bool = False, share: str | None = None
    ) -> DeviceRecord:
        """Return the record of ``partition`` that is allocated to the claim of this name; nothing is called yet."""
        card = self.card(partition.card_uuid)
        name = device_name(card, partition)
        consumed: dict[str, Quantity] = {}
        if share is not None:
            whole = replace(partition, shared=False)
            spec = next(spec for spec in card.geometry.specs if spec.of(card.uuid) == whole)
            consumed = {card.geometry.shareable: Quantity(int(spec.amount(card.geometry.shareable)) // 2)}
        return DeviceRecord(
            device=AllocatedDevice(
                claim=ClaimRef("default", claim, f"uid-of-{claim}"),
                share=ShareId(DeviceId(self.family.driver, f"{_POOL}/{self.family.name}", name), share),
                partition=partition,
                admin_access=admin_access,
                consumed_capacity=consumed,
            ),
            config=self.machine.config(partition),
        )

    def prepare(self, record: DeviceRecord) -> Handle:
        """Prepare a record's device by the rule. Raises HardwareConflictError, and what the backend raises."""
        if record not in self.records:
            self.records.append(record)
        found = None
        if not record.device.admin_access:
            survey = self.survey(record.partition.card_uuid)
            found = self._find_own(record, survey)
            check_free(record.partition, survey, found)
            if found is None or BEFORE not in record.journal.notes:
                record.journal.write(**{BEFORE: list_before(survey, found)})
        record.handle = self.backend.prepare(record.device, record.config, record.journal, found)
        return record.handle

    def release(self, record: DeviceRecord) -> None:
        """Take back what ``prepare`` made or began; another claim's share keeps it."""
        if self._sharers(record):
            pass
        elif record.handle is None:
            survey = self.survey(record.partition.card_uuid)
            self.backend.abandon(record.device, record.journal, self._find_own(record, survey))
        else:
            self.backend.unprepare(record.handle)
        if record in self.records:
            self.records.remove(record)

    def survey(self, card_uuid: str) -> CardSurvey:
        """Survey a card. Raises ContradictorySurveyError, and what the backend raises."""
        return survey_card(self.backend, card_uuid, self.card(card_uuid).units)

    def contents(self) -> dict[str, frozenset[object]]:
        """Return what is on each card, by its UUID: what a survey lists, and what it does not list as it is idle.

        Static partitions that no process uses are left out: they are there before and after everything.
        """
        return {
            card.uuid: frozenset(
                (
                    *(found for found in self.survey(card.uuid).partitions if not found.is_static or found.in_use),
                    *self.machine.idle(card.uuid),
                )
            )
            for card in self.cards
        }

    @property
    def is_empty(self) -> bool:
        """Whether nothing is on any card."""
        return not any(self.contents().values())

    def is_there(self, partition: Partition) -> bool:
        """Whether a survey shows exactly ``partition``."""
        return any(found.matches(partition) for found in self.survey(partition.card_uuid).partitions)

    def _find_own(self, record: DeviceRecord, survey: CardSurvey) -> FoundPartition | None:
        others = [other.journal.notes for other in self._sharers(record)]
        return find_ours(record.partition, survey, record.journal.notes, others)

    def _sharers(self, record: DeviceRecord) -> list[DeviceRecord]:
        """Return the records of other claims that have a share of the record's device."""
        if not record.partition.shared:
            return []
        return [other for other in self.records if other is not record and other.partition == record.partition]
