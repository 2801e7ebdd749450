"""How well the MPS control daemons of a node are, as ``kerf mps-daemons`` says in its states.

A daemon that dies is there again within seconds, but its clients have failed. So its device counts as unhealthy for a
while longer: pods get events, and a daemon that dies of what its clients do gets no further ones in between.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from kerf_dra.driver.kubeletplugin.backends.nvidia.sharing.device_sharing import NO_DAEMONS
from kerf_dra.driver.mps.documents import LOCK, DaemonFolder, DaemonState, UnreadableDocumentError, list_folders
from kerf_dra.driver.runtime.file_lock import is_held

HOLD_S: Final = 60.0
"""Seconds after a start again until a device counts as healthy: the longest delay between two starts."""
_STARTED_AGAIN: Final = "the MPS control daemon has ended and was started again: its clients of before have failed"


class DaemonHealth:
    """What is known of the daemons of a node, from one look to the next."""

    def __init__(self, folder: Path | None, *, now: Callable[[], float]) -> None:
        """``folder`` has a folder for each device; None: no device has a daemon. ``now`` returns monotonic seconds."""
        self._root = folder
        self._now = now
        self._restarts: dict[str, int] = {}
        """How often daemons were started again, of those that have had clients."""
        self._held_until: dict[str, float] = {}

    def list_failures(self) -> Mapping[str, str]:
        """Return the UUIDs of the devices whose daemon does not serve its clients, or did not a while ago, with the
        reason. Raises OSError when the folder cannot be read.
        """
        if self._root is None:
            return {}
        states = {folder.device: state for folder in list_folders(self._root) if (state := _read(folder)) is not None}
        for gone in self._restarts.keys() - states.keys():
            del self._restarts[gone]
            self._held_until.pop(gone, None)
        if not states:
            return {}
        is_kept = is_held(self._root / LOCK)
        failures = {device: self._judge(device, state, is_kept=is_kept) for device, state in states.items()}
        return {device: reason for device, reason in failures.items() if reason}

    def _judge(self, device: str, state: DaemonState, *, is_kept: bool) -> str:
        """Return why the device is unhealthy; empty: it is not."""
        if state.is_ready or state.is_failing:
            if state.restarts > self._restarts.setdefault(device, state.restarts):
                self._held_until[device] = self._now() + HOLD_S
            self._restarts[device] = state.restarts
        if not is_kept:
            return NO_DAEMONS.format(self._root)
        if state.is_failing:
            return state.error
        return _STARTED_AGAIN if self._now() < self._held_until.get(device, 0.0) else ""


def _read(folder: DaemonFolder) -> DaemonState | None:
    """Return the state of a daemon that is wanted; None: there is none."""
    try:
        return folder.read_state() if folder.read_request() is not None else None
    except UnreadableDocumentError as error:
        return DaemonState(request="", is_ready=False, error=str(error), is_failing=True)
