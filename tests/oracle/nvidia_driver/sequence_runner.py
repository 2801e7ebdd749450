"""Runs sequences on both drivers, and compares after each step what is on the cards and in the CDI files."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import pynvml

from kerf_dra.api.model.names import ClaimRef
from kerf_dra.driver.testing.nvml import NvidiaMachine
from tests.fakes.kubelet import ClaimError
from tests.fakes.nvml import open_nvml
from tests.fakes.nvml_calls import create_gpu_instance, fill_gpu_instance, placements
from tests.oracle.nvidia_driver.containers import compare_containers, list_claims, read_containers
from tests.oracle.nvidia_driver.differences import Comparison, compare_mappings
from tests.oracle.nvidia_driver.drivers import MIG_MODES, Pair, switch_mode
from tests.oracle.nvidia_driver.published_devices import WHOLE, Place, PublishedDevices
from tests.oracle.nvidia_driver.sequences import (
    EndProcess,
    FailOnce,
    MakeInstance,
    Prepare,
    PrepareAgain,
    Restart,
    StartProcess,
    Step,
    Unprepare,
)

_OK: Final = "ok"
_PROCESS: Final = os.getpid()
"""A process that exists: a driver may look it up."""


@dataclass
class SequenceRunner:
    """Both drivers during one sequence."""

    pair: Pair
    published: Sequence[PublishedDevices]
    name: str
    situation: str = ""
    """What others have brought about, which begins each aspect; empty: nothing."""
    rows: list[Comparison] = field(default_factory=list)
    refs: dict[str, tuple[ClaimRef, ClaimRef]] = field(default_factory=dict)
    """Each claim, for NVIDIA's driver and for Kerf."""
    places: dict[str, tuple[Place, ...]] = field(default_factory=dict)
    """The devices of each claim that is not unprepared yet."""

    async def run(self, steps: Iterable[Step]) -> Sequence[Comparison]:
        """Take each step with both drivers, and return all comparisons."""
        for number, step in enumerate(steps, start=1):
            subject = f"{self.name}, step {number}: {step}"
            await self._take(subject, step)
            if step != EndProcess():  # each driver frees what the process kept at a time of its own
                self._compare_machines(subject)
        for refs in self.refs.values():
            for ref in refs:
                await self.pair.delete_claim(ref)
        return self.rows

    async def _take(self, subject: str, step: Step) -> None:
        match step:
            case Prepare(name, places):
                await self._allocate(name, places)
                await self._prepare(subject, name)
            case PrepareAgain(name):
                await self._prepare(subject, name)
            case Unprepare(name):
                await self._unprepare(subject, name)
            case Restart(is_killed):
                used = {self._number(place) for places in self.places.values() for place in places}
                for driver in self.pair.drivers:
                    instances = {one.card for one in driver.machine.list_instances()}
                    unused = set(range(len(MIG_MODES))) - used - instances
                    await driver.restart(kill=is_killed, unused_cards=unused)
            case _:
                for driver in self.pair.drivers:
                    self._change_machine(driver.machine, step)

    def _change_machine(self, machine: NvidiaMachine, step: Step) -> None:
        match step:
            case StartProcess(name):
                card = self._number(self.places[name][0])
                instance = next((one.id for one in machine.list_instances() if one.card == card), None)
                of_instance = {} if instance is None else {"gpu_instance": instance, "compute_instance": 0}
                machine.start_process(card, _PROCESS, **of_instance)
            case EndProcess():
                machine.end_process(_PROCESS)
            case MakeInstance(place):
                _make_instance(machine, self._number(place), place)
            case FailOnce(function):
                machine.add_fault(function, error=pynvml.NVML_ERROR_UNKNOWN)

    def _number(self, place: Place) -> int:
        """Return the number of the card on the machine."""
        return sorted({each.card for each in self.published[0].devices}).index(place.card)

    async def _allocate(self, name: str, places: tuple[Place, ...]) -> None:
        self.places[name] = places
        full_name = f"{self.name.replace(' ', '-')}-{name}".lower()
        first, second = [
            await self.pair.create_claim(
                driver, f"{driver.node}-{full_name}", [published.devices[place] for place in places]
            )
            for driver, published in zip(self.pair.drivers, self.published, strict=True)
        ]
        self.refs[name] = first, second

    async def _prepare(self, subject: str, name: str) -> None:
        results, containers = [], []
        for driver, ref in zip(self.pair.drivers, self.refs[name], strict=True):
            try:
                devices = await driver.prepare(ref)
            except ClaimError as error:
                results.append(f"error: {error}")
            else:
                results.append(_OK)
                containers.append(read_containers(driver.cdi_dir, driver.machine.folder, devices))
        self._add(_compare_results(subject, "prepare", results))
        if results == [_OK, _OK]:
            theirs, ours = containers
            self._add(Comparison(subject, "containers", " ".join(sorted(theirs)), " ".join(sorted(ours))))
            for request in theirs.keys() & ours.keys():
                self._add(*compare_containers(f"{subject}, {request}", theirs[request], ours[request]))

    async def _unprepare(self, subject: str, name: str) -> None:
        results = []
        for driver, ref in zip(self.pair.drivers, self.refs[name], strict=True):
            try:
                await driver.unprepare(ref)
            except ClaimError as error:
                results.append(f"error: {error}")
            else:
                results.append(_OK)
        self._add(_compare_results(subject, "unprepare", results))
        if results[1] == _OK:
            self.places.pop(name, None)

    def _compare_machines(self, subject: str) -> None:
        theirs, ours = (_list_instances(driver.machine) for driver in self.pair.drivers)
        self._add(*compare_mappings(subject, "instance", theirs, ours))
        theirs, ours = (
            list_claims(driver.cdi_dir, {name: refs[i].uid for name, refs in self.refs.items()})
            for i, driver in enumerate(self.pair.drivers)
        )
        self._add(*compare_mappings(subject, "CDI file of", theirs, ours))
        theirs, ours = (self._read_modes(driver.machine) for driver in self.pair.drivers)
        self._add(*compare_mappings(subject, "MIG mode of", theirs, ours))

    def _read_modes(self, machine: NvidiaMachine) -> dict[str, str]:
        """Return the MIG mode of each card, by its number and by what claims have of it."""
        with open_nvml(machine):
            count = pynvml.nvmlDeviceGetCount()
            modes = [pynvml.nvmlDeviceGetMigMode(pynvml.nvmlDeviceGetHandleByIndex(card))[0] for card in range(count)]
        return {f"card {card} {self._describe_use(card)}": "on" if mode else "off" for card, mode in enumerate(modes)}

    def _describe_use(self, card: int) -> str:
        held = {place.profile for places in self.places.values() for place in places if self._number(place) == card}
        return "without claims" if not held else "that a claim has" if held == {WHOLE} else "with partitions"

    def _add(self, *rows: Comparison) -> None:
        prefix = f"{self.situation}: " if self.situation else ""
        self.rows += [Comparison(row.subject, f"{prefix}{row.aspect}", row.nvidia, row.kerf) for row in rows]


def _compare_results(subject: str, aspect: str, results: Sequence[str]) -> Comparison:
    """Compare the results of a call. Two errors are equal: each driver has its own words."""
    theirs, ours = results
    return Comparison(subject, aspect, theirs, theirs if _OK not in results else ours)


def _list_instances(machine: NvidiaMachine) -> dict[str, str]:
    """Return the MIG device's UUID of each GPU instance."""
    return {f"card {one.card} {one.profile} at {one.start}": one.uuid for one in machine.list_instances()}


def _make_instance(machine: NvidiaMachine, card: int, place: Place) -> None:
    """Make a GPU instance with its compute instance, as ``nvidia-smi mig -cgi -C`` does, in a card in MIG mode."""
    switch_mode(machine, card, is_on=True)
    with open_nvml(machine):
        handle = pynvml.nvmlDeviceGetHandleByIndex(card)
        for enum in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
            try:
                profile = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, enum, version=2)
            except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_InvalidArgument):
                continue
            if profile.name.removeprefix("MIG ") == place.profile:
                size = next(size for start, size in placements(handle, profile.id) if start == place.start)
                fill_gpu_instance(create_gpu_instance(handle, profile.id, place.start, size))
                return
    raise AssertionError(f"no profile {place.profile}")
