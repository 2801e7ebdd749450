"""A machine with NVIDIA cards in a folder: its making, and what befalls it without a program's doing."""

import fcntl
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import addressof, memset, sizeof
from dataclasses import astuple, dataclass
from enum import IntEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from kerf_dra.driver.testing.nvml.description import MachineDescription, build_state
from kerf_dra.driver.testing.nvml.driver_tree import DRIVER_ROOT, LIBRARIES, write_driver_tree
from kerf_dra.driver.testing.nvml.layout import EVERY_CALL, NO_INSTANCE, CardLayout, StateLayout, assign, find_slot
from kerf_dra.driver.testing.nvml.library import SONAME, build_library

MACHINE_VARIABLE: Final = "KERF_FAKE_NVML"
"""The environment variable by which a process chooses another machine than that in whose folder its library lies."""
EVERY_FUNCTION: Final = "*"
"""In place of a function's name, a fault with it concerns the calls of all functions."""
_STATE: Final = "state"
_PRESENT, _LOST, _REMOVED = 0, 1, 2
"""``enum presence`` of ``state.h``."""
_NEEDS_RESET: Final = 1
"""``enum mig_switch`` of ``state.h``."""
_XID_EVENT: Final = 8
"""nvmlEventTypeXidCriticalError."""
_XID_FELL_OFF: Final = 79
"""The Xid of a card that has fallen off the bus (NVIDIA, Xid catalog)."""
_XID_RECOVERY_ACTION_CHANGED: Final = 154
"""The Xid that says that another recovery action is needed than before (NVIDIA, Xid catalog)."""


class Death(IntEnum):
    """When in a call the process is killed, as by ``kill -9``; the numbers are ``enum fault_action`` of ``state.h``."""

    BEFORE = 3
    """Nothing is done yet."""
    HALFWAY = 4
    """In the middle of a change: it is as if it had not begun. In calls that change nothing there is no middle."""
    AFTER = 5
    """All is done, but the caller does not learn it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceOnCard:
    """A GPU instance, as the state file has it."""

    card: int
    """The number of the card on the machine."""
    id: int
    profile: str
    start: int
    uuid: str
    """The UUID of the MIG device of its first compute instance; empty: it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpmActivity:
    """The use of a card or of a GPU instance, in percent of the time, by GPM's metrics in the order of ``gpm.c``."""

    graphics: float = 0.0
    """NVML_GPM_METRIC_GRAPHICS_UTIL: whether anything runs."""
    sm: float = 0.0
    """NVML_GPM_METRIC_SM_UTIL: the multiprocessors that are busy."""
    occupancy: float = 0.0
    """NVML_GPM_METRIC_SM_OCCUPANCY: the warps that are resident, of those that there could be."""
    tensor: float = 0.0
    """NVML_GPM_METRIC_ANY_TENSOR_UTIL: the tensor cores that are busy."""
    dram: float = 0.0
    """NVML_GPM_METRIC_DRAM_BW_UTIL: the bandwidth of the memory."""


