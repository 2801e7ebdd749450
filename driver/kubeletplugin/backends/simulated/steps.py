"""The steps of simulated hardware: their names and durations, the faults that are injected, and how a step is run.

GPU steps carry the names of the NVML calls that they stand for, FPGA steps those of the phases of a partial
reconfiguration (Linux ``Documentation/driver-api/fpga/fpga-region.rst``). Faults are read from ``faults.json`` in the
state directory, written by tests, by ``kerf demo`` or by hand:

.. code-block:: json

    {"faults": [{"step": "fpga-program", "card": "fpga-0", "effect": "error", "times": 1}],
     "degraded": {"gpu-1": "Xid 63: row remapping is due"},
     "lost": {"gpu-0": "Xid 79: the GPU has fallen off the bus"},
     "repairs": {"gpu-0": "boot.xid-79"},
     "absent": ["fpga-1"],
     "holders": {"gpu-2": ["dcgm-exporter (4711)"]}}

A fault that has struck is counted down in the file, and removed after its last time. Hardware is unhealthy
(``degraded``), lost or not there (``absent``) for as long as the file says so, or until a reset of the card; one that
has fallen off the bus cannot be reset. It needs a repair (``repairs``) while it is unhealthy or lost.
"""

import math
import os
import signal
from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from kerf_dra.api.kerf.card_repairs import parse_repair
from kerf_dra.api.kerf.v1alpha1 import Strict
from kerf_dra.driver.kubeletplugin.backends.base import (
    HardwareBusyError,
    HardwareRefusedError,
    HealthState,
    UnhealthyState,
)
from kerf_dra.driver.kubeletplugin.backends.simulated.state_store import StateFile, StateT

Moment: TypeAlias = Literal["before", "after"]
Sleep: TypeAlias = Callable[[float], None]
"""Waits so many seconds, perhaps for ever; raises HardwareBusyError when the backend is closed meanwhile."""

_IN_USE: Final = "In use by another client"
"""NVML's message for an instance that some process still holds; the most frequent failure of real cards."""


class HardwareStep(StrEnum):
    """One step; its value is its name in ``faults.json`` and in the configuration's ``delays``."""

    SET_MIG_MODE = "nvmlDeviceSetMigMode"
    CREATE_GPU_INSTANCE = "nvmlDeviceCreateGpuInstanceWithPlacement"
    CREATE_COMPUTE_INSTANCE = "nvmlGpuInstanceCreateComputeInstance"
    DESTROY_COMPUTE_INSTANCE = "nvmlComputeInstanceDestroy"
    DESTROY_GPU_INSTANCE = "nvmlGpuInstanceDestroy"
    RESET = "reset"
    """Resets the card, GPU or FPGA (``nvidia-smi --gpu-reset``)."""
    LOAD_LAYOUT = "fpga-load-layout"
    """Loads another layout of the shell into the card, which empties it."""
    CHECK = "fpga-check"
    """Compares image and slots, and reserves the slots."""
    DISABLE_BRIDGES = "fpga-disable-bridges"
    PROGRAM = "fpga-program"
    ENABLE_BRIDGES = "fpga-enable-bridges"
    READ_BACK = "fpga-read-back"
    """Reads from the slots which function they run."""
    KEEP = "fpga-keep"
    """Releases the slots with the function in them."""
    BLANK = "fpga-blank"
    """Releases the slots empty."""


DELAYS_S: Final[Mapping[HardwareStep, float]] = MappingProxyType(
    {
        HardwareStep.CREATE_GPU_INSTANCE: 0.12,
        HardwareStep.CREATE_COMPUTE_INSTANCE: 0.04,
        HardwareStep.DESTROY_COMPUTE_INSTANCE: 0.03,
        HardwareStep.DESTROY_GPU_INSTANCE: 0.07,
        HardwareStep.BLANK: 0.2,
    }
)
"""Seconds that each step takes; a step without an entry takes none.

GPUs: 0.16 s to create and 0.10 s to destroy an instance with its compute instance, as measured on an A30 by artecs-
group/FAR_MIG_scheduler (README); its split between the two steps is an assumption. Switching MIG mode on a Hopper GPU
is immediate. FPGAs: bridges and registers are sub-millisecond; LOAD_LAYOUT and PROGRAM take what the makers of layout
and function state, blanking as long as the smallest functions take.
"""


class HardwareFault(Strict):
    """A fault of one hardware step: where it strikes, how often, and what then happens."""

    step: HardwareStep
    card: str = ""
    """Name of the card, ``gpu-0``; empty: any card."""
    effect: Literal["error", "hang", "crash"] = "error"
    """error: the step fails; hang: it returns only when the backend is closed; crash: this process ends as by
    SIGKILL."""
    when: Moment = "before"
    """Whether it strikes before the change of the hardware, or after it but before the caller gets an answer."""
    times: Annotated[int, msgspec.Meta(ge=1)] | None = 1
    """How often it strikes; null: every time."""
    permanent: bool = False
    """Whether the error says that a retry is in vain."""
    reason: str = ""
    """The hardware's message; empty: a usual one."""

    def applies_to(self, step: HardwareStep, card: str, when: Moment) -> bool:
        return self.step == step and self.when == when and self.card in ("", card)


