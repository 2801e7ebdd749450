"""The health of devices: the taints with which they are published, and the health reports for the kubelet.

An unhealthy device works but gets no new claims (NoSchedule). A lost device cannot serve its pods any longer; they
should start again elsewhere (NoExecute: kube-controller-manager evicts those without a toleration, KEP-5055). A taint
ends with its cause. A card that could not load a function gets no claims for that function for a while.
"""

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from kerf_dra.api.dra.health import DeviceHealth, Health
from kerf_dra.api.kerf.card_repairs import build_repair_taint, choose_repair
from kerf_dra.api.model.device_attributes import unhealthy_taint_key
from kerf_dra.api.model.devices import DeviceTaint
from kerf_dra.api.model.names import DeviceId
from kerf_dra.api.model.prepared import PreparedClaim, PreparedDevice
from kerf_dra.driver.kubeletplugin.backends.base import HealthChange, HealthState, UnhealthyState
from kerf_dra.driver.kubeletplugin.inventory.state.refusals import RefusedPlacement
from kerf_dra.driver.kubeletplugin.inventory.state.surveys import SurveyTracker
from kerf_dra.driver.partitions.geometry import Card, Partition, Placement
from kerf_dra.driver.partitions.recorded_cards import keep_partitions
from kerf_dra.driver.partitions.records import from_card_part

_Part: TypeAlias = tuple[str, Partition | None]
"""A card's UUID and a partition of it; None: the whole card."""
_LoadKey: TypeAlias = tuple[str, str | None, Placement | None]
"""A card's UUID and the function that it could not load; the placement of a partition that has a profile instead."""

_TAINTS: Final = MappingProxyType(
    {HealthState.UNHEALTHY: ("degraded", "NoSchedule"), HealthState.LOST: ("lost", "NoExecute")}
)
"""Value and effect of the published taint; the values are wire format, which tolerations may name."""
_MAX_MESSAGE: Final = 256
"""Characters of a message about a device: the kubelet accepts 1024 bytes (KEP-4680), and one has at most four."""


_GONE: Final = "it is gone: its card was reset, or another program removed it or cut the card; see the Node's events"
"""The message about a device that a survey no longer finds."""


class HeldCard(NamedTuple):
    """A card that claims have and that the latest discovery misses."""

    card: Card
    backend: str
    """The name of the backend that prepared what the claims have."""
    partitions: frozenset[Partition]
    """What the claims have."""
    replaced_by: str = ""
    """The UUID of a card that has its PCI address; empty: none has."""
    is_name_taken: bool = False
    """Whether another card has its name: drivers number their cards when they are loaded."""

    @property
    def can_be_published(self) -> bool:
        return not self.replaced_by and not self.is_name_taken


class LostCards(NamedTuple):
    """What follows for cards that claims have and that discovery misses."""

    reasons: Mapping[str, str]
    """Why cards are lost, by UUID; those that their backend reports as lost are not among them."""
    published: tuple[HeldCard, ...]
    """Those that stay published, lost or not, with the partitions that stay."""


class LoadFailure(NamedTuple):
    """A function that could not be loaded into a card."""

    reason: str
    hold_until: float
    """When the card may get claims for the function again, in seconds of a monotonic clock."""


