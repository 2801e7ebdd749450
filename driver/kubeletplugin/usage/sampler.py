"""Samples what a node's claims use of their devices, at an interval, in one task: metrics and statuses follow.

Cards are sampled one after the other. A card that cannot be sampled is left out this time, with a line in the log where
that begins: its devices then count as neither idle nor busy.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

import anyio

from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.names import ClaimRef
from kerf_dra.driver.kubeletplugin.backends.card_executor import CardExecutor
from kerf_dra.driver.kubeletplugin.inventory.node_state import NodeState
from kerf_dra.driver.kubeletplugin.inventory.state.usage import NodeUsage, UsedDevice
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.kubeletplugin.usage.idleness import IdleRules
from kerf_dra.driver.kubeletplugin.usage.usage_document import FILE_NAME, UsageDocument, read_usage, write_usage
from kerf_dra.driver.kubeletplugin.usage.usage_tracker import UsageTracker
from kerf_dra.driver.partitions.geometry import Card
from kerf_dra.driver.runtime import metrics
from kerf_dra.driver.runtime.problem_log import ProblemLog
from kerf_dra.driver.runtime.worker_threads import LimitedCalls

_log = logging.getLogger(__name__)

_FAILED: Final = metrics.counter(
    "kerf_samples_failed_total", "Samples of what a card is used for that failed.", ["driver"]
)
_SETTLE_S: Final = 0.2
"""Pause after a change of the records, or each step of each claim would have all of them looked at; energy is shared
out to claims by the seconds for which they had a device, as exactly as this."""
_FILE: Final = "file"
"""Names the file in the log of problems, where cards have their UUID."""


class StatusRequests(Protocol):
    """Takes requests to have the status of claims follow what is known of their devices."""

    def request(self, claim: ClaimRef) -> None:
        """Have the status of ``claim`` written soon, if it is another one. Returns at once."""
        ...


class UsageSampler:
    """The sampler of one node's cards."""

    def __init__(
        self,
        *,
        settings: Settings,
        boot_id: str,
        card_executor: CardExecutor,
        state: NodeState,
        status_writer: StatusRequests,
    ) -> None:
        self._driver = settings.driver_name
        self._interval_s = settings.sample_interval_s
        self._card_executor = card_executor
        self._state = state
        self._status_writer = status_writer
        self._now = card_executor.now
        self._path: Path = settings.state / FILE_NAME
        self._tracker = UsageTracker(IdleRules(settings.idle_after_s, settings.sample_interval_s or 0.0), boot_id)
        self._files = LimitedCalls(1, start=card_executor.start)
        self._problems = ProblemLog(_log)
        self._written: UsageDocument | None = None
        """What the file has; None: it is not known."""

    async def restore(self) -> None:
        """Read what an earlier process has left, before any status of a claim is written."""
        if self._interval_s is None:
            return
        try:
            self._tracker.restore(await self._files.run(read_usage, self._path))
        except (OSError, ValueError) as error:
            _log.warning("%s cannot be read, so the energy of claims begins at 0 again: %s", self._path, error)
        self._note_records()
        self._state.note_usage(self._tracker.build_usage(self._now()))

    async def run(self) -> None:
        """Sample all cards now and at each interval, until cancelled; not at all if the setting says so."""
        if self._interval_s is None:
            return
        while True:
            next_at = anyio.current_time() + self._interval_s
            await self._sample_cards()
            await self._follow_records(next_at)

    async def _follow_records(self, until: float) -> None:
        """Note changes of the records when they happen, for so long."""
        with anyio.move_on_after(until - anyio.current_time()):
            while True:
                change = self._state.changed.next_event
                self._note_records()
                await change.wait()
                await anyio.sleep(_SETTLE_S)

    def _note_records(self) -> None:
        self._tracker.note_records(self._state.records.values(), self._now())

    async def _sample_cards(self) -> None:
        cards = tuple(self._state.cards)
        for card in cards:
            await self._sample_card(card)
        present = {card.uuid for card in cards}
        self._tracker.keep_cards(present, self._now())
        self._problems.keep({*present, _FILE})
        await self._write(self._tracker.build_document())
        self._publish(self._tracker.build_usage(self._now()))

    async def _sample_card(self, card: Card) -> None:
        devices = self._tracker.list_devices(self._state.records.values(), card.uuid)
        try:
            sample = await self._card_executor.sample(card.uuid, [device.handle for device in devices])
        except Exception as error:  # noqa: BLE001  (backends are third parties': the other cards go on)
            reason = str(error) if isinstance(error, KerfError) else repr(error)
            _FAILED.labels(self._driver).inc()
            self._problems.note(card.uuid, f"card {card.uuid} cannot be sampled for what it is used for: {reason}")
            self._tracker.note_failure(card.uuid, self._now())
            return
        self._problems.clear(card.uuid)
        if sample is not None:
            self._note_records()
            others = self._state.restrictions.surveys.list_foreign()
            has_others = any(partition.card_uuid == card.uuid for partition in others)
            self._tracker.note_sample(card, devices, sample, self._now(), has_others=has_others)

    async def _write(self, document: UsageDocument) -> None:
        if document == self._written:  # as where no card counts energy and no claim has a device
            return
        try:
            await self._files.run(write_usage, self._path, document)
        except OSError as error:
            self._problems.note(
                _FILE, f"{self._path} cannot be written, so a restart sets the energy of claims back: {error}"
            )
        else:
            self._written = document
            self._problems.clear(_FILE)

    def _publish(self, usage: NodeUsage) -> None:
        """Let metrics have the figures, and the status of claims whose device became idle or busy."""
        before, now = _list_idle(self._state.usage), _list_idle(usage)
        self._state.note_usage(usage)
        for uid in sorted({device.claim_uid for device, _ in before.items() ^ now.items()}):
            if (record := self._state.records.get(uid)) is not None and not record.resource:
                self._status_writer.request(record.claim)


def _list_idle(usage: NodeUsage) -> Mapping[UsedDevice, float]:
    return {device: one.idle_since for device, one in usage.devices.items() if one.idle_since is not None}
