"""Tracks which claims have which devices for how long, and what they use of their cards. Pure: time is given.

Each change of the records is noted when it happens, so that energy is shared out by the seconds for which a claim had
its device, also of one that came and went between two samples. A claim has its device from the moment on at which it is
recorded as *prepared* until its release begins.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.prepared import ClaimState, PreparedClaim, PreparedDevice
from kerf_dra.driver.kubeletplugin.backends.base import CardSample, DeviceSample
from kerf_dra.driver.kubeletplugin.inventory.state.usage import CardEnergy, DeviceUsage, NodeUsage, UsedDevice
from kerf_dra.driver.kubeletplugin.usage.energy_account import (
    CardAccount,
    CardShares,
    EnergyReading,
    PartHolder,
    add_reading,
    begin_account,
)
from kerf_dra.driver.kubeletplugin.usage.idleness import IdleRules, IdleState, add_sample
from kerf_dra.driver.kubeletplugin.usage.usage_document import UsageDocument
from kerf_dra.driver.partitions.geometry import Card, Partition
from kerf_dra.driver.partitions.records import from_card_part

_MJ_PER_J: Final = 1000
_MOST_AWAY: Final = 64
"""The most accounts of cards that are away: four times what a machine has."""


class SampledDevice(NamedTuple):
    """A prepared device of a claim, which a sample of its card is about."""

    name: str
    """Its name in accounts."""
    used: UsedDevice
    backend: str
    handle: JsonObject


@dataclass(slots=True)
class _Tenure:
    """The time for which a claim has, or had, a device."""

    device: UsedDevice
    partition: Partition
    since: float
    """When it began, or the latest reading of the card if that was later; in seconds since 1970."""
    held_s: float = 0.0
    """The seconds of it before ``since`` that no reading has counted yet: it had ended and began again."""
    ended_at: float | None = None
    """When it ended; None: it goes on."""
    sample: DeviceSample = field(default_factory=DeviceSample)
    power_w: float | None = None

    def count_held(self, now: float) -> float:
        """Return the seconds that no reading has counted yet."""
        return self.held_s + max(0.0, (now if self.ended_at is None else self.ended_at) - self.since)


class UsageTracker:
    """What one node's claims use of its cards."""

    def __init__(self, rules: IdleRules, boot_id: str) -> None:
        self._rules = rules
        self._boot_id = boot_id
        self._tenures: dict[str, _Tenure] = {}
        self._accounts: dict[str, CardAccount] = {}
        self._idleness: dict[str, IdleState] = {}
        self._present: frozenset[str] = frozenset()

    def restore(self, document: UsageDocument) -> None:
        """Go on where an earlier process has ended."""
        self._accounts = dict(document.cards)
        self._idleness = dict(document.idleness) if document.boot_id == self._boot_id else {}

    def note_records(self, records: Iterable[PreparedClaim], now: float) -> None:
        """Note which claims have devices now; ``now`` is in seconds since 1970."""
        found = {_name(used): (used, device) for used, device in _list_held(records)}
        for name, tenure in self._tenures.items():
            if name not in found and tenure.ended_at is None:
                tenure.ended_at = now
        for name, (used, device) in found.items():
            tenure_now = self._tenures.get(name)
            if tenure_now is None:
                partition = from_card_part(device.part)
                self._tenures[name] = _Tenure(used, partition, self._find_begin(name, partition.card_uuid, now))
            elif tenure_now.ended_at is not None:
                tenure_now.held_s, tenure_now.since, tenure_now.ended_at = tenure_now.count_held(now), now, None
                self._idleness.pop(name, None)

    def list_devices(self, records: Iterable[PreparedClaim], card_uuid: str) -> list[SampledDevice]:
        """Return the devices of a card that claims have now, to be sampled."""
        return [
            SampledDevice(_name(used), used, device.backend, device.handle or {})
            for used, device in _list_held(records)
            if device.part.card_uuid == card_uuid
        ]

    def note_sample(
        self, card: Card, devices: Iterable[SampledDevice], sample: CardSample, now: float, *, has_others: bool
    ) -> None:
        """Note a sample of a card, which has ``devices`` in its order.

        ``has_others``: another program has a part of the card.
        """
        sampled = dict(zip((device.name for device in devices), sample.devices, strict=True))
        self._note_devices(card.uuid, sampled, now)
        if sample.energy_mj is not None:
            reading = EnergyReading(sample.energy_mj, self._boot_id, now)
            self._note_energy(card, reading, has_others=has_others)

    def note_failure(self, card_uuid: str, now: float) -> None:
        """Note that a card could not be sampled: what was known of its devices' use is out of date."""
        self._note_devices(card_uuid, {}, now)

    def keep_cards(self, card_uuids: Iterable[str], now: float) -> None:
        """Note which cards there are: the devices of others cannot be sampled.

        The accounts of some cards that are away are kept: one whose driver is loaded again comes back.
        """
        self._present = frozenset(card_uuids)
        for card_uuid in {one.partition.card_uuid for one in self._tenures.values()} - self._present:
            self._note_devices(card_uuid, {}, now)
        away = sorted(self._accounts.keys() - self._present, key=lambda uuid: self._accounts[uuid].at)
        for card_uuid in away[:-_MOST_AWAY]:
            del self._accounts[card_uuid]
        ended = [name for name, one in self._tenures.items() if one.ended_at is not None]
        for name in ended:
            if self._tenures[name].partition.card_uuid not in self._present:
                self._forget(name)

    def build_usage(self, now: float) -> NodeUsage:
        """Return what is known now."""
        devices = {
            tenure.device: self._describe(name, tenure)
            for name, tenure in self._tenures.items()
            if tenure.ended_at is None
        }
        cards = {
            uuid: CardEnergy(total_mj=account.total_mj, unattributed_mj=account.unattributed_mj)
            for uuid, account in self._accounts.items()
            if uuid in self._present
        }
        return NodeUsage(at=now, devices=devices, cards=cards)

    def build_document(self) -> UsageDocument:
        """Return what another process needs to go on."""
        return UsageDocument(boot_id=self._boot_id, cards=dict(self._accounts), idleness=dict(self._idleness))

    def _describe(self, name: str, tenure: _Tenure) -> DeviceUsage:
        account = self._accounts.get(tenure.partition.card_uuid)
        state = self._idleness.get(name)
        return DeviceUsage(
            sample=tenure.sample,
            energy_mj=None if account is None else account.claims.get(name, 0),
            power_w=tenure.power_w,
            idle_since=None if state is None else state.idle_since,
        )

    def _find_begin(self, name: str, card_uuid: str, now: float) -> float:
        """Return since when a claim has a device that is new to this process: an earlier one may have known it."""
        account = self._accounts.get(card_uuid)
        return account.at if account is not None and name in account.claims else now

    def _note_devices(self, card_uuid: str, sampled: Mapping[str, DeviceSample], now: float) -> None:
        for name, tenure in self._tenures.items():
            if tenure.partition.card_uuid != card_uuid or tenure.ended_at is not None:
                continue
            tenure.sample = sampled.get(name, DeviceSample())
            tenure.power_w = None
            state = add_sample(self._idleness.get(name), tenure.sample, now, self._rules)
            if state is None:
                self._idleness.pop(name, None)
            else:
                self._idleness[name] = state

    def _note_energy(self, card: Card, reading: EnergyReading, *, has_others: bool) -> None:
        tenures = {name: one for name, one in self._tenures.items() if one.partition.card_uuid == card.uuid}
        account = self._accounts.get(card.uuid)
        if account is None:
            self._accounts[card.uuid] = begin_account(reading)
        else:
            holders = self._list_holders(card, tenures, reading.at)
            noted = add_reading(account, reading, holders, CardShares(card.geometry.whole.weight, has_others))
            self._accounts[card.uuid] = noted.account
            for holder in holders:
                if holder.held_s > 0:
                    joules = noted.shares_mj[holder.device] / _MJ_PER_J
                    tenures[holder.device].power_w = joules / min(holder.held_s, noted.interval_s or holder.held_s)
        for name, tenure in tenures.items():
            if tenure.ended_at is None:
                tenure.since, tenure.held_s = reading.at, 0.0
            else:
                self._forget(name)

    def _list_holders(self, card: Card, tenures: Mapping[str, _Tenure], now: float) -> list[PartHolder]:
        specs = {(spec.profile, spec.function, spec.placement): spec for spec in card.geometry.specs}
        holders = []
        for name, tenure in tenures.items():
            part = tenure.partition
            spec = specs.get((part.profile, part.function, part.placement))
            sharing = sum(one.partition == part and one.ended_at is None for one in tenures.values())
            weight = card.geometry.whole.weight if spec is None else spec.weight
            holders.append(
                PartHolder(
                    device=name,
                    weight=weight / max(1, sharing),
                    busy=tenure.sample.busy,
                    held_s=tenure.count_held(now),
                    is_prepared=tenure.ended_at is None,
                )
            )
        return holders

    def _forget(self, name: str) -> None:
        self._tenures.pop(name, None)
        self._idleness.pop(name, None)


def _list_held(records: Iterable[PreparedClaim]) -> Iterable[tuple[UsedDevice, PreparedDevice]]:
    """Yield the devices that claims have; one with admin access is another claim's, which has it."""
    for record in records:
        if record.state is ClaimState.PREPARED:
            for device in record.devices:
                if not device.admin_access and device.handle is not None:
                    yield UsedDevice(record.claim.uid, device.share), device


def _name(used: UsedDevice) -> str:
    return f"{used.claim_uid}/{used.share}"
