"""Resets a card by ``nvidia-smi``, because NVML has no function for it, and says who keeps it from that.

The driver refuses a reset while any process has the card open, this one included, and while persistence mode keeps it
open (NVIDIA/NVSentinel#1690): that is switched off before and restored after. What was there before is in the journal
first, so that a process that was killed in between has a successor that restores it.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.printable_text import to_one_line
from kerf_dra.driver.kubeletplugin.backends.base import (
    CardAbsentError,
    HardwareBusyError,
    HardwareRefusedError,
    Journal,
)
from kerf_dra.driver.kubeletplugin.backends.nvidia.system_files import SystemFiles
from kerf_dra.driver.mps.driver_programs import DriverProgram, ProgramFailedError

_QUERY_S: Final = 15.0
"""Limit of a query, or of a switch of persistence mode, which takes seconds on a machine with many cards."""
_RESET_S: Final = 60.0
"""Limit of a reset, which takes some ten seconds; with two other calls it is below the limit of a call for a GPU."""
_UNSUPPORTED, _LOST = 3, 15
"""Exit codes of nvidia-smi(1): the operation is not available on the card; the card is lost."""
_PERSISTENCE: Final = "persistenceMode"
"""The note of the persistence mode before."""
_ENABLED: Final = "Enabled"
_DAEMON: Final = "nvidia-persistenced"
"""The daemon that keeps cards open for persistence mode: it closes one whose mode is switched off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardReset:
    """The reset of one card."""

    card_uuid: str
    program: DriverProgram
    """``nvidia-smi`` of the driver's root."""

    def run(self, journal: Journal) -> str:
        """Reset the card, and return what the program says. NVML must not have the card open in this process.

        Raises HardwareBusyError when it was refused and nothing was changed but persistence mode, CardAbsentError, and
        HardwareRefusedError when the card cannot be reset, or it is not known whether it was.
        """
        mode = self._run("--query-gpu=persistence_mode", "--format=csv,noheader", limit_s=_QUERY_S)
        journal.write(**{_PERSISTENCE: mode})
        if mode == _ENABLED:
            self._run("-pm", "0", limit_s=_QUERY_S)
        return self._run("--gpu-reset", limit_s=_RESET_S)

    def restore(self, journal: Journal) -> None:
        """Switch persistence mode on again where ``run`` has switched it off. Raises as ``run``."""
        if journal.notes.get(_PERSISTENCE) == _ENABLED:
            self._run("-pm", "1", limit_s=_QUERY_S)
            journal.write(**{_PERSISTENCE: ""})

    def _run(self, *arguments: str, limit_s: float) -> str:
        try:
            return to_one_line(self.program.run(*arguments, "-i", self.card_uuid, timeout_s=limit_s))
        except ProgramFailedError as error:
            raise _to_error(error) from error


def _to_error(error: ProgramFailedError) -> KerfError:
    if error.is_late or error.exit_code == _UNSUPPORTED:
        return HardwareRefusedError(str(error))
    return CardAbsentError(str(error)) if error.exit_code == _LOST else HardwareBusyError(str(error))


def list_holders(system: SystemFiles, minor: int) -> Sequence[str]:
    """Return the processes that have the node of the card with this minor number open, but for this one and the daemon
    of persistence mode, as far as they can be seen. Raises UnreadableFilesError.
    """
    found = sorted(system.find_card_openers(minor).items())
    return [f"{name or 'a process'} ({pid})" for pid, name in found if pid != os.getpid() and name != _DAEMON]
