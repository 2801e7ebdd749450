"""Samples of simulated cards: what the model says at the time, and the energy counters, which are kept in a file."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from kerf_dra.api.model.device_attributes import CAPACITY_MEMORY
from kerf_dra.driver.kubeletplugin.backends.base import CardSample, DeviceSample, HardwareBusyError
from kerf_dra.driver.kubeletplugin.backends.simulated.handles import GpuHandle
from kerf_dra.driver.kubeletplugin.backends.simulated.state_store import StateFile
from kerf_dra.driver.kubeletplugin.backends.simulated.use import (
    CardsUse,
    DeviceUse,
    EnergyCounters,
    count_energy,
    find_busy_ratio,
    find_memory_bytes,
)
from kerf_dra.driver.partitions.device_names import card_name
from kerf_dra.driver.partitions.geometry import Card, Partition, PartitionSpec, Placement
from kerf_dra.driver.partitions.unit_map import get_unit_map


class CardSampler:
    """Takes the samples of one node's simulated cards. It is called in one thread."""

    def __init__(self, directory: Path, now: Callable[[], float]) -> None:
        """``directory`` has the state of the cards; ``now`` returns seconds since 1970."""
        self._use = StateFile(directory, "use", CardsUse())
        self._energy = StateFile(directory, "energy", EnergyCounters())
        self._now = now
        self._sampled_at: dict[str, Mapping[str, float]] = {}
        """When each device was sampled last, in seconds since 1970, by card and device."""

    def sample(self, card: Card, handles: Sequence[GpuHandle | None]) -> CardSample:
        """Return what ``card`` and the devices of ``handles`` on it are used for; None: a device that is not there, or
        of which nothing can be measured. Raises HardwareBusyError where ``use.json`` says so.
        """
        use, now_s, name = self._use.read(), self._now(), card_name(card)
        if name in use.unreadable:
            raise HardwareBusyError(f"{name} cannot be sampled: use.json says so")
        before, now = self._sampled_at.get(card.uuid, {}), dict[str, float]()
        loads: dict[str, float] = {}
        samples: list[DeviceSample] = []
        for handle in handles:
            spec = _find_spec(card, handle) if handle is not None else None
            if handle is None or spec is None:
                samples.append(DeviceSample())
                continue
            device = handle.device
            own = use.devices.get(device, DeviceUse())
            busy = find_busy_ratio(device, own, before.get(device, now_s), now_s)
            now[device], loads[device] = now_s, busy * spec.mask.bit_count() / card.geometry.whole.mask.bit_count()
            available_bytes = handle.memory_limit_bytes or int(spec.amount(CAPACITY_MEMORY))
            samples.append(
                DeviceSample(
                    memory_bytes=find_memory_bytes(device, own, available_bytes),
                    processes=own.processes,
                    busy=busy if device in before else None,
                )
            )
        self._sampled_at[card.uuid] = now
        return CardSample(energy_mj=self._count_energy(name, sum(loads.values()), now_s), devices=tuple(samples))

    def _count_energy(self, card: str, load: float, now_s: float) -> int:
        def count(counters: EnergyCounters) -> EnergyCounters:
            counter = count_energy(counters.cards.get(card), load, now_s)
            return msgspec.structs.replace(counters, cards={**counters.cards, card: counter})

        return self._energy.change(count).cards[card].mj


def _find_spec(card: Card, handle: GpuHandle) -> PartitionSpec | None:
    placement = Placement(*handle.placement) if handle.placement is not None else None
    partition = Partition(kind=card.kind, card_uuid=card.uuid, profile=handle.profile or None, placement=placement)
    return get_unit_map(card).find(partition)