class NvidiaMachine:
    """A machine made by ``create``. Several processes may use its library and its controls at once."""

    def __init__(self, folder: Path) -> None:
        """Use the machine that is in ``folder`` already."""
        self.folder = folder.resolve()

    @classmethod
    def create(cls, folder: Path, description: MachineDescription) -> "NvidiaMachine":
        """Make the machine in ``folder``, which is not there yet or is empty: at once, or not at all.

        Raises FileExistsError when something is there, NoCompilerError, UnknownModelError and
        UnsuitableDescriptionError.
        """
        machine, state = cls(folder), build_state(description)
        state.size = sizeof(state)
        library = build_library()
        machine.folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{machine.folder.name}-", dir=machine.folder.parent) as name:
            made = Path(name, "machine")
            made.mkdir()
            write_driver_tree(made, state, library)
            (made / _STATE).write_bytes(bytes(state))
            try:
                made.rename(machine.folder)
            except OSError as error:  # (the errno differs between file systems)
                raise FileExistsError(f"{machine.folder} is there already") from error
        return machine

    @property
    def exists(self) -> bool:
        """Whether the machine was made."""
        return (self.folder / _STATE).exists()

    @property
    def driver_root(self) -> Path:
        """The root of the driver's files, such as ``usr/lib64/libnvidia-ml.so.1``."""
        return self.folder / DRIVER_ROOT

    @property
    def library_folder(self) -> Path:
        return self.folder / LIBRARIES

    @property
    def time_slices(self) -> dict[str, int]:
        """The number of the time slice that was set last, by the card's UUID."""
        file = self.folder / "timeslices"
        return {card: int(one) for card, one in map(str.split, file.read_text().splitlines())} if file.exists() else {}

    def environment(self) -> dict[str, str]:
        """Return the variables with which a new process finds this machine's library."""
        return {"LD_LIBRARY_PATH": str(self.library_folder), **self.choice()}

    def choice(self) -> dict[str, str]:
        """Return the variable with which a process that has loaded some machine's library opens this machine."""
        return {MACHINE_VARIABLE: str(self.folder)}

    def list_instances(self) -> list[InstanceOnCard]:
        """List the GPU instances of all cards by card and id, whatever made them, also of a card that is away."""
        with self._state() as state:
            return [
                InstanceOnCard(
                    card=number,
                    id=id_,
                    profile=(profile := card.profiles[instance.profile]).name.decode(),
                    start=profile.placements[instance.placement].start,
                    uuid=card.mig_uuids[id_][0].value.decode() if instance.compute[0].exists else "",
                )
                for number, card in enumerate(state.cards[: state.n_cards])
                for id_, instance in enumerate(card.instances)
                if instance.exists
            ]

    # Faults

    def add_fault(
        self,
        function: str,
        *,
        error: int | None = None,
        delay_s: float = 0.0,
        death: Death | None = None,
        skip: int = 0,
        times: int | None = 1,
    ) -> None:
        """Let calls of the NVML function ``function``, or EVERY_FUNCTION, fail, take time, or kill their process.

        ``skip`` calls go well before, ``times`` are concerned (None: all). Raises OverflowError for too many faults.
        """
        action = 1 if error is not None else death if death is not None else 2
        with self._state() as state:
            assign(
                find_slot(state.faults, "function"),
                function=function,
                action=int(action),
                error=error or 0,
                delay_us=round(delay_s * 1_000_000),
                skip=skip,
                remaining=EVERY_CALL if times is None else times,
            )

    def count_left(self, function: str) -> int:
        """Return how many calls the fault of ``function`` still lets go well; none: it has struck, or is not there."""
        with self._state() as state:
            return next((fault.skip for fault in state.faults if fault.function == function.encode()), 0)

    def clear_faults(self) -> None:
        with self._state() as state:
            for fault in state.faults:
                assign(fault, function="", action=0)

    # Processes that use cards

    def start_process(
        self,
        card: int,
        pid: int,
        *,
        gpu_instance: int = NO_INSTANCE,
        compute_instance: int = NO_INSTANCE,
        memory_bytes: int = 0,
    ) -> None:
        """Let a process use the card with this number, or one of its instances."""
        with self._state() as state:
            assign(
                find_slot(state.processes, "pid"),
                pid=pid,
                card=card,
                gpu_instance=gpu_instance,
                compute_instance=compute_instance,
                memory_bytes=memory_bytes,
                sm_percent=0,
                memory_percent=0,
            )

    def set_process_use(
        self, pid: int, *, memory_bytes: int | None = None, sm_percent: int = 0, memory_percent: int = 0
    ) -> None:
        """Let a process use this much from now on: of the card's memory (None: as before), and of the time of its
        multiprocessors and of its memory, which NVML reports of cards that are not in MIG mode.
        """
        with self._state() as state:
            for process in state.processes:
                if process.pid == pid:
                    assign(process, sm_percent=sm_percent, memory_percent=memory_percent)
                    process.memory_bytes = process.memory_bytes if memory_bytes is None else memory_bytes

    def end_process(self, pid: int) -> None:
        with self._state() as state:
            for process in state.processes:
                if process.pid == pid:
                    process.pid = 0

    # Use and energy

    def set_utilization(self, card: int, *, gpu_percent: int, memory_percent: int) -> None:
        """Let the card's utilization rates be these, which NVML reports of cards that are not in MIG mode."""
        with self._state() as state:
            assign(state.cards[card], gpu_percent=gpu_percent, memory_percent=memory_percent)

    def set_activity(self, card: int, activity: GpmActivity, *, gpu_instance: int | None = None) -> None:
        """Let the card, or one of its GPU instances, be used this much from now on, as GPM measures it."""
        with self._state() as state:
            row = state.cards[card]
            used = row.activity if gpu_instance is None else row.instances[gpu_instance].activity
            now_us = _read_clock(state)
            for metric, percent in enumerate(astuple(activity)):
                used.used_us[metric] += used.percent[metric] / 100 * max(0, now_us - used.since_us)
                used.percent[metric] = percent
            used.since_us = now_us

    def add_energy(self, card: int, joules: float) -> None:
        """Let the card use this energy."""
        with self._state() as state:
            state.cards[card].energy_mj += round(joules * 1000)

    def pass_time(self, seconds: float) -> None:
        """Let time pass for GPM's samples; from the first call on the machine's clock moves by this only."""
        with self._state() as state:
            state.clock_us = _read_clock(state) + round(seconds * 1_000_000)

    def set_nvlink(self, card: int, link: int, *, is_on: bool) -> None:
        """Let a link of the card be up or down. The end at another card is a link of its own."""
        with self._state() as state:
            state.cards[card].nvlinks[link].is_on = is_on

    # Events and errors

    def report_xid(
        self, card: int, xid: int, *, gpu_instance: int = NO_INSTANCE, compute_instance: int = NO_INSTANCE
    ) -> None:
        """Let the driver report the error ``xid`` of the card, or of one of its instances."""
        with self._state() as state:
            _add_event(state, card, xid, gpu_instance, compute_instance)

    def remap_rows(
        self,
        card: int,
        *,
        correctable: int = 0,
        uncorrectable: int = 0,
        is_pending: bool = False,
        has_failed: bool = False,
    ) -> None:
        """Let the card have remapped rows of its memory."""
        with self._state() as state:
            assign(
                state.cards[card],
                remapped_correctable=correctable,
                remapped_uncorrectable=uncorrectable,
                remap_pending=is_pending,
                remap_failed=has_failed,
            )

    def set_recovery_action(self, card: int, action: int) -> None:
        """Let the driver say what the card needs, with a number of NVML's ``NVML_GPU_RECOVERY_ACTION_*``, and report
        Xid 154, as it does when this changes.
        """
        with self._state() as state:
            state.cards[card].recovery_action = action
            _add_event(state, card, _XID_RECOVERY_ACTION_CHANGED, NO_INSTANCE, NO_INSTANCE)

    def set_clocks_event_reasons(self, card: int, reasons: int) -> None:
        """Let the card's clocks be lowered for ``reasons``, bits of NVML's ``nvmlClocksEventReason*``."""
        with self._state() as state:
            state.cards[card].clocks_event_reasons = reasons

    # Cards, the driver and the machine

    def drop_card(self, card: int) -> None:
        """Let the card fall off the bus: calls for it fail, and the driver reports it."""
        with self._state() as state:
            state.cards[card].presence = _LOST
            _add_event(state, card, _XID_FELL_OFF, NO_INSTANCE, NO_INSTANCE)

    def remove_card(self, card: int) -> None:
        """Take the card out, so that the driver no longer lists it."""
        with self._state() as state:
            state.cards[card].presence = _REMOVED
            state.is_tree_stale = 1

    def restore_card(self, card: int) -> None:
        """Let a card that was dropped or removed be back, as it was."""
        with self._state() as state:
            state.cards[card].presence = _PRESENT
            state.is_tree_stale = 1

    def reset_card(self, card: int) -> None:
        """Reset the card by hand: instances are gone, and a pending MIG mode is current."""
        with self._state() as state:
            row = state.cards[card]
            _clear(row)
            assign(row, mig_current=row.mig_pending, minor=row.minor_after_reset)
            state.is_tree_stale = 1

    def reboot(self) -> None:
        """Boot the machine. Instances and processes are gone; MIG mode stays on Ampere only, and there becomes current.

        Programs that had NVML open get DRIVER_NOT_LOADED until they open it again.
        """
        self.reload_driver()

    def unload_driver(self) -> None:
        """Unload the kernel driver: everything fails with DRIVER_NOT_LOADED."""
        with self._state() as state:
            _end_driver(state)
            state.is_loaded = 0

    def reload_driver(self, version: str | None = None) -> None:
        """Load the kernel driver again, with all that a reboot does.

        With another ``version`` than the library's everything fails with LIB_RM_VERSION_MISMATCH.
        """
        with self._state() as state:
            _end_driver(state)
            state.is_loaded = 1
            state.loads += 1
            state.kernel_version = state.driver_version if version is None else version.encode()

    def replace_library(self) -> None:
        """Replace the library's file by another one, as the installation of another version does. Processes that have
        loaded it keep what they have.
        """
        library = (self.library_folder / SONAME).resolve()
        new = library.with_name(f".{library.name}")
        shutil.copy2(library, new)
        new.replace(library)

    @contextmanager
    def _state(self) -> Iterator[StateLayout]:
        """Lock the state, and give a copy, which takes its place at the end: all processes have mapped the file."""
        with (self.folder / _STATE).open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            state = StateLayout.from_buffer_copy(file.read())
            if state.is_changing:  # the process that began this was killed in the middle of it
                state.cards[state.changing] = state.undo
                state.is_changing, state.is_tree_stale = 0, 1
            yield state
            file.seek(0)
            file.write(bytes(state))


