"""The scheduler's view of a pool: which published devices may be allocated together, by counters alone (KEP-4815)."""

from collections.abc import Collection, Iterable
from typing import Final

from kerf_dra.api.model.devices import Device, Pool
from kerf_dra.driver.partitions.pool_compiler import CompiledPool


def devices(pool: Pool) -> list[Device]:
    return [device for content in pool.slices for device in content.devices]


class Counters:
    """Counters of a pool and what each device takes of them, as plain numbers for speed."""

    def __init__(self, compiled: CompiledPool) -> None:
        sets = [counters for content in compiled.pool.slices for counters in content.shared_counters]
        self.have: Final = {
            (one.name, name): int(counter.value) for one in sets for name, counter in one.counters.items()
        }
        self.takes: Final = {
            device.name: {
                (taken.counter_set, name): int(counter.value)
                for taken in device.consumes_counters
                for name, counter in taken.counters.items()
            }
            for device in devices(compiled.pool)
        }

    def admit(self, names: Iterable[str]) -> bool:
        left = dict(self.have)
        for name in names:
            for counter, count in self.takes[name].items():
                left[counter] -= count
                if left[counter] < 0:
                    return False
        return True


def most_of(counters: Counters, names: Collection[str]) -> int:
    """How many of ``names`` fit together at most, by exhaustive search."""

    def extend(taken: list[str], rest: list[str]) -> int:
        best = len(taken)
        for number, name in enumerate(rest):
            if counters.admit([*taken, name]):
                best = max(best, extend([*taken, name], rest[number + 1 :]))
        return best

    return extend([], sorted(names))
