"""What is left at one point of a look ahead (``scouting``)."""

from driver.allocation.search.constraints import Values
from driver.allocation.semantics.counters import Groups
from driver.allocation.terrain import ConstraintId


class Ground:
    """See the module. Lines, sorts of requests and devices have the numbers of a ``Terrain``."""

    __slots__ = ("common", "devices", "drawn", "gone", "groups", "left", "needs", "open", "pending", "remaining")

    def __init__(self) -> None:
        self.needs: list[int] = []
        """How many devices each line still wants."""
        self.devices: list[int] = []
        """Which it may take, of those that are not gone."""
        self.pending: list[int] = []
        """How many requests of each sort have not chosen among their alternatives."""
        self.open: list[int] = []
        """Among which alternatives, as a mask."""
        self.gone = 0
        self.remaining: list[int | None] = []
        self.groups: list[Groups | None] = []
        self.left: dict[int, tuple[int, ...]] = {}
        """Of the capacities of devices that can be shared."""
        self.drawn = 0
        """Devices that have a share, which has taken their counters. It tells them from others for the search proper;
        a scout takes no counters for shares."""
        self.common: dict[ConstraintId, Values] = {}
        """What those that must match have in common; only where there are some."""

    def copy(self) -> "Ground":
        ground = Ground.__new__(Ground)
        ground.needs = self.needs.copy()
        ground.devices = self.devices.copy()
        ground.pending = self.pending.copy()
        ground.open = self.open.copy()
        ground.gone = self.gone
        ground.remaining = self.remaining.copy()
        ground.groups = self.groups.copy()
        ground.left = self.left.copy()
        ground.drawn = self.drawn
        ground.common = self.common.copy()
        return ground
