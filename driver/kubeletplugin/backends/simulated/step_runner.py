"""Running a step: a fault before, the delay, the change of state, a fault after."""

import math
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from driver.kubeletplugin.backends.base import HardwareBusyError, HardwareRefusedError
from driver.kubeletplugin.backends.simulated.faults import Fault, Moment
from driver.kubeletplugin.backends.simulated.state_store import CardFile, StateDirectory, StateT
from driver.kubeletplugin.backends.simulated.steps import DELAYS_S, Step

Sleep: TypeAlias = Callable[[float], Awaitable[None]]

_IN_USE: Final = "In use by another client"
"""What NVML says of an instance that some process still holds; the commonest failure of real cards."""


def die() -> None:
    """End this process as ``kill -9`` does."""
    os.kill(os.getpid(), signal.SIGKILL)


class Budget:
    """Hardware time that one operation may take. Counted from the delays, not by a clock."""

    def __init__(self, limit_s: float = math.inf) -> None:
        self.limit_s = limit_s
        self.left_s = limit_s


class Stepper:
    """Runs steps with delays and faults.

    ``delays_s`` replaces the usual delay of a step, ``pace`` multiplies every delay (0: none). ``sleep`` and ``crash``
    are given by tests.
    """

    def __init__(
        self,
        directory: StateDirectory,
        *,
        delays_s: Mapping[Step, float],
        pace: float,
        sleep: Sleep,
        crash: Callable[[], None],
    ) -> None:
        self._directory = directory
        self._delays_s = delays_s
        self._pace = pace
        self._sleep = sleep
        self._crash = crash

    async def run(
        self,
        step: Step,
        card: str,
        file: CardFile[StateT],
        change: Callable[[StateT], StateT],
        *,
        usual_s: float | None = None,
        budget: Budget | None = None,
    ) -> None:
        """Do ``change`` to the card's state after the delay of ``step``; what it raises is the step's failure.

        ``usual_s`` is the delay where the configuration names none. Raises HardwareRefusedError when ``budget`` is
        used up before the step ends.
        """
        budget = budget or Budget()
        await self._strike(step, card, "before", budget)
        usual = DELAYS_S.get(step, 0.0) if usual_s is None else usual_s
        await self._wait(step, self._delays_s.get(step, usual) * self._pace, budget)
        file.change(change)
        await self._strike(step, card, "after", budget)

    async def _strike(self, step: Step, card: str, when: Moment, budget: Budget) -> None:
        fault = self._directory.strike(step, card, when)
        if fault is None:
            return
        if fault.effect == "crash":
            self._crash()
        elif fault.effect == "hang":
            await self._wait(step, math.inf, budget)
        raise _error(step, fault)

    async def _wait(self, step: Step, delay_s: float, budget: Budget) -> None:
        await self._sleep(min(delay_s, budget.left_s))
        if delay_s > budget.left_s:
            raise HardwareRefusedError(f"{step}: not done after {budget.limit_s:g} s, which is the limit")
        budget.left_s -= delay_s


def _error(step: Step, fault: Fault) -> HardwareBusyError | HardwareRefusedError:
    message = f"{step}: {fault.reason or _IN_USE}"
    return HardwareRefusedError(message) if fault.permanent else HardwareBusyError(message)
