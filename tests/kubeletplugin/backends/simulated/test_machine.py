"""Any sequence of prepare, release, crash, restart, reboot and manual changes, against a plain record.

Always: no two partitions that may not coexist, none without a claim or a person who answers for it, nothing lost that
was prepared, nothing touched that was made by hand. The hardware knows nobody: all follows from places and notes.
"""

from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kerf_dra.api.kerf.v1alpha1 import FpgaConfig
from kerf_dra.driver.kubeletplugin.backends.base import (
    AllocatedDevice,
    Handle,
    HardwareBusyError,
    HardwareConflictError,
)
from kerf_dra.driver.kubeletplugin.backends.simulated.steps import HardwareFault, HardwareFaults, HardwareStep
from kerf_dra.driver.partitions.geometry import Card, Partition
from kerf_dra.driver.partitions.unit_map import get_unit_map
from tests.kubeletplugin.backends.simulated.machine import Crashed, Machine
from tests.partitions.oracle import may_coexist
from tests.runtime.memory_folder import memory_folder

CLAIMS = st.sampled_from([f"claim-{number}" for number in range(6)])
NO_FAULT = HardwareFaults()
FAULTS = st.one_of(
    st.just(NO_FAULT),
    st.builds(
        lambda step, effect, when: HardwareFaults(faults=(HardwareFault(step=step, effect=effect, when=when),)),
        st.sampled_from(HardwareStep),
        st.sampled_from(["error", "crash"]),
        st.sampled_from(["before", "after"]),
    ),
)
MODELS = ["h100-80gb-sxm", "a30-24gb", "rtx-pro-6000-blackwell-96gb"]


