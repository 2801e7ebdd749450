"""Stand-ins of NVIDIA cards for schedules: what is on them, noted as it appears and goes, and what others do to them.

What is on the cards is read from the machine's state, not through NVML: nobody's errors change what is seen.
"""

import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import pynvml

from kerf_dra.driver.families.gpu.catalog import gpu_model
from kerf_dra.driver.families.gpu.geometry import gpu_geometry
from kerf_dra.driver.kubeletplugin.backends.nvidia.backend import NvidiaBackend
from kerf_dra.driver.kubeletplugin.backends.nvidia.config import NvidiaConfig
from kerf_dra.driver.kubeletplugin.backends.nvidia.nvml.library import NvmlLibrary
from kerf_dra.driver.partitions.device_names import device_name
from kerf_dra.driver.partitions.geometry import Card, Partition, Placement
from kerf_dra.driver.testing.nvml import CardDescription, MachineDescription, NvidiaMachine
from kerf_dra.driver.testing.nvml.layout import StateLayout
from kerf_dra.driver.testing.nvml.machine import MACHINE_VARIABLE
from tests.fakes.nvml import end_sessions
from tests.fakes.nvml_calls import create_gpu_instance, destroy_gpu_instance, fill_gpu_instance
from tests.fakes.nvml_functions import CHANGES, ERRORS, READS
from tests.ownership.history import Actor, Appeared, Disappeared, Event, Named, Unnamed

XIDS: Final = (13, 48, 63, 64, 79, 94, 95, 119, 154)
SETS: Final = (
    (CardDescription(model="h100-80gb-sxm"),),
    (CardDescription(model="a30-24gb", is_mig_on=True),),
    (CardDescription(model="a30-24gb", is_mig_on=True), CardDescription(model="h100-80gb-sxm", is_mig_on=True)),
    (CardDescription(model="a100-40gb", is_mig_on=True),),
    (CardDescription(model="a30-24gb", is_mig_on=True), CardDescription(model="a30-24gb")),
)
"""The cards of machines: one and two, whose MIG mode changes at once (Hopper) or with a reset (Ampere)."""
_PIDS: Final = range(4000, 4003)


class _WatchedLibrary(NvmlLibrary):
    """NVML whose changes are effects of the process."""

    def __init__(self, driver_root: Path, pass_effect: Callable[[], None]) -> None:
        super().__init__(driver_root)
        self._pass_effect = pass_effect

    def _call(self, name: str, *arguments: Any) -> Any:
        if name not in CHANGES:
            return super()._call(name, *arguments)
        self._pass_effect()
        result = super()._call(name, *arguments)
        self._pass_effect()
        return result


class _Instance(NamedTuple):
    identity: str
    place: Partition
    uuid: str
    """Empty: no program can address it yet."""
    number: int
    """Its id on the card."""


