"""The cards of a node in tests of fault points: NVIDIA's on the stand-in for NVML, and simulated ones."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pynvml

from kerf_dra.driver.kubeletplugin.backends.base import Backend
from kerf_dra.driver.kubeletplugin.backends.simulated import open_backend as open_simulated
from kerf_dra.driver.testing.nvml import NvidiaMachine
from kerf_dra.driver.testing.nvml.demonstration import open_backend as open_nvidia
from kerf_dra.driver.testing.nvml.layout import StateLayout
from tests.fakes.nvml import open_nvml
from tests.fakes.nvml_calls import list_gpu_instances
from tests.kubeletplugin.fault_points.node import SHARING, Place, WholeCard

COMPUTE_MODE = pynvml.NVML_COMPUTEMODE_PROHIBITED
"""That of the cards before anybody shares them, which no strategy has: an administrator's."""


class NvidiaCards:
    """NVIDIA's cards on the stand-in."""

    def __init__(self, root: Path, number: int, *, is_sharing: bool = False) -> None:
        self._number = number
        self._document = root / "cards.yaml"
        cards = [{"model": "h100-80gb-sxm", "count": number}]
        self._document.write_text(json.dumps({"cards": cards, **({"sharingFolder": SHARING} if is_sharing else {})}))
        self.machine = NvidiaMachine(root / "machine")
        self.open_backend()  # makes the machine
        self._set_compute_mode()

    def open_backend(self) -> Backend:
        return open_nvidia(self._document)

    def look(self) -> Mapping[Place, str]:
        found: dict[Place, str] = {}
        with open_nvml(self.machine):
            for number in range(self._number):
                card = pynvml.nvmlDeviceGetHandleByIndex(number)
                if not pynvml.nvmlDeviceGetMigMode(card)[0]:
                    continue
                names = _profile_names(card)
                uuids = _mig_uuids(card)
                for id_, (profile, start, _) in list_gpu_instances(card).items():
                    found[number, names[profile], start] = uuids.get(id_, "")
        return found

    def look_at_wholes(self) -> Mapping[str, WholeCard]:
        found = {}
        with open_nvml(self.machine):
            for number in range(self._number):
                card = pynvml.nvmlDeviceGetHandleByIndex(number)
                uuid, mode = pynvml.nvmlDeviceGetUUID(card), pynvml.nvmlDeviceGetComputeMode(card)
                found[f"gpu-{number}"] = WholeCard(uuid, mode, self.machine.time_slices.get(uuid, 0))
        return found

    def save(self) -> bytes:
        slices = self._time_slices.read_bytes() if self._time_slices.exists() else b""
        return msgspec.msgpack.encode([(self.machine.folder / "state").read_bytes(), slices])

    def restore(self, saved: bytes) -> None:
        content, slices = msgspec.msgpack.decode(saved, type=tuple[bytes, bytes])
        self._time_slices.write_bytes(slices)
        state = StateLayout.from_buffer_copy(content)
        state.is_tree_stale = 1
        with (self.machine.folder / "state").open("r+b") as file:
            file.write(bytes(state))

    def reboot(self) -> None:
        self.machine.reboot()
        self._set_compute_mode()  # as the administrator has a machine do at each boot

    def _set_compute_mode(self) -> None:
        with open_nvml(self.machine):
            for number in range(self._number):
                pynvml.nvmlDeviceSetComputeMode(pynvml.nvmlDeviceGetHandleByIndex(number), COMPUTE_MODE)

    @property
    def _time_slices(self) -> Path:
        return self.machine.folder / "timeslices"


def _profile_names(card: object) -> dict[int, str]:
    names = {}
    for enum in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            profile = pynvml.nvmlDeviceGetGpuInstanceProfileInfoV(card, enum)
        except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_InvalidArgument):
            continue
        names[profile.id] = profile.name.removeprefix("MIG ")
    return names


def _mig_uuids(card: object) -> dict[int, str]:
    uuids = {}
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(card)):
        try:
            device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(card, index)
        except (pynvml.NVMLError_NotFound, pynvml.NVMLError_InvalidArgument):
            continue
        uuids[pynvml.nvmlDeviceGetGpuInstanceId(device)] = pynvml.nvmlDeviceGetUUID(device)
    return uuids


class SimulatedCards:
    """Simulated GPUs, which take no time."""

    def __init__(self, root: Path, number: int) -> None:
        self._document = root / "cards.yaml"
        self._state = root / "hardware"
        card = {"kind": "gpu", "model": "h100-80gb-sxm", "count": number}
        self._document.write_text(json.dumps({"state": self._state.name, "pace": 0, "cards": [card]}))

    def open_backend(self) -> Backend:
        return open_simulated(self._document)

    def look(self) -> Mapping[Place, str]:
        """What the files say, each of which is there from the first change of its card on."""
        return {
            (int(path.stem.removeprefix("gpu-")), row["profile"], row["placement"][0]): row["mig_uuid"]
            for path in self._state.glob("gpu-*.json")
            for row in json.loads(path.read_bytes())["instances"]
        }

    def look_at_wholes(self) -> Mapping[str, WholeCard]:
        return {}

    def save(self) -> bytes:
        return msgspec.msgpack.encode({path.name: path.read_bytes() for path in self._state.glob("*.json")})

    def restore(self, saved: bytes) -> None:
        shutil.rmtree(self._state, ignore_errors=True)
        self._state.mkdir(mode=0o700)
        for name, content in msgspec.msgpack.decode(saved, type=dict[str, bytes]).items():
            (self._state / name).write_bytes(content)

    def reboot(self) -> None:
        self.restore(msgspec.msgpack.encode({}))
