"""Faults from outside: ``faults.json`` in the state directory, written by tests, by ``kerf demo`` or by hand.

.. code-block:: json

    {"faults": [{"step": "fpga-program", "card": "fpga-0", "effect": "error", "times": 1}],
     "ill": {"gpu-1": "Xid 63: row remapping is due"},
     "lost": {"gpu-0": "Xid 79: the GPU has fallen off the bus"}}

A fault that struck is counted down in the file, and removed with its last time. Hardware is ill or lost for as long as
the file says so; who writes another file has healed or broken it.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple, TypeAlias

import msgspec

from api.kerf.v1alpha1 import Strict
from driver.kubeletplugin.backends.base import Condition
from driver.kubeletplugin.backends.simulated.steps import Step

Moment: TypeAlias = Literal["before", "after"]


class Ailment(NamedTuple):
    """What is wrong with a device."""

    condition: Condition
    reason: str


class Fault(Strict):
    """What goes wrong, where, and how often."""

    step: Step
    card: str = ""
    """Name of the card, ``gpu-0``; empty: any."""
    effect: Literal["error", "hang", "crash"] = "error"
    """Fail; never return; kill this process as SIGKILL does."""
    when: Moment = "before"
    """Before the hardware changed, or after it did but before anybody heard of it."""
    times: Annotated[int, msgspec.Meta(ge=1)] | None = 1
    """How often it strikes; null: every time."""
    permanent: bool = False
    """The error says that a retry is in vain."""
    reason: str = ""
    """The hardware's words."""

    def strikes(self, step: Step, card: str, when: Moment) -> bool:
        return self.step == step and self.when == when and self.card in ("", card)


class Faults(Strict):
    """The document."""

    faults: tuple[Fault, ...] = ()
    ill: dict[str, str] = {}
    """Name of a device (a whole card or a partition) to why it is ill: it works, but should get nothing new."""
    lost: dict[str, str] = {}
    """Name of a device to why what runs on it cannot go on. A lost card refuses all new work."""

    @property
    def ailments(self) -> Mapping[str, Ailment]:
        """By name of the device; lost is worse than ill."""
        ill = {name: Ailment(Condition.ILL, reason) for name, reason in self.ill.items()}
        return ill | {name: Ailment(Condition.LOST, reason) for name, reason in self.lost.items()}

    def strike(self, step: Step, card: str, when: Moment) -> tuple[Fault | None, "Faults"]:
        """The first fault that strikes now, and the document with that one counted down."""
        for number, fault in enumerate(self.faults):
            if fault.strikes(step, card, when):
                left = self._counted_down(fault)
                return fault, msgspec.structs.replace(
                    self, faults=self.faults[:number] + left + self.faults[number + 1 :]
                )
        return None, self

    @staticmethod
    def _counted_down(fault: Fault) -> tuple[Fault, ...]:
        if fault.times is None:
            return (fault,)
        return (msgspec.structs.replace(fault, times=fault.times - 1),) if fault.times > 1 else ()
