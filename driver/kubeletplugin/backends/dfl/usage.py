"""What DFL cards are used for: their power, of which the energy is summed up, and the processes that have them open.

A card has no counter of energy. Its management engine measures the present power of the FPGA (``power1_input`` of the
sensor ``dfl_fme_power``, in microwatts; Linux ``Documentation/ABI/testing/sysfs-platform-dfl-fme``). The sum begins at
0 in each process, and what was used while none ran is not in it. How busy a function is the card cannot say.

Processes are seen from the first PID namespace only. From another one nothing is known of them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kerf_dra.driver.kubeletplugin.backends.base import DeviceSample
from kerf_dra.driver.kubeletplugin.backends.dfl.handles import DflHandle, build_edits
from kerf_dra.driver.kubeletplugin.backends.kernel_files import find_openers, is_first_namespace

_LONGEST_S: Final = 300.0
"""The longest time between two measurements over which the power is taken for their mean: after a longer one, as of a
machine that slept, nothing is added."""
_UW_S: Final = 1000
"""Microwatt-seconds of a millijoule."""


class PowerMeter:
    """The energy of cards, summed up from the power at each sample."""

    def __init__(self) -> None:
        self._latest: dict[str, tuple[float, int]] = {}
        """By card: when its power was measured last, and what it was in microwatts."""
        self._energy_mj: dict[str, float] = {}

    def add(self, card_uuid: str, power_uw: int | None, now: float) -> int | None:
        """Return the millijoules of a card since the first measurement of this process; None: it measures no power.

        ``now`` is monotonic time in seconds.
        """
        if power_uw is None:
            self._latest.pop(card_uuid, None)
            return None
        latest = self._latest.get(card_uuid)
        self._latest[card_uuid] = now, power_uw
        sum_mj = self._energy_mj.get(card_uuid, 0.0)
        if latest is not None and 0 <= now - latest[0] <= _LONGEST_S:
            sum_mj += (latest[1] + power_uw) / 2 * (now - latest[0]) / _UW_S
        self._energy_mj[card_uuid] = sum_mj
        return int(sum_mj)


def sample_devices(proc: Path, handles: Sequence[DflHandle]) -> tuple[DeviceSample, ...]:
    """Return how many processes have the nodes of each device open. Raises UnreadableFilesError."""
    if not handles or not is_first_namespace(proc):
        return (DeviceSample(),) * len(handles)
    # Every user of VFIO has its first node open; only the nodes of functions show which function is in use.
    nodes = [{node.path for node in build_edits(handle).device_nodes} - {"/dev/vfio/vfio"} for handle in handles]
    users = find_openers(proc, frozenset().union(*nodes))
    return tuple(DeviceSample(processes=len({pid for node in each for pid in users.get(node, ())})) for each in nodes)