class SimulatedHardware(RuleBasedStateMachine):
    """``prepared`` and ``unsure`` are what a plugin's checkpoint would know; its check for two claims in one place is
    ``_claimed``."""

    @initialize(model=st.sampled_from(MODELS), shell=st.sampled_from(["quad", "edge-3", "big-little"]))
    def power_on(self, model: str, shell: str) -> None:
        self.directory = memory_folder()
        self.machine = Machine(Path(self.directory.name) / "state", model=model, shell=shell)
        self.backend = self.machine.open()
        self.choices = [
            spec.of(card.uuid)
            for card in self.machine.cards.values()
            for spec in get_unit_map(card).specs
            if card.kind == "gpu" or spec.function
        ]
        self.prepared: dict[str, tuple[AllocatedDevice, Handle]] = {}
        self.unsure: dict[str, AllocatedDevice] = {}
        self.by_hand: set[Partition] = set()

    def teardown(self) -> None:
        if hasattr(self, "directory"):
            self.directory.cleanup()

    @rule(claim=CLAIMS, number=st.integers(0), release=st.sampled_from(["Blank", "Keep"]), faults=FAULTS)
    def prepare(self, claim: str, number: int, release: str, faults: HardwareFaults) -> None:
        device = self._device_of(claim) or self.machine.device(self.choices[number % len(self.choices)], claim)
        if claim in self.prepared or self._claimed(device.partition, claim):
            return
        config = FpgaConfig(api_version="kerf.dev/v1alpha1", release=release) if _is_fpga(device.partition) else None  # type: ignore[arg-type]
        card = self.machine.cards[device.partition.card_uuid]
        allowed = may_coexist(card, [*self._others(card, claim), device.partition])
        self.backend.inject(faults)
        try:
            handle = self.machine.prepare(device, config, self.backend)
        except (HardwareBusyError, HardwareConflictError):
            assert self._struck(faults) or not allowed
            self.backend.inject(NO_FAULT)
            self.machine.release(device, None, self.backend)
            self.unsure.pop(claim, None)
        except Crashed:
            self.backend = self.machine.open()
            self.unsure[claim] = device
        else:
            assert allowed
            assert not self._struck(faults)
            self.unsure.pop(claim, None)
            self.prepared[claim] = (device, handle)

    @rule(claim=CLAIMS, faults=FAULTS)
    def unprepare(self, claim: str, faults: HardwareFaults) -> None:
        if claim not in self.prepared:
            return
        device, handle = self.prepared.pop(claim)
        self.backend.inject(faults)
        try:
            self.machine.release(device, handle, self.backend)
        except HardwareBusyError:
            assert self._struck(faults)
            self.unsure[claim] = device
        except Crashed:
            self.backend = self.machine.open()
            self.unsure[claim] = device

    @rule(claim=CLAIMS)
    def abandon(self, claim: str) -> None:
        device = self.unsure.pop(claim, None)
        if device is not None:
            self.backend.inject(NO_FAULT)
            self.machine.release(device, None, self.backend)

    @rule(number=st.integers(0))
    def cut_by_hand(self, number: int) -> None:
        """Somebody cuts a partition, but for the window that ``backends.ownership`` names: exactly what a half-done
        claim is to have, where it has it not."""
        partition = self.choices[number % len(self.choices)]
        card = self.machine.cards[partition.card_uuid]
        is_in_window = any(partition == device.partition for device in self.unsure.values())
        if partition.profile and not is_in_window and may_coexist(card, [*self._there(card), partition]):
            self.backend.inject(NO_FAULT)
            self.machine.open().cut_by_hand(self.machine.device(partition))
            self.by_hand.add(partition)

    @rule()
    def restart(self) -> None:
        self.backend = self.machine.open()

    @rule()
    def reboot(self) -> None:
        self.backend.reboot()
        self.prepared.clear()
        self.unsure.clear()
        self.by_hand.clear()
        self.machine.notes.clear()

    @invariant()
    def what_is_there_may_coexist(self) -> None:
        for card in self.machine.cards.values() if hasattr(self, "backend") else ():
            assert may_coexist(card, self._there(card))

    @invariant()
    def somebody_answers_for_every_instance(self) -> None:
        claimed = {*getattr(self, "by_hand", ())} | {device.partition for device in self._devices()}
        there = self.backend.partitions() if hasattr(self, "backend") else []
        assert {partition for partition in there if partition.profile} <= claimed
        half_loaded = [partition for partition in there if partition.kind == "fpga" and not partition.function]
        assert all(any(one.overlaps(other) for other in claimed) for one in half_loaded)

    @invariant()
    def what_was_prepared_is_there(self) -> None:
        for device, _ in getattr(self, "prepared", {}).values():
            if device.partition.profile:
                assert device.partition in self.backend.partitions()
                assert device.partition not in self.by_hand
            elif device.partition.function:
                inside = [one for one in self.backend.partitions() if one.overlaps(device.partition)]
                assert [one.function for one in inside] == [device.partition.function]

    @invariant()
    def what_was_made_by_hand_stays(self) -> None:
        assert getattr(self, "by_hand", set()) <= set(self.backend.partitions() if hasattr(self, "backend") else ())

    def _devices(self) -> list[AllocatedDevice]:
        prepared = [device for device, _ in getattr(self, "prepared", {}).values()]
        return [*prepared, *getattr(self, "unsure", {}).values()]

    def _device_of(self, claim: str) -> AllocatedDevice | None:
        return self.prepared[claim][0] if claim in self.prepared else self.unsure.get(claim)

    def _claimed(self, partition: Partition, claim: str) -> bool:
        """Whether another claim's record has the place."""
        others = [device for device in self._devices() if device is not self._device_of(claim)]
        return any(partition.overlaps(device.partition) for device in others)

    def _there(self, card: Card) -> list[Partition]:
        """What is on the card: loaded functions give way, so they do not count."""
        there = [one for one in self.backend.partitions() if one.card_uuid == card.uuid]
        return [one for one in there if one.profile]

    def _others(self, card: Card, claim: str) -> list[Partition]:
        """What is on the card and not the claim's."""
        own = self._device_of(claim)
        return [one for one in self._there(card) if own is None or one != own.partition or one in self.by_hand]

    def _struck(self, faults: HardwareFaults) -> bool:
        return self.backend._faults.read() != faults


def _is_fpga(partition: Partition) -> bool:
    return partition.kind == "fpga"


TestAnySequenceKeepsHardwareAndRecordTogether = SimulatedHardware.TestCase