class DeviceHealthTracker:
    """The present health of a node's cards and partitions, and the recent load failures."""

    def __init__(self, *, driver: str, now: Callable[[], float], clock: Callable[[], float] = time.monotonic) -> None:
        """``now`` returns Unix time in seconds, which reports have, ``clock`` monotonic seconds: a clock may be set."""
        self._driver = driver
        self._taints = {
            state: DeviceTaint(key=unhealthy_taint_key(driver), value=value, effect=effect)
            for state, (value, effect) in _TAINTS.items()
        }
        self._load_failure_taint = DeviceTaint(key=f"{driver}/load-failed", effect="NoSchedule")
        self._now = now
        self._clock = clock
        self._unhealthy: dict[_Part, UnhealthyState] = {}
        self._load_failures: dict[_LoadKey, LoadFailure] = {}
        self._lost: Mapping[str, str] = {}
        """Why cards are lost of which no backend reports that, by UUID."""

    @property
    def unhealthy(self) -> Mapping[_Part, UnhealthyState]:
        """The problems of unhealthy and lost cards and partitions: as backends have reported them, or ``replace_lost``
        says.
        """
        found = dict(self._unhealthy)
        found.update(((uuid, None), UnhealthyState(HealthState.LOST, reason)) for uuid, reason in self._lost.items())
        return found

    @property
    def has_taints(self) -> bool:
        """Whether any device is tainted."""
        return bool(self._unhealthy or self._lost or self._load_failures)

    def replace_lost(self, reasons: Mapping[str, str]) -> bool:
        """Replace the cards that are lost though no backend reports it (``find_lost``), by UUID with the reasons.

        Return whether that says anything new.
        """
        before, self._lost = self._lost, reasons
        return before != reasons

    def forget(self, card_uuids: Collection[str]) -> None:
        """Forget what is known of these cards, because their backend is about to report it again."""
        for part in [part for part in self._unhealthy if part[0] in card_uuids]:
            del self._unhealthy[part]

    def update(self, change: HealthChange) -> bool:
        """Apply a change; returns whether it says anything new."""
        key = (change.card_uuid, change.partition)
        known = self._unhealthy.get(key)
        if change.state is HealthState.HEALTHY:
            self._unhealthy.pop(key, None)
            return known is not None
        self._unhealthy[key] = UnhealthyState(change.state, change.reason, change.repair)
        return known != self._unhealthy[key]

    def is_lost(self, card_uuid: str) -> bool:
        """Whether the card's backend reports that it is lost as a whole."""
        unhealthy = self._unhealthy.get((card_uuid, None))
        return unhealthy is not None and unhealthy.state is HealthState.LOST

    def find_unhealthy(self, partition: Partition) -> UnhealthyState | None:
        """Return the worst state of ``partition``, its card and what it overlaps; None: all are healthy."""
        found = self._list_unhealthy(partition)
        return max(found, key=lambda unhealthy: unhealthy.state is HealthState.LOST, default=None)

    def _list_unhealthy(self, partition: Partition) -> list[UnhealthyState]:
        return [
            unhealthy
            for (card_uuid, part), unhealthy in (self.unhealthy if self._lost else self._unhealthy).items()
            if card_uuid == partition.card_uuid and (part is None or part.overlaps(partition))
        ]

    def build_taints(self, partition: Partition) -> tuple[DeviceTaint, ...]:
        """Return the taints with which the device of ``partition`` is published."""
        unhealthy = self.find_unhealthy(partition)
        taints = () if unhealthy is None else (self._taints[unhealthy.state],)
        return taints if self.find_load_failure(partition) is None else (*taints, self._load_failure_taint)

    def build_repair_taints(self, partition: Partition) -> tuple[DeviceTaint, ...]:
        """Return the taint that says what repairs the card of ``partition``, if that is unhealthy and it is known."""
        repair = choose_repair(unhealthy.repair for unhealthy in self._list_unhealthy(partition))
        return () if repair is None else (build_repair_taint(self._driver, repair),)

    def record_load_failure(self, partition: Partition, reason: str, hold_s: float) -> None:
        """Keep the card of ``partition`` from getting claims for its function, for ``hold_s`` seconds.

        A partition with a profile, which loads nothing, is kept from claims at its placement alone.
        """
        self._load_failures[_load_key(partition)] = LoadFailure(reason, self._clock() + hold_s)

    def find_load_failure(self, partition: Partition) -> str | None:
        """Return why ``partition`` must not be tried again yet; None: it may be."""
        failure = self._load_failures.get(_load_key(partition))
        return failure.reason if failure is not None and self._clock() < failure.hold_until else None

    @property
    def load_failures_left_s(self) -> float:
        """The seconds until the next load failure is over; infinite: there is none."""
        return min((failure.hold_until for failure in self._load_failures.values()), default=math.inf) - self._clock()

    def expire_load_failures(self) -> None:
        """Forget load failures whose time is over."""
        for key in [key for key, failure in self._load_failures.items() if failure.hold_until <= self._clock()]:
            del self._load_failures[key]

    def build_reports(
        self,
        records: Iterable[PreparedClaim],
        refused: Mapping[DeviceId, RefusedPlacement] = MappingProxyType({}),
        is_missing: Callable[[str, PreparedDevice], bool] = lambda *_: False,
    ) -> tuple[DeviceHealth, ...]:
        """Build the kubelet's report of the devices of claims, each device once; ``refused`` ones are unhealthy, and
        those of which ``is_missing``, for claim UID and device, says that they are gone from their cards.
        """
        checked_at_s = int(self._now())
        records = tuple(records)
        missing = {
            device.share.id for record in records for device in record.devices if is_missing(record.claim.uid, device)
        }
        devices = {
            device.share.id: from_card_part(device.part)
            for record in records
            for device in record.devices
            if device.share.id not in refused
        }
        refusals = tuple(
            DeviceHealth(
                pool=device.pool,
                device=device.device,
                health=Health.UNHEALTHY,
                checked_at_s=checked_at_s,
                message=f"the hardware keeps refusing it: {placement.reason}"[:_MAX_MESSAGE],
            )
            for device, placement in refused.items()
        )
        return refusals + tuple(
            DeviceHealth(
                pool=device.pool,
                device=device.device,
                health=Health.UNHEALTHY if reason else Health.HEALTHY,
                checked_at_s=checked_at_s,
                message=reason,
            )
            for device, partition in devices.items()
            for unhealthy in (self.find_unhealthy(partition),)
            for reason in (unhealthy.reason or unhealthy.state if unhealthy else _GONE if device in missing else "",)
        )


def find_lost(
    missed: Iterable[HeldCard], surveys: SurveyTracker, discovered: Collection[str], is_lost: Callable[[str], bool]
) -> LostCards:
    """Decide which of the cards ``missed`` are lost, and which stay published.

    A card is lost where a survey has found that it is not there, or another card has its PCI address. It stays
    published, unless another card is published in its place, or under its name. While it is not known whether a card is
    there, only what claims have of it stays published: its survey failed for another reason, or its backend, which is
    not among the ``discovered`` ones, could not list its cards. A card that is there but is not offered any more, such
    as an FPGA card whose description is gone, is withdrawn. ``is_lost`` returns whether a card's backend reports it as
    lost, by UUID.
    """
    reasons: dict[str, str] = {}
    published: list[HeldCard] = []
    for held in missed:
        uuid = held.card.uuid
        is_reported = is_lost(uuid)
        reason = f"card {held.replaced_by} is in its place" if held.replaced_by else surveys.absent.get(uuid)
        if reason is not None and not is_reported:
            reasons[uuid] = reason[:_MAX_MESSAGE]
        if not held.can_be_published:
            continue
        if is_reported or reason is not None:
            published.append(held)
        elif held.backend not in discovered or uuid in surveys.quarantine:
            published.append(held._replace(card=keep_partitions(held.card, held.partitions)))
    return LostCards(reasons, tuple(published))


def _load_key(partition: Partition) -> _LoadKey:
    placement = partition.placement if partition.profile is not None else None
    return (partition.card_uuid, partition.function, placement)