class NvidiaCards:
    """The cards of one machine, which are as new when a schedule begins."""

    def __init__(self, folder: Path, number: int) -> None:
        """``number`` is that of the set of cards."""
        self.descriptions = SETS[number]
        self.machine = NvidiaMachine.create(folder, MachineDescription(cards=self.descriptions, seed=f"set {number}"))
        self._file = (folder / "state").open("r+b")
        self._map = mmap.mmap(self._file.fileno(), 0)
        self._state = StateLayout.from_buffer(self._map)
        self._state.is_tree_stale = 1
        self._new = bytes(self._map)
        self._models = [gpu_model(one.model) for one in self.descriptions]
        self._seen: dict[str, _Instance] = {}
        self._makers: dict[str, Actor] = {}

    def renew(self) -> None:
        """Make the cards as new, for another schedule."""
        end_sessions()
        os.environ[MACHINE_VARIABLE] = str(self.machine.folder)
        self._map[:] = self._new
        self._seen.clear()
        self._makers.clear()

    def close(self) -> None:
        end_sessions()
        del self._state
        self._map.close()
        self._file.close()

    def open_backend(self, pass_effect: Callable[[], None], now: Callable[[], float]) -> NvidiaBackend:
        """Return the backend of one process; its waits take no time."""
        root = self.machine.driver_root
        config = NvidiaConfig(driver_root=str(root), system_root=str(self.machine.folder))
        library = _WatchedLibrary(root, pass_effect)
        return _PolledBackend(config, library=library, wait=lambda _: None, now=now)

    @cached_property
    def places(self) -> dict[str, Partition]:
        """Every partition of every card, and each whole card, by the name of its device."""
        found: dict[str, Partition] = {}
        for number, model in enumerate(self._models):
            uuid = self._uuid(number)
            card = Card(uuid=uuid, index=number, geometry=gpu_geometry(model))
            for spec in card.geometry.specs:
                partition = spec.of(uuid)
                if not partition.shared:
                    found[device_name(card, partition)] = partition
        return found

    # What is there

    def list_instances(self) -> dict[str, _Instance]:
        """Return the GPU instances, by identity."""
        return {one.identity: one for one in self._read()}

    def observe(self, at: float, by: Actor) -> Iterator[Event]:
        """Yield what has changed since the last look; ``by`` is whoever alone can have changed it."""
        now = self.list_instances()
        if now == self._seen:
            return
        for identity in sorted(self._seen.keys() - now.keys()):
            self._makers.pop(identity)
            yield Disappeared(at=at, partition=identity, by=by)
        for identity, found in now.items():
            if identity not in self._seen:
                self._makers[identity] = by
                yield Appeared(at=at, partition=identity, place=found.place, by=by)
            if found.uuid and (identity not in self._seen or not self._seen[identity].uuid):
                yield Named(at=at, partition=identity, uuid=found.uuid)
            elif not found.uuid and identity in self._seen and self._seen[identity].uuid:
                yield Unnamed(at=at, partition=identity, by=by)
        self._seen = now

    def list_foreign(self) -> list[_Instance]:
        """Return what somebody has made by hand."""
        return [one for identity, one in self._seen.items() if self._makers[identity] is Actor.HAND]

    def is_mig_on(self, number: int) -> bool:
        return bool(self._state.cards[number].mig_current)

    @property
    def is_driver_there(self) -> bool:
        return bool(self._state.is_loaded) and self._state.driver_version == self._state.kernel_version

    def needs_reset(self, place: Partition) -> bool:
        """Whether the card's present mode has no such place, and takes a reset to be left."""
        number = next(index for index in range(len(self._models)) if self._uuid(index) == place.card_uuid)
        is_ampere = self._models[number].architecture == "ampere"
        return is_ampere and self.is_mig_on(number) is place.is_whole

    def _uuid(self, number: int) -> str:
        found: bytes = self._state.cards[number].uuid
        return found.decode()

    def _read(self) -> Iterator[_Instance]:
        for number, model in enumerate(self._models):
            card = self._state.cards[number]
            if not card.mig_current:
                continue
            uuid = self._uuid(number)
            for id_, instance in enumerate(card.instances):
                if not instance.exists:
                    continue
                row = card.profiles[instance.profile]
                place = row.placements[instance.placement]
                partition = Partition(
                    kind="gpu",
                    card_uuid=uuid,
                    profile=model.profiles[instance.profile].name,
                    placement=Placement(place.start, place.size),
                )
                made = [place for place, compute in enumerate(instance.compute) if compute.exists]
                name = card.mig_uuids[id_][made[0]].value.decode() if made else ""
                yield _Instance(f"{uuid}/gi-{id_}#{instance.serial}", partition, name, id_)

    # What others do

    def cut_by_hand(self, place: Partition, *, is_complete: bool) -> None:
        """Somebody makes a GPU instance, with its compute instance or without, if NVML lets him."""
        model = next(one for number, one in enumerate(self._models) if self._uuid(number) == place.card_uuid)
        profile = model.profile(place.profile or "")
        if profile is None or profile.gi_profile_id is None or place.placement is None:
            return
        profile_id, start, size = profile.gi_profile_id, place.placement.start, place.placement.size

        def cut() -> None:
            card = pynvml.nvmlDeviceGetHandleByUUID(place.card_uuid)
            instance = create_gpu_instance(card, profile_id, start, size)
            if is_complete:
                fill_gpu_instance(instance)

        _call_as_somebody(cut)

    def remove_by_hand(self, instance: _Instance) -> None:
        """Somebody destroys a GPU instance, whoever has made it, if NVML lets him."""

        def remove() -> None:
            card = pynvml.nvmlDeviceGetHandleByUUID(instance.place.card_uuid)
            if instance.uuid:
                destroy_gpu_instance(card, instance.number)
            else:
                pynvml.nvmlGpuInstanceDestroy(pynvml.nvmlDeviceGetGpuInstanceById(card, instance.number))

        _call_as_somebody(remove)

    def switch_mode_by_hand(self, number: int, mode: int) -> None:
        """Somebody switches the MIG mode of a card, if NVML lets him."""
        _call_as_somebody(lambda: pynvml.nvmlDeviceSetMigMode(pynvml.nvmlDeviceGetHandleByIndex(number), mode))

    def use(self, chance: Random) -> None:
        """A process uses an instance, or a card that has none."""
        instances = list(self._seen.values())
        pid = chance.choice(_PIDS)
        self.machine.end_process(pid)
        if instances and chance.random() < 0.8:
            one = chance.choice(instances)
            number = next(index for index in range(len(self._models)) if self._uuid(index) == one.place.card_uuid)
            self.machine.start_process(number, pid, gpu_instance=one.number, compute_instance=0)
        else:
            self.machine.start_process(chance.randrange(len(self._models)), pid)

    def end_processes(self) -> None:
        for pid in _PIDS:
            self.machine.end_process(pid)

    def fail(self, chance: Random) -> None:
        """Let some calls of a function fail with any of NVML's codes, or all calls from one on."""
        function = chance.choice(CHANGES) if chance.random() < 0.5 else chance.choice(READS)
        error = chance.choice([*ERRORS.values()])
        with suppress(OverflowError):
            self.machine.add_fault(
                function, error=error, skip=chance.randrange(3), times=chance.choice((1, 1, 2, 8, 40, None))
            )

    def fall_ill(self, chance: Random) -> None:
        """A card reports an error, or remaps memory, or gets hot."""
        number = chance.randrange(len(self._models))
        match chance.randrange(4):
            case 0:
                self.machine.report_xid(number, chance.choice(XIDS))
            case 1:
                instances = [one for one in self._seen.values() if one.place.card_uuid == self._uuid(number)]
                if instances:
                    self.machine.report_xid(number, chance.choice(XIDS), gpu_instance=chance.choice(instances).number)
            case 2:
                self.machine.remap_rows(number, uncorrectable=1, is_pending=True)
            case _:
                self.machine.set_recovery_action(number, chance.randrange(5))

    def recover(self) -> None:
        """End everything that keeps the cards from working."""
        self.machine.clear_faults()
        self.end_processes()
        for number in range(len(self._models)):
            self.machine.restore_card(number)
            self.machine.set_recovery_action(number, 0)


class _PolledBackend(NvidiaBackend):
    """A backend that looks for events and does not wait for them: its caller's clock is virtual."""

    def wait_for_events(self, timeout_s: float) -> Any:
        return super().wait_for_events(0.0001)


def _call_as_somebody(calls: Callable[[], object]) -> None:
    """Make calls of NVML as another program; what it is refused it does not get."""
    with suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        try:
            calls()
        finally:
            pynvml.nvmlShutdown()
