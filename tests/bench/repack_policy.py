"""The repacking policy of the loss system: it may move every partition, and refuses only what fits in no arrangement.

No driver can do this, as a partition in use cannot be moved. What it accepts more than KEEP is what
fragmentation costs.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import count

from kerf_dra.driver.partitions.geometry import Card, Partition
from tests.partitions.loss_system import Policy


def can_pack(wanted: Mapping[str | None, int], cards: int) -> bool:
    """Return whether ``wanted`` partitions of each profile fit on ``cards`` empty H100 cards.

    No profile but 7g crosses the middle of a card, so the halves fill on their own. An upper half lacks the place of a
    4g, and its last pair of units that of a 2g and of a second 1g. So each profile goes where it leaves the most: 3g in
    upper halves first, 1g.20gb in last pairs first.
    """
    get = wanted.get
    upper = cards - get("7g.80gb", 0)
    lower = upper - get("4g.40gb", 0)
    high = min(get("3g.40gb", 0), max(0, upper))
    upper, lower = upper - high, lower - (get("3g.40gb", 0) - high)
    last = min(get("1g.20gb", 0), max(0, upper))
    pairs = 2 * lower + upper - get("2g.20gb", 0) - (get("1g.20gb", 0) - last)
    return min(upper, lower, pairs) >= 0 and get("1g.10gb", 0) <= 2 * pairs + upper - last


def repacked() -> Policy:
    """Return the policy; the partitions that it gives have a profile and no placement."""
    numbers = count()

    def policy(cards: Sequence[Card], taken: Collection[Partition], profile: str) -> Partition | None:
        wanted = Counter(each.profile for each in taken) + Counter([profile])
        if not can_pack(wanted, len(cards)):
            return None
        return Partition(kind="gpu", card_uuid=f"any-{next(numbers)}", profile=profile)

    return policy
