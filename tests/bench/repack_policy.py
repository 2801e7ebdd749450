"""A policy of the loss system that may move everything: a request is lost only where no arrangement has room for it.

No driver can do this, as a partition in use cannot be moved. What it accepts more than KEEP is what
fragmentation costs.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import count

from driver.partitions.geometry import DeviceKind, GpuCard, Partition
from tests.partitions.loss_system import Policy


def packs(wanted: Mapping[str | None, int], cards: int) -> bool:
    """Whether so many partitions of each profile fit on H100 cards that are otherwise empty.

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
    """What it gives says the profile only; the place is not kept."""
    numbers = count()

    def policy(cards: Sequence[GpuCard], taken: Collection[Partition], profile: str) -> Partition | None:
        wanted = Counter(each.profile for each in taken) + Counter([profile])
        if not packs(wanted, len(cards)):
            return None
        return Partition(kind=DeviceKind.GPU, card_uuid=f"any-{next(numbers)}", profile=profile)

    return policy
