"""The account of one card's energy: how much of it each claim has used. Pure.

Problem: a card counts the energy of all of it, in one counter that begins again at 0 when the card is reset or its
driver loaded. Several claims have parts of the card, for some of the time between two readings.

Algorithm: proportional apportionment of the counter's increase. A holder's weight is the compute slices of its part,
times the seconds for which it had the part; where all holders' activity was measured, and some had any, times that.
In the first case what no claim had, or another program has, is unattributed, by its slices; in the second one it has
used nothing. Millijoules are whole numbers, cut off at the sums of weights, so that no millijoule is lost or made.

Invariant: ``total_mj == unattributed_mj + ended_mj + sum(claims)`` in every account, and no number ever falls; so the
increase of claims and of what is unattributed is that of the counter exactly. What a card has used between the last
reading and a reset is in no reading, and so in no account.

Budget: one pass over the holders of one card for each reading.

>>> account = begin_account(EnergyReading(counter_mj=1000, boot_id="b", at=0.0))
>>> holder = PartHolder(device="a", weight=3, busy=None, held_s=10.0, is_prepared=True)
>>> reading = EnergyReading(counter_mj=1700, boot_id="b", at=10.0)
>>> after = add_reading(account, reading, [holder], CardShares(weight=7, has_others=False)).account
>>> after.claims, after.unattributed_mj, after.total_mj
({'a': 300}, 400, 700)
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import msgspec
from msgspec.structs import replace


class EnergyReading(NamedTuple):
    """What a card's counter says at one moment."""

    counter_mj: int
    """Millijoules since the card was reset or its driver loaded."""
    boot_id: str
    """The boot of the machine; in another one the counter has begun again."""
    at: float
    """The moment in seconds since 1970."""


class PartHolder(NamedTuple):
    """A part of a card that a claim has, or had between two readings."""

    device: str
    """The device of the claim, by a name that no other one has while this card has an account."""
    weight: float
    """The compute slices of the part, divided by the number of claims that share it; more than 0."""
    busy: float | None
    """The part of the time in which the device computed, 0 to 1; None: it was not measured."""
    held_s: float
    """The seconds since the reading before for which the claim had it."""
    is_prepared: bool
    """Whether the claim has it still: of one that ended, no more is kept than the sum of all."""


class CardShares(NamedTuple):
    """What there is of a card beside its holders."""

    weight: float
    """The compute slices of the whole card."""
    has_others: bool
    """Whether another program has a part of the card, whose activity is measured by none."""


class CardAccount(msgspec.Struct, frozen=True, kw_only=True):
    """The account of one card."""

    counter_mj: int
    """The counter, the boot and the time of the latest reading."""
    boot_id: str
    at: float
    total_mj: int = 0
    """The millijoules of the card since its first reading."""
    unattributed_mj: int = 0
    """Those that no claim has used."""
    ended_mj: int = 0
    """Those of claims that have ended."""
    claims: Mapping[str, int] = {}
    """Those of claims that have a part of the card now, by device."""


class NotedReading(NamedTuple):
    """What a reading has come to."""

    account: CardAccount
    shares_mj: Mapping[str, int]
    """The millijoules that each holder was given of the increase, by device."""
    interval_s: float
    """The seconds since the reading before, 0 or more."""


def begin_account(reading: EnergyReading) -> CardAccount:
    """Return the account of a card that was never read before: what it has used until now counts for no claim."""
    return CardAccount(counter_mj=reading.counter_mj, boot_id=reading.boot_id, at=reading.at)


def add_reading(
    account: CardAccount, reading: EnergyReading, holders: Sequence[PartHolder], card: CardShares
) -> NotedReading:
    """Share the increase of the counter since the account's reading out to ``holders``, each of them once."""
    increase_mj = _find_increase(account, reading)
    interval_s = max(0.0, reading.at - account.at)
    weights = _weigh(holders, card, interval_s)
    parts_mj = apportion(increase_mj, weights)
    shares_mj = {holder.device: part for holder, part in zip(holders, parts_mj, strict=False)}
    claims = {
        holder.device: account.claims.get(holder.device, 0) + shares_mj[holder.device]
        for holder in holders
        if holder.is_prepared
    }
    total_mj, unattributed_mj = account.total_mj + increase_mj, account.unattributed_mj + parts_mj[-1]
    noted = replace(
        account,
        counter_mj=reading.counter_mj,
        boot_id=reading.boot_id,
        at=reading.at,
        total_mj=total_mj,
        unattributed_mj=unattributed_mj,
        ended_mj=total_mj - unattributed_mj - sum(claims.values()),
        claims=claims,
    )
    return NotedReading(noted, shares_mj, interval_s)


def apportion(amount: int, weights: Sequence[float]) -> list[int]:
    """Cut ``amount`` into parts in the ratio of ``weights``, 0 or more; all of it is the last one's if all are 0.

    >>> apportion(10, [1, 1, 1])
    [3, 3, 4]
    """
    sums = list(accumulate(weights))
    total = sums[-1]
    cuts = [int(amount * (one / total)) if total > 0 else 0 for one in sums[:-1]]
    return [end - start for start, end in zip([0, *cuts], [*cuts, amount], strict=True)]


def _find_increase(account: CardAccount, reading: EnergyReading) -> int:
    """Return the millijoules since the account's reading; after a reset those since the reset."""
    has_begun_again = reading.boot_id != account.boot_id or reading.counter_mj < account.counter_mj
    return reading.counter_mj if has_begun_again else reading.counter_mj - account.counter_mj


def _weigh(holders: Sequence[PartHolder], card: CardShares, interval_s: float) -> list[float]:
    """Return the weights of the holders, and behind them that of what no claim had."""
    held = [holder.weight * min(max(holder.held_s, 0.0), interval_s) for holder in holders]
    if not card.has_others and all(holder.busy is not None for holder in holders):
        active = [weight * (holder.busy or 0.0) for weight, holder in zip(held, holders, strict=True)]
        if sum(active) > 0:
            return [*active, 0.0]
    return [*held, max(0.0, card.weight * interval_s - sum(held))]