class HardwareFaults(Strict):
    """The document ``faults.json``."""

    faults: tuple[HardwareFault, ...] = ()
    degraded: dict[str, str] = {}
    """The reason by device name (a whole card or a partition): the device works, but should get no new claims."""
    lost: dict[str, str] = {}
    """The reason by device name: what runs on the device cannot go on, and a lost card refuses all new work."""

    repairs: dict[str, str] = {}
    """The repair by device name, as in the taint: ``reset.xid-95`` (``api/kerf/card_repairs.py``)."""
    absent: tuple[str, ...] = ()
    """The names of cards that are not there."""
    holders: dict[str, tuple[str, ...]] = {}
    """The processes outside of Kerf that have a card open, by the card's name: while there are any, it is not reset."""

    @property
    def unhealthy(self) -> Mapping[str, UnhealthyState]:
        """The problems by device name; of two entries for a device, the one in ``lost`` counts."""
        return self._build_states(HealthState.UNHEALTHY, self.degraded) | self._build_states(
            HealthState.LOST, self.lost
        )

    def take_applicable(
        self, step: HardwareStep, card: str, when: Moment
    ) -> tuple[HardwareFault | None, "HardwareFaults"]:
        """Return the first fault that strikes now, and the document with that one counted down."""
        for number, fault in enumerate(self.faults):
            if fault.applies_to(step, card, when):
                left = self._counted_down(fault)
                return fault, msgspec.structs.replace(
                    self, faults=self.faults[:number] + left + self.faults[number + 1 :]
                )
        return None, self

    def _build_states(self, state: HealthState, reasons: Mapping[str, str]) -> dict[str, UnhealthyState]:
        return {
            name: UnhealthyState(state, reason, parse_repair(self.repairs.get(name, "")))
            for name, reason in reasons.items()
        }

    def without_health_of(self, card: str) -> "HardwareFaults":
        """Return the document without what it says of the health of a card and its partitions: a reset ends that."""
        degraded, lost, repairs = (
            {name: reason for name, reason in known.items() if name != card and not name.startswith(f"{card}-")}
            for known in (self.degraded, self.lost, self.repairs)
        )
        return msgspec.structs.replace(self, degraded=degraded, lost=lost, repairs=repairs)

    @staticmethod
    def _counted_down(fault: HardwareFault) -> tuple[HardwareFault, ...]:
        if fault.times is None:
            return (fault,)
        return (msgspec.structs.replace(fault, times=fault.times - 1),) if fault.times > 1 else ()


def die() -> None:
    """End this process as ``kill -9`` does."""
    os.kill(os.getpid(), signal.SIGKILL)


class TimeBudget:
    """The hardware time that one operation may take, counted from the delays, not by a clock."""

    def __init__(self, limit_s: float = math.inf) -> None:
        self.limit_s = limit_s
        self.left_s = limit_s


class StepRunner:
    """Runs steps with delays and faults.

    ``delays_s`` replaces the usual delay of a step, ``pace`` multiplies every delay. Tests give ``sleep`` and
    ``crash``.
    """

    def __init__(
        self,
        faults: StateFile[HardwareFaults],
        *,
        delays_s: Mapping[HardwareStep, float],
        pace: float,
        sleep: Sleep,
        crash: Callable[[], None],
    ) -> None:
        self._faults = faults
        self._delays_s = delays_s
        self._pace = pace
        self._sleep = sleep
        self._crash = crash

    def run(
        self,
        step: HardwareStep,
        card: str,
        file: StateFile[StateT],
        change: Callable[[StateT], StateT],
        *,
        usual_s: float | None = None,
        budget: TimeBudget | None = None,
    ) -> None:
        """Apply ``change`` to the card's state after the delay of ``step``.

        ``usual_s`` is the delay where the configuration names none. Raises what ``change`` raises, the error of a fault
        that strikes, and HardwareRefusedError when ``budget`` is used up before the step ends.
        """
        budget = budget or TimeBudget()
        self._inject_fault(step, card, "before", budget)
        usual = DELAYS_S.get(step, 0.0) if usual_s is None else usual_s
        self._wait(step, self._delays_s.get(step, usual) * self._pace, budget)
        file.change(change)
        self._inject_fault(step, card, "after", budget)

    def _inject_fault(self, step: HardwareStep, card: str, when: Moment, budget: TimeBudget) -> None:
        fault = self._take_fault(step, card, when)
        if fault is None:
            return
        if fault.effect == "crash":
            self._crash()
        elif fault.effect == "hang":
            self._wait(step, math.inf, budget)
        raise _error(step, fault)

    def _take_fault(self, step: HardwareStep, card: str, when: Moment) -> HardwareFault | None:
        """Return the fault that strikes now, counted down in the file; None: none strikes."""
        if self._faults.read().take_applicable(step, card, when)[0] is None:
            return None
        taken: list[HardwareFault | None] = []

        def count_down(faults: HardwareFaults) -> HardwareFaults:
            fault, left = faults.take_applicable(step, card, when)
            taken.append(fault)
            return left

        self._faults.change(count_down)
        return taken[0]

    def _wait(self, step: HardwareStep, delay_s: float, budget: TimeBudget) -> None:
        self._sleep(min(delay_s, budget.left_s))
        if delay_s > budget.left_s:
            raise HardwareRefusedError(f"{step}: not done after {budget.limit_s:g} s, which is the limit")
        budget.left_s -= delay_s


def _error(step: HardwareStep, fault: HardwareFault) -> HardwareBusyError | HardwareRefusedError:
    message = f"{step}: {fault.reason or _IN_USE}"
    return HardwareRefusedError(message) if fault.permanent else HardwareBusyError(message)