def _add_event(state: StateLayout, card: int, xid: int, gpu_instance: int, compute_instance: int) -> None:
    state.event_serial += 1
    assign(
        state.events[state.event_serial % len(state.events)],
        serial=state.event_serial,
        card=card,
        gpu_instance=gpu_instance,
        compute_instance=compute_instance,
        type=_XID_EVENT,
        data=xid,
    )


def _read_clock(state: StateLayout) -> int:
    """Return the machine's time in microseconds, as ``now_us`` of ``session.c``."""
    return int(state.clock_us) or time.time_ns() // 1000


def _end_driver(state: StateLayout) -> None:
    for card in state.cards[: state.n_cards]:
        _clear(card)
        if card.presence == _LOST:
            card.presence = _PRESENT
        is_on = card.mig_pending if card.mig_switch == _NEEDS_RESET else 0
        assign(card, mig_current=is_on, mig_pending=is_on, is_persistent=card.is_persistent_at_load)
    for process in state.processes:
        process.pid = 0
    for event in state.events:
        event.serial = 0
    state.is_tree_stale = 1


def _clear(card: CardLayout) -> None:
    """Remove the instances and what else a reset ends: as ``reset_card`` of ``reset.c``."""
    for instance in card.instances:
        memset(addressof(instance), 0, sizeof(instance))
    memset(addressof(card.activity), 0, sizeof(card.activity))
    assign(card, compute_mode=0, remap_pending=0, recovery_action=0, resets=card.resets + 1)
    assign(card, gpu_percent=0, memory_percent=0, energy_mj=0)
