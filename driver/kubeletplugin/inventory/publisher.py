"""Keeps the published devices true: discovers cards, watches their health, orders devices for the next claim.

What is taken changes with every claim, and with it the best order (``driver.partitions.publish_order``). A change is
published only when it makes a difference to the scheduler, and looked for no sooner than it could be published.
"""

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Final

import anyio

from api.errors import KerfError
from api.model.devices import Pool
from api.model.prepared import PreparedClaim
from driver.kubeletplugin.backends.base import Backend, HardwareBusyError
from driver.kubeletplugin.inventory.devices import Inventory, Place, take_stock
from driver.kubeletplugin.inventory.health import HealthBoard
from driver.partitions.geometry import Card, Partition
from driver.partitions.records import from_card_part
from driver.runtime import metrics
from driver.runtime.backoff import Backoff
from driver.runtime.notifier import Pulse

SETTLE_S: Final = 0.2
"""Wait this long after the last change: a claim changes its record twice, pods come in groups, and an ill card takes
its partitions with it. Ordering and publishing would keep the claims that are being prepared from the processor."""
LONGEST_SETTLE_S: Final = 1.0
"""However fast claims come and go, no longer than the scheduler's first back-off for a pod that found no device."""

_log = logging.getLogger(__name__)

_PUBLISHED: Final = metrics.counter("kerf_inventory_published_total", "Times that this node's devices were published.")
_ILL: Final = metrics.gauge("kerf_unhealthy", "Cards and partitions of this node that are ill or lost.")


class Inventorying:
    """The devices of one node."""

    def __init__(
        self,
        *,
        place: Callable[[], Place],
        backends: Mapping[str, Backend],
        records: Mapping[str, PreparedClaim],
        publish: Callable[[Inventory], None],
        board: HealthBoard,
        on_health: Callable[[], None],
        interval_s: float,
        rest_s: float,
        timeout_s: float,
        backoff: Backoff,
        random: Random,
    ) -> None:
        """``records``: of this node's claims, a live view. ``interval_s``: how often to look for cards that nobody
        announces; ``rest_s``: how long after a publishing none can follow; ``timeout_s``: how long one look may take.
        """
        self._place = place
        self._backends = backends
        self._records = records
        self._publish = publish
        self._board = board
        self._on_health = on_health
        self._interval_s = interval_s
        self._rest_s = rest_s
        self._timeout_s = timeout_s
        self._backoff = backoff
        self._random = random
        self._cards: dict[str, Sequence[Card]] = {}
        self._problems: dict[str, str] = {}
        self._change = Pulse()
        self._changed_at = -math.inf
        self.inventory = Inventory()
        """As of the last look."""

    @property
    def problem(self) -> str | None:
        """Why devices may be missing or out of date; None: all is well."""
        return "; ".join(self._problems.values()) or None

    def changed(self) -> None:
        """Something may have changed that the order depends on."""
        self._changed_at = anyio.current_time()
        self._change.beat()

    async def refresh(self) -> None:
        """Look at the hardware. A backend that fails keeps the cards that it had, and hides nobody else's."""
        async with anyio.create_task_group() as group:
            for name, backend in self._backends.items():
                group.start_soon(self._discover, name, backend)
        taken = _taken(self._records.values())
        try:
            self.inventory = take_stock(self._place(), self._cards, taken, self._board, self.inventory)
        except KerfError as error:
            self._note_problem("inventory", f"the devices cannot be published: {error}")
        else:
            self._problems.pop("inventory", None)

    async def run(self) -> None:
        """Publish now and whenever it makes a difference, for ever."""
        published: tuple[Pool, ...] | None = None
        next_at = -math.inf
        while True:
            change = self._change.next
            await self.refresh()
            if self.inventory.pools != published:
                published = self.inventory.pools
                self._publish(self.inventory)
                _PUBLISHED.inc()
                next_at = anyio.current_time() + self._rest_s
            with anyio.move_on_after(self._interval_s):
                await change.wait()
            await anyio.sleep_until(next_at)
            await self._settle()

    async def watch_health(self, name: str) -> None:
        """Take in what backend ``name`` says of its cards' health, for ever."""
        for delay_s in self._backoff.delays(self._random):
            self._board.forget({card.uuid for card in self._cards.get(name, ())})
            try:
                async for change in self._backends[name].health():
                    if self._board.note(change):
                        _log.warning(
                            "card %s%s is %s%s",
                            change.card_uuid,
                            f" {change.partition.placement}" if change.partition else "",
                            change.condition,
                            f": {change.reason}" if change.reason else "",
                        )
                        _ILL.set(len(self._board.ailments))
                        self.changed()
                        self._on_health()
            except Exception as error:  # noqa: BLE001  (backends are third parties': the others go on)
                _log.error("backend %s cannot watch its cards' health: %r", name, error)
            await anyio.sleep(delay_s)

    async def _settle(self) -> None:
        """By the clock: a pulse would wake this task at every step of every claim."""
        latest = anyio.current_time() + LONGEST_SETTLE_S
        while anyio.current_time() < (until := min(self._changed_at + SETTLE_S, latest)):  # noqa: ASYNC110  (as said)
            await anyio.sleep_until(until)

    async def _discover(self, name: str, backend: Backend) -> None:
        try:
            with anyio.move_on_after(self._timeout_s) as limit:
                self._cards[name] = tuple(await backend.discover())
            if limit.cancelled_caught:
                raise HardwareBusyError(f"it gave no answer within {self._timeout_s:g} s")
        except Exception as error:  # noqa: BLE001  (as above)
            self._note_problem(name, f"backend {name} cannot discover its cards: {error}")
        else:
            self._problems.pop(name, None)

    def _note_problem(self, subject: str, problem: str) -> None:
        if self._problems.get(subject) != problem:
            _log.error("%s", problem)
        self._problems[subject] = problem


def _taken(records: Iterable[PreparedClaim]) -> list[Partition]:
    """What claims have of the hardware, each part once; admin access only looks (KEP-5018)."""
    devices = (device for record in records for device in record.devices)
    return list(dict.fromkeys(from_card_part(device.part) for device in devices if not device.admin_access))
