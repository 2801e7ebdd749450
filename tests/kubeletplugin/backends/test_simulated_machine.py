"""Any sequence of prepare, unprepare, abandon, crash, restart, reboot and manual changes, against a plain record.

Always: no two partitions that may not coexist, nothing in use without an owner, nothing lost that was prepared.
"""

import tempfile
from pathlib import Path

import anyio
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from api.kerf.v1alpha1 import FpgaConfig
from driver.kubeletplugin.backends.base import AllocatedDevice, Handle, HardwareBusyError
from driver.kubeletplugin.backends.simulated.steps import HardwareFault, HardwareFaults, HardwareStep
from driver.partitions.geometry import Card, Partition, Placement
from driver.partitions.unit_map import get_unit_map
from tests.kubeletplugin.backends.claims import Crashed, Machine
from tests.partitions.oracle import may_coexist

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
    """``prepared`` and ``unsure`` are what a plugin's checkpoint would know."""

    @initialize(model=st.sampled_from(MODELS), shell=st.sampled_from(["quad", "edge-3", "big-little"]))
    def power_on(self, model: str, shell: str) -> None:
        self.directory = tempfile.TemporaryDirectory()
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
        config = FpgaConfig(api_version="kerf.dev/v1alpha1", release=release) if _is_fpga(device.partition) else None  # type: ignore[arg-type]
        card = self.machine.cards[device.partition.card_uuid]
        allowed = may_coexist(card, [*self._others(card, claim), device.partition])
        known = self.prepared.get(claim)
        self.backend.inject(faults)
        try:
            handle = anyio.run(self.backend.prepare, device, config)
        except HardwareBusyError:
            assert known is None
            assert self._struck(faults) or not allowed
            self.unsure.pop(claim, None)
            assert not self._holds(claim)
        except Crashed:
            self.backend = self.machine.open()
            self.unsure[claim] = device
        else:
            assert allowed
            assert not self._struck(faults)
            assert known is None or known[1]["owner"] == handle["owner"]
            self.unsure.pop(claim, None)
            self.prepared[claim] = (device, handle)

    @rule(claim=CLAIMS, faults=FAULTS)
    def unprepare(self, claim: str, faults: HardwareFaults) -> None:
        if claim not in self.prepared:
            return
        device, handle = self.prepared.pop(claim)
        self.backend.inject(faults)
        try:
            anyio.run(self.backend.unprepare, handle)
        except HardwareBusyError:
            assert self._struck(faults)
            self.unsure[claim] = device
        except Crashed:
            self.backend = self.machine.open()
            self.unsure[claim] = device
        else:
            assert not self._holds(claim)

    @rule(claim=CLAIMS)
    def abandon(self, claim: str) -> None:
        device = self._device_of(claim)
        if device is None:
            return
        self.backend.inject(NO_FAULT)
        anyio.run(self.backend.abandon, device)
        self.prepared.pop(claim, None)
        self.unsure.pop(claim, None)
        assert not self._holds(claim)

    @rule(number=st.integers(0))
    def cut_by_hand(self, number: int) -> None:
        partition = self.choices[number % len(self.choices)]
        card = self.machine.cards[partition.card_uuid]
        if partition.profile and may_coexist(card, [*self._others(card, ""), partition]):
            self.backend.inject(NO_FAULT)
            anyio.run(self.backend.cut_by_hand, self.machine.device(partition))
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

    @invariant()
    def what_is_held_may_coexist(self) -> None:
        held = self.backend.held().values() if hasattr(self, "backend") else ()
        for card in self.machine.cards.values() if held else ():
            assert may_coexist(card, [partition for partition in held if partition.card_uuid == card.uuid])

    @invariant()
    def somebody_answers_for_everything_that_is_held(self) -> None:
        if hasattr(self, "backend"):
            owners = {claim for claim in (*self.prepared, *self.unsure) if self._holds(claim)}
            assert len(self.backend.held()) == len(owners) + len(self.by_hand)

    @invariant()
    def what_was_prepared_is_held(self) -> None:
        for claim, (device, _) in getattr(self, "prepared", {}).items():
            assert self._holds(claim)
            assert self._slots(device.partition) in [self._slots(one) for one in self.backend.held().values()]

    @invariant()
    def what_was_made_by_hand_stays(self) -> None:
        assert getattr(self, "by_hand", set()) <= set(self.backend.held().values() if hasattr(self, "backend") else ())

    def _device_of(self, claim: str) -> AllocatedDevice | None:
        return self.prepared[claim][0] if claim in self.prepared else self.unsure.get(claim)

    def _others(self, card: Card, claim: str) -> list[Partition]:
        """What is on the card and not the claim's."""
        mark = f"uid-of-{claim}/"
        held = self.backend.held().items()
        return [one for owner, one in held if one.card_uuid == card.uuid and not owner.startswith(mark)]

    def _holds(self, claim: str) -> bool:
        return any(owner.startswith(f"uid-of-{claim}/") for owner in self.backend.held())

    def _struck(self, faults: HardwareFaults) -> bool:
        return self.backend._faults.read() != faults

    def _slots(self, partition: Partition) -> tuple[str, Placement]:
        """Card and placement: what a half-loaded region has in common with its device."""
        units = self.machine.cards[partition.card_uuid].units
        return partition.card_uuid, partition.placement or Placement(0, units)


def _is_fpga(partition: Partition) -> bool:
    return partition.kind == "fpga"


TestAnySequenceKeepsHardwareAndRecordTogether = SimulatedHardware.TestCase
