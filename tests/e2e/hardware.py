"""What befalls the hardware of one node without Kerf's doing: simulated cards, and stand-ins of NVIDIA's."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import pynvml
import pytest

from kerf_dra.driver.families.gpu.catalog import gpu_model
from kerf_dra.driver.partitions.geometry import Placement
from kerf_dra.driver.runtime import file_lock
from kerf_dra.driver.testing.nvml import Death, InstanceOnCard, NvidiaMachine
from kerf_dra.driver.testing.nvml.description import find_instance_id
from tests.fakes.nvml import open_nvml
from tests.fakes.nvml_calls import create_gpu_instance, destroy_gpu_instance, fill_gpu_instance
from tools.realcluster.kerf import NVIDIA_FAKE, SIMULATED

BOTH_BACKENDS: Final = pytest.mark.gpu_backends(SIMULATED, NVIDIA_FAKE)
"""The mark of tests that run with simulated GPUs, and then with the backend for NVIDIA cards on stand-ins."""
ON_NVIDIA: Final = pytest.mark.gpu_backends(NVIDIA_FAKE)

_FAULTS: Final = "faults.json"
_BY_HAND_ID: Final = 7
"""The first GPU instance id of the smallest profile (NVML's ids): none that a larger one in these tests has."""
_MODEL: Final = "h100-80gb-sxm"
"""The model of the cards that are cut by hand before anything else was cut on them."""
_RESET: Final = 1
"""NVML_GPU_RECOVERY_ACTION_GPU_RESET."""
_DEATHS: Final = {"before": Death.BEFORE, "halfway": Death.HALFWAY, "after": Death.AFTER}


class NodeHardware(Protocol):
    """The hardware of one node. Cards are named as their devices are, such as ``gpu-0``."""

    @property
    def partitions(self) -> Sequence[tuple[str, str, int]]:
        """Card, profile and first slice of every GPU partition, whoever made it."""
        ...

    @property
    def uuids(self) -> Sequence[str]:
        """The UUIDs of the partitions."""
        ...

    def cut(self, card: str, profile: str, placement: Placement) -> str:
        """Cut a partition as an administrator would, without Kerf, and return its UUID."""
        ...

    def destroy(self, card: str, placement: Placement) -> None:
        """Destroy what ``cut`` has cut there."""
        ...

    def switch_mig_off(self, card: str) -> None:
        """Switch the MIG mode of an idle card off by hand, as it is after a boot."""
        ...

    def boot(self) -> None:
        """Lose what does not survive a boot of the node."""
        ...

    def take_away(self, card: str) -> None:
        """Let a card vanish from the bus until ``repair``."""
        ...

    def make_unhealthy(self, device: str, reason: str) -> str:
        """Make a device unhealthy until ``repair``: it works, and gets no new claims. Returns the reason as Kerf says
        it, which is ``reason`` where the hardware takes any.
        """
        ...

    def lose(self, device: str, reason: str) -> None:
        """Make a device lost until ``repair``: what runs on it cannot continue."""
        ...

    def break_step(self, step: str, **fault: Any) -> None:
        """Make the hardware fail at the next execution of ``step``, which has the name of NVML's function."""
        ...

    def repair(self) -> None:
        """End what the methods above have broken."""
        ...


class SimulatedCards:
    """The cards of the simulated backend, FPGAs, too: files in a folder, which are changed under its lock."""

    def __init__(self, state: Path) -> None:
        self._state = state

    @property
    def partitions(self) -> Sequence[tuple[str, str, int]]:
        found = [(card, one["profile"], one["placement"][0]) for card, one in self._instances()]
        return sorted(found)

    @property
    def uuids(self) -> Sequence[str]:
        return [one["mig_uuid"] for _, one in self._instances()]

    def cut(self, card: str, profile: str, placement: Placement) -> str:
        by_hand = f"MIG-by-hand-{card}-{placement.start}"
        id_ = _BY_HAND_ID + placement.start
        instance = {"id": id_, "profile": profile, "placement": _slices(placement), "mig_uuid": by_hand}
        self._change(card, lambda state: {**state, "mig": True, "instances": [*state["instances"], instance]})
        return by_hand

    def destroy(self, card: str, placement: Placement) -> None:
        def without(state: dict[str, Any]) -> dict[str, Any]:
            return {**state, "instances": [one for one in state["instances"] if one["placement"] != _slices(placement)]}

        self._change(card, without)

    def switch_mig_off(self, card: str) -> None:
        self._change(card, lambda state: {**state, "mig": False})

    def boot(self) -> None:
        for file in self._state.glob("gpu-*.json"):
            file.unlink()

    def take_away(self, card: str) -> None:
        self._write_faults({"absent": [card]})

    def make_unhealthy(self, device: str, reason: str) -> str:
        self._write_faults({"degraded": {device: reason}})
        return reason

    def lose(self, device: str, reason: str) -> None:
        self._write_faults({"lost": {device: reason}})

    def break_step(self, step: str, **fault: Any) -> None:
        self._write_faults({"faults": [{"step": step, **fault}]})

    def repair(self) -> None:
        (self._state / _FAULTS).unlink(missing_ok=True)

    def _write_faults(self, document: object) -> None:
        new = self._state / ".new-faults"
        new.write_text(json.dumps(document))
        new.replace(self._state / _FAULTS)

    def _change(self, card: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Change the state of a card under the lock that the simulated hardware takes."""
        path = self._state / f"{card}.json"
        with file_lock.acquire(self._state):
            state = json.loads(path.read_text()) if path.exists() else {"model": _MODEL, "instances": []}
            new = path.with_name(f".{path.name}.by-hand")
            new.write_text(json.dumps(change(state)))
            new.replace(path)

    def _instances(self) -> Sequence[tuple[str, Any]]:
        files = sorted(self._state.glob("gpu-*.json"))
        return [(file.stem, one) for file in files for one in json.loads(file.read_text())["instances"]]


def _slices(placement: Placement) -> list[int]:
    """Return a placement as the state of a simulated card has it."""
    return [placement.start, placement.size]


class StandInCards:
    """The cards of a stand-in machine, whose numbers are those in the names of their devices.

    What an administrator does is done with NVML, by this process.
    """

    def __init__(self, folder: Path, delays_s: Mapping[str, float]) -> None:
        """``delays_s`` are the seconds that calls of NVML's functions take, by their names."""
        self.machine = NvidiaMachine(folder)
        self._delays_s = delays_s
        self._repairs: list[Callable[[], None]] = []
        self._add_delays()

    @property
    def partitions(self) -> Sequence[tuple[str, str, int]]:
        return sorted((f"gpu-{one.card}", one.profile, one.start) for one in self._instances())

    @property
    def uuids(self) -> Sequence[str]:
        return [one.uuid for one in self._instances()]

    def cut(self, card: str, profile: str, placement: Placement) -> str:
        found = gpu_model(_MODEL).profile(profile)
        assert found is not None
        assert found.gi_profile_id is not None
        with open_nvml(self.machine):
            handle = pynvml.nvmlDeviceGetHandleByIndex(_number(card))
            pynvml.nvmlDeviceSetMigMode(handle, 1)
            fill_gpu_instance(create_gpu_instance(handle, found.gi_profile_id, placement.start, placement.size))
        (uuid,) = (one.uuid for one in self._instances() if (one.card, one.start) == (_number(card), placement.start))
        return uuid

    def destroy(self, card: str, placement: Placement) -> None:
        with open_nvml(self.machine):
            handle = pynvml.nvmlDeviceGetHandleByIndex(_number(card))
            destroy_gpu_instance(handle, find_instance_id(gpu_model(_MODEL), placement))

    def switch_mig_off(self, card: str) -> None:
        with open_nvml(self.machine):
            pynvml.nvmlDeviceSetMigMode(pynvml.nvmlDeviceGetHandleByIndex(_number(card)), 0)

    def boot(self) -> None:
        self.machine.reboot()

    def take_away(self, card: str) -> None:
        self.machine.remove_card(_number(card))
        self._repairs.append(partial(self.machine.restore_card, _number(card)))

    def make_unhealthy(self, device: str, reason: str) -> str:
        del reason  # rows of memory are what can be repaired
        self.machine.remap_rows(_number(device), uncorrectable=1, is_pending=True)
        self._repairs.append(partial(self.machine.remap_rows, _number(device)))
        return "rows of its memory are remapped at the next reset of the card"

    def lose(self, device: str, reason: str) -> None:
        """Let the driver want a reset: a card that has fallen off the bus could not release what is on it."""
        del reason
        self.machine.set_recovery_action(_number(device), _RESET)
        self._repairs.append(partial(self.machine.set_recovery_action, _number(device), 0))

    def break_step(self, step: str, **fault: Any) -> None:
        self.machine.clear_faults()  # the first fault of a function counts
        self.machine.add_fault(step, death=_DEATHS[fault["when"]])
        self._add_delays()

    def repair(self) -> None:
        """End what is broken. Sets the delays, too."""
        while self._repairs:
            self._repairs.pop()()
        self.machine.clear_faults()
        self._add_delays()

    def _add_delays(self) -> None:
        for function, delay_s in self._delays_s.items():
            self.machine.add_fault(function, delay_s=delay_s, times=None)

    def _instances(self) -> Sequence[InstanceOnCard]:
        return self.machine.list_instances() if self.machine.exists else ()


def _number(device: str) -> int:
    """Return the number of the card that ``device`` is of, such as 0 for ``gpu-0-1g-10gb-at-3``."""
    return int(device.split("-")[1])
