"""What a driver publishes, in a form in which two drivers can be compared: devices by card, profile and placement."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from kerf_dra.api.model.devices import Device, ResourceSliceSpec
from tests.oracle.nvidia_driver.differences import Comparison, compare_mappings

PCI_ADDRESS: Final = "resource.kubernetes.io/pciBusID"
_MEMORY_SLICE: Final = "memory-slice-"
WHOLE: Final = "whole"


@dataclass(frozen=True, order=True)
class Place:
    """What a device is, however a driver names it."""

    card: str
    """The PCI address of the card."""
    profile: str
    """``WHOLE`` for a card."""
    start: int
    """The first memory slice; of a whole card 0."""

    def __str__(self) -> str:
        return f"{self.card} {self.profile}" + (f" at {self.start}" if self.profile != WHOLE else "")


@dataclass(frozen=True)
class PublishedDevice:
    """A device of a driver."""

    place: Place
    pool: str
    device: Device

    @property
    def capacity(self) -> dict[str, str]:
        return {name: str(int(amount.value)) for name, amount in self.device.capacity.items()}

    @property
    def attributes(self) -> dict[str, str]:
        return {name: str(attribute.value) for name, attribute in self.device.attributes.items()}

    @property
    def consumption(self) -> Counter[tuple[str, str]]:
        """Amounts by counter set and counter."""
        return Counter(
            {
                (one.counter_set, name): int(counter.value)
                for one in self.device.consumes_counters
                for name, counter in one.counters.items()
            }
        )


@dataclass(frozen=True)
class PublishedDevices:
    """The devices of all cards of a driver, and the counters that they share."""

    devices: Mapping[Place, PublishedDevice]
    counters: Counter[tuple[str, str]]

    @classmethod
    def of(cls, specs: Iterable[ResourceSliceSpec]) -> "PublishedDevices":
        specs = list(specs)
        published = [
            PublishedDevice(place=_place(device), pool=spec.pool.name, device=device)
            for spec in specs
            for device in spec.devices
        ]
        counters = {
            (counter_set.name, name): int(counter.value)
            for spec in specs
            for counter_set in spec.shared_counters
            for name, counter in counter_set.counters.items()
        }
        devices = {one.place: one for one in published}
        assert len(devices) == len(published), "two devices at one place"
        return cls(devices, Counter(counters))

    def fits(self, place: Place, others: Iterable[Place]) -> bool:
        """Whether the device at ``place`` can be allocated beside ``others``, as the scheduler counts (KEP-4815)."""
        used = sum((self.devices[other].consumption for other in others), Counter[tuple[str, str]]())
        wanted = self.devices[place].consumption
        return all(used[counter] + amount <= self.counters[counter] for counter, amount in wanted.items())

    def fill(self, order: Iterable[Place]) -> Sequence[Place]:
        """Return what is allocated when each place of ``order`` is wanted, one after the other."""
        taken: list[Place] = []
        for place in order:
            if self.fits(place, taken):
                taken.append(place)
        return taken


def _place(device: Device) -> Place:
    card = str(device.attributes[PCI_ADDRESS].value)
    profile = device.attributes["profile"].value if "profile" in device.attributes else None
    slices = [
        int(name.removeprefix(_MEMORY_SLICE))
        for one in device.consumes_counters
        for name in one.counters
        if name.startswith(_MEMORY_SLICE)
    ]
    return Place(card, str(profile), min(slices)) if profile else Place(card, WHOLE, 0)


def compare_published(nvidia: PublishedDevices, kerf: PublishedDevices) -> Iterable[Comparison]:
    """Compare the devices of both drivers, and all that is said of each."""
    yield from compare_mappings(
        "devices",
        "published",
        {str(place): "yes" for place in nvidia.devices},
        {str(place): "yes" for place in kerf.devices},
    )
    for place in sorted(nvidia.devices.keys() & kerf.devices.keys()):
        theirs, ours = nvidia.devices[place], kerf.devices[place]
        yield from compare_mappings(str(place), "capacity", theirs.capacity, ours.capacity)
        yield from compare_mappings(str(place), "attribute", theirs.attributes, ours.attributes)
        yield from compare_mappings(str(place), "memory slices", _slices(theirs), _slices(ours))


def compare_combinations(
    nvidia: PublishedDevices, kerf: PublishedDevices, cases: int, random: Random
) -> Iterable[Comparison]:
    """Compare what the counters of both drivers let be allocated when devices are wanted in ``cases`` random orders."""
    places = sorted(nvidia.devices.keys() & kerf.devices.keys())
    for _ in range(cases):
        order = random.sample(places, len(places))
        theirs, ours = ("; ".join(map(str, sorted(driver.fill(order)))) for driver in (nvidia, kerf))
        yield Comparison("all cards", "allocated together", theirs, ours)


def _slices(device: PublishedDevice) -> dict[str, str]:
    amounts = device.consumption
    return {name: str(amount) for (_, name), amount in amounts.items() if name.startswith(_MEMORY_SLICE)}
