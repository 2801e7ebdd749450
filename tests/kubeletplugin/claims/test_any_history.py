"""Whatever happens in whatever order, with crashes, reboots and failing hardware: records, hardware and files agree.

A rule is one process of the plugin: some calls, perhaps killed before one of its effects. State stays on the disk.
Between processes and in the middle of one somebody else cuts partitions and removes them again. Nothing on the hardware
says whose it is; the model knows theirs by serial numbers that the plugin never sees.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.names import ClaimRef, DeviceId
from kerf_dra.api.model.prepared import ClaimState, PreparedClaim, PreparedDevice
from kerf_dra.driver.kubeletplugin.backends.base import HardwareBusyError, HardwareConflictError
from kerf_dra.driver.kubeletplugin.backends.ownership import BEFORE
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import is_set_aside, open_checkpoint
from kerf_dra.driver.kubeletplugin.cluster.claim_end import ClaimEnd, find_end
from kerf_dra.driver.partitions.geometry import Partition
from kerf_dra.driver.partitions.records import from_card_part
from tests.conftest import COSTLY
from tests.fakes.claims import DRIVER, NODE, claim, ref, result
from tests.fakes.cluster import FakeCluster
from tests.fakes.hardware import Made, State
from tests.kubeletplugin.claim_fixture import (
    CARDS,
    GRACE_S,
    NODE_DEVICES,
    Effects,
    PluginCore,
    WatchedBackend,
    plugin_core,
)
from tests.runtime.memory_folder import memory_folder

NAMES = ("a", "b")
SHARED = ("gpu-0-1g-1gb-at-0-shared", "gpu-1-shared")
DEVICES = ("gpu-0", "gpu-0-2g-2gb-at-0", "gpu-0-1g-1gb-at-0", "gpu-0-1g-1gb-at-3", "fpga-0-slot-1", *SHARED)
"""Some overlap: the scheduler would not give them out together, but the plugin must not rely on it."""
LONGEST_CALL = 8
"""Effects of preparing two devices, and one more."""

names = st.sampled_from(NAMES)
devices = st.lists(st.sampled_from(DEVICES), min_size=1, max_size=2, unique=True).map(tuple)
call = st.tuples(st.sampled_from(["prepare", "unprepare", "collect"]), names)
crashes = st.lists(st.tuples(call, st.integers(1, LONGEST_CALL)), min_size=1, max_size=4)
failures = st.lists(
    st.tuples(st.sampled_from(["prepare", "unprepare", "abandon"]), st.sampled_from(DEVICES)), max_size=2
)


Call: TypeAlias = tuple[str, str]
"""What is called, and on what."""


def allocated(name: str, held: tuple[str, ...]) -> ResourceClaim:
    """The claim with its devices; of those in shares it has one of its own."""
    shares = dict.fromkeys(SHARED, f"share-of-{name}")
    return claim(name, *(result(device, share=shares.get(device)) for device in held))


def partition_of(name: str) -> Partition:
    """What a device stands for, cut for one."""
    kind = name.partition("-")[0]
    found = NODE_DEVICES.find(DeviceId(DRIVER, f"{NODE}/{kind}", name.removesuffix("-shared")))
    assert found is not None
    return found.partition


def place_of(device: PreparedDevice) -> Partition:
    return replace(from_card_part(device.part), shared=False, function=None)


def is_at(made: Made, place: Partition) -> bool:
    return (made.card_uuid, made.profile, made.placement) == (place.card_uuid, place.profile, place.placement)


class Crash(BaseException):
    """The process is killed; nothing of it runs after this but what Python cannot prevent."""


def crash() -> None:
    raise Crash


class AnyHistory(RuleBasedStateMachine):
    """A node over many processes of its plugin."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = memory_folder()
        self.root = Path(self.directory.name)
        self.cluster = FakeCluster()
        self.boot = 1
        self.by_hand: set[int] = set()
        """The serial numbers of what somebody else has made."""

    def teardown(self) -> None:
        """When every claim is unprepared at last, nothing is left."""
        self._live([("unprepare", name) for name in NAMES])
        assert (self._records(), self._ours(), self._files()) == ([], [], set())
        self.directory.cleanup()

    @initialize(first=devices, second=devices)
    def allocate_all(self, first: tuple[str, ...], second: tuple[str, ...]) -> None:
        for name, held in zip(NAMES, (first, second), strict=True):
            self.cluster.add(allocated(name, held))

    @rule(name=names, held=st.none() | devices)
    def change_claim(self, name: str, held: tuple[str, ...] | None) -> None:
        self.cluster.claims.pop(("default", name), None)
        if held is not None:
            self.cluster.add(allocated(name, held))

    @rule(calls=st.lists(call, min_size=1, max_size=3), failures=failures)
    def live(self, calls: list[Call], failures: list[Call]) -> None:
        self._live(calls, failures=failures)

    @rule(crashes=crashes)
    def crash(self, crashes: list[tuple[Call, int]]) -> None:
        for call, crash_at in crashes:
            self._live([call], crash_at)
            self.all_agree()

    @rule(name=st.sampled_from(DEVICES))
    def cut_by_hand(self, name: str) -> None:
        """Somebody cuts a partition while no process of the plugin lives."""
        if not self._is_in_window(partition_of(name)):
            self._cut(WatchedBackend(CARDS, self.root / "hardware.json"), name)

    @rule(name=st.sampled_from(DEVICES), calls=st.lists(call, min_size=1, max_size=2), at=st.integers(1, LONGEST_CALL))
    def cut_by_hand_in_the_middle(self, name: str, calls: list[Call], at: int) -> None:
        """Somebody cuts a partition right before one of the plugin's effects."""
        if not self._is_in_window(partition_of(name)):
            self._live(calls, cut=(name, at))

    @rule(choice=st.integers(0))
    def remove_by_hand(self, choice: int) -> None:
        if self.by_hand:
            serial = sorted(self.by_hand)[choice % len(self.by_hand)]
            WatchedBackend(CARDS, self.root / "hardware.json").remove_by_hand(serial)
            self.by_hand.remove(serial)

    @rule()
    def reboot(self) -> None:
        self.boot += 1
        self.by_hand.clear()
        (self.root / "hardware.json").unlink(missing_ok=True)

    @rule(name=names)
    def lose_cdi_file_and_prepare(self, name: str) -> None:
        if ("default", name) in self.cluster.claims:
            (self.root / f"cdi/{self._file(ref(claim(name)).uid)}").unlink(missing_ok=True)
            self._live([("prepare", name)])

    @invariant()
    def all_agree(self) -> None:
        records, files = self._records(), self._files()
        there = {made.serial: made for made in self._hardware().values()}
        assert self.by_hand <= there.keys(), "what somebody else has made is never destroyed"
        places = [place_of(device) for record in records for device in record.devices]
        for made in self._ours():
            assert any(is_at(made, place) for place in places), "hardware of ours has a record"
        assert files <= {self._file(record.claim.uid) for record in records}, "files have a record"
        for record in records:
            if record.state is ClaimState.PREPARED and record.boot_id == f"boot-{self.boot}":
                has_file = self._file(record.claim.uid) in files
                assert has_file or self._is_outdated(record), "what is prepared has its file"
                for device in record.devices:
                    assert device.handle is not None
                    serial = device.handle["serial"]
                    assert serial not in self.by_hand, "nothing of somebody else's is handed out"
                    assert is_at(there[serial], place_of(device)), "and its hardware, this very one"
        parts = [[from_card_part(device.part) for device in record.devices] for record in records]
        pairs = [(x, y) for one, other in combinations(parts, 2) for x, y in product(one, other)]
        both = [(x, y) for x, y in pairs if x.overlaps(y)]
        assert all(x == y and x.shared for x, y in both), "no two claims have the same hardware but in shares"

    def _live(
        self,
        calls: list[Call],
        crash_at: int = 0,
        failures: list[Call] | None = None,
        cut: tuple[str, int] | None = None,
    ) -> None:
        try:
            anyio.run(self._life, calls, crash_at, failures or [], cut)
        except BaseExceptionGroup as group:
            crashed, rest = group.split(Crash)
            if crashed is None or rest is not None:
                raise

    async def _life(self, calls: list[Call], crash_at: int, failures: list[Call], cut: tuple[str, int] | None) -> None:
        effects = Effects(crash_at, crash)
        async with plugin_core(self.root, self.cluster, effects, boot_id=f"boot-{self.boot}") as core:
            if cut is not None:
                effects.at, effects.strike = cut[1], self._cut_once(core.backend, cut[0])
            for operation, device in failures:
                core.backend.fail(operation, device, HardwareBusyError("busy"))
            core.garbage_collector.check_files()
            for call, name in calls:
                if call == "collect":
                    await self._collect(core)
                else:
                    await self._call(core, call, ref(claim(name)), lambda: bool(failures) or crash_at > 0)

    async def _call(self, core: PluginCore, call: str, held: ClaimRef, may_fail: Callable[[], bool]) -> None:
        try:
            await (core.preparer.prepare_claim(held) if call == "prepare" else core.preparer.unprepare_claim(held))
        except KerfError:
            assert call == "prepare" or may_fail(), "an unprepare fails only with the hardware"
            return
        record = core.checkpoint.get(held.uid)
        assert (record is None) == (call == "unprepare")
        if record is not None:
            assert (record.state, record.boot_id) == (ClaimState.PREPARED, f"boot-{self.boot}")
            now = self.cluster.claims["default", held.name]
            assert find_end(now, record, held.uid) is None, "prepared is what is allocated"

    async def _collect(self, core: PluginCore) -> None:
        for now in (0.0, 2 * GRACE_S):
            core.clock[0] += now
            await core.garbage_collector.collect(set(core.checkpoint.records))

    def _cut_once(self, backend: WatchedBackend, name: str) -> Callable[[], None]:
        pending = [name]

        def cut() -> None:
            if pending:
                self._cut(backend, pending.pop())

        return cut

    def _cut(self, backend: WatchedBackend, name: str) -> None:
        """Cut a partition, if there is room for it."""
        with suppress(HardwareConflictError):
            self.by_hand.add(backend.cut_by_hand(partition_of(name)).serial)

    def _is_in_window(self, place: Partition) -> bool:
        """Whether a cut at ``place`` now would be in the window that ``backends.ownership`` names.

        A process died, or hardware failed, between the note on exactly this place and its partition, or between the end
        of its partition and that of the note.
        """
        with open_checkpoint(self.root, boot_id=f"boot-{self.boot}") as checkpoint:
            noted = [
                place_of(device)
                for uid, record in checkpoint.records.items()
                for device in record.devices
                if BEFORE in checkpoint.journal(uid, device.share, f"boot-{self.boot}").notes
            ]
        place = replace(place, function=None)
        return place in noted and not any(is_at(made, place) for made in self._hardware().values())

    def _is_outdated(self, record: PreparedClaim) -> bool:
        """Whether it has what its claim had before it was allocated otherwise: no container is started with that."""
        now = self.cluster.claims.get(("default", record.claim.name))
        is_taken = now is not None and find_end(now, record, now.metadata.uid) is ClaimEnd.TAKEN
        return is_taken or is_set_aside(record.claim.uid)

    def _ours(self) -> list[Made]:
        return [made for made in self._hardware().values() if made.serial not in self.by_hand]

    def _records(self) -> list[PreparedClaim]:
        with open_checkpoint(self.root, boot_id=f"boot-{self.boot}") as checkpoint:
            return list(checkpoint.records.values())

    def _hardware(self) -> dict[str, Made]:
        hardware = self.root / "hardware.json"
        return msgspec.json.decode(hardware.read_bytes(), type=State).made if hardware.exists() else {}

    def _files(self) -> set[str]:
        directory = self.root / "cdi"
        return {path.name for path in directory.iterdir()} if directory.exists() else set()

    @staticmethod
    def _file(uid: str) -> str:
        return f"k8s.gpu.kerf.dev-claim_{uid}.json"


TestAnyHistory: Any = AnyHistory.TestCase
TestAnyHistory.settings = settings(COSTLY, stateful_step_count=25)
