"""What every function of NVML that Kerf calls, and that changes nothing, answers of a card: its name, and the outcome.

``python -m tests.gpu.sweep MODEL PRODUCT MODE`` prints the same of a card of the stand-in, as JSON: a process loads one
library. MODE is ``none``, ``off`` or ``on``, the MIG mode.
"""

import ctypes
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import pynvml

from kerf_dra.driver.kubeletplugin.backends.nvidia.nvml.library import NvmlLibrary
from kerf_dra.driver.testing.nvml import CardDescription, MachineDescription, NvidiaMachine
from kerf_dra.driver.testing.nvml.machine import MACHINE_VARIABLE

DONE: Final = "SUCCESS"
"""The outcome of a function that has answered; of others it is the name of the error code."""
_ERRORS: Final[Mapping[int, str]] = {
    value: name.removeprefix("NVML_ERROR_") for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_")
}
_NO_INSTANCE: Final = 99
"""More than the ids of GPU instances of any card."""
_GPM_METRICS: Final = (1, 2, 3, 5, 10)
"""Graphics, multiprocessors, occupancy, tensor cores, bandwidth of the memory: those of the stand-in."""
_REPLY_S: Final = 60.0
"""The stand-in is compiled at its first use."""


def sweep(card: Any) -> dict[str, str]:
    """Call each function on the card with this handle, and return how it ended. NVML is open."""
    uuid = pynvml.nvmlDeviceGetUUID(card)
    calls: dict[str, Callable[[], object]] = {
        "nvmlSystemGetDriverVersion": pynvml.nvmlSystemGetDriverVersion,
        "nvmlSystemGetCudaDriverVersion_v2": pynvml.nvmlSystemGetCudaDriverVersion_v2,
        "nvmlDeviceGetCount_v2": pynvml.nvmlDeviceGetCount,
        "nvmlDeviceGetHandleByIndex_v2": lambda: pynvml.nvmlDeviceGetHandleByIndex(0),
        "nvmlDeviceGetHandleByIndex_v2, of a card too many": lambda: pynvml.nvmlDeviceGetHandleByIndex(999),
        "nvmlDeviceGetHandleByUUID": lambda: pynvml.nvmlDeviceGetHandleByUUID(uuid.encode()),
        "nvmlDeviceGetHandleByUUID, of no card": lambda: pynvml.nvmlDeviceGetHandleByUUID(b"GPU-0"),
        "nvmlDeviceGetMigDeviceHandleByIndex": lambda: pynvml.nvmlDeviceGetMigDeviceHandleByIndex(card, 0),
        "nvmlDeviceGetGpuInstanceById, of none": lambda: pynvml.nvmlDeviceGetGpuInstanceById(card, _NO_INSTANCE),
        "nvmlDeviceGetFieldValues": lambda: _read_field(card, pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION),
        "nvmlEventSetCreate, nvmlDeviceRegisterEvents, nvmlEventSetWait_v2": lambda: _wait_for_event(card),
        "nvmlGpmQueryDeviceSupport": lambda: pynvml.nvmlGpmQueryDeviceSupport(card),
        "nvmlDeviceGetProcessUtilization": lambda: pynvml.nvmlDeviceGetProcessUtilization(card, 0),
    }
    for name in (
        "GetUUID",
        "GetName",
        "GetMinorNumber",
        "GetPciInfo",
        "GetMemoryInfo",
        "GetArchitecture",
        "GetCudaComputeCapability",
        "GetMigMode",
        "GetComputeMode",
        "GetMaxMigDeviceCount",
        "GetComputeRunningProcesses_v3",
        "GetGraphicsRunningProcesses_v3",
        "GetRemappedRows",
        "GetCurrentClocksEventReasons",
        "GetSupportedEventTypes",
        "GetPersistenceMode",
        "GetTotalEnergyConsumption",
        "GetUtilizationRates",
    ):
        function = getattr(pynvml, f"nvmlDevice{name}")
        calls[f"nvmlDevice{name}"] = partial(function, card)
    for profile in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        calls[f"nvmlDeviceGetGpuInstanceProfileInfoV, profile {profile}"] = partial(
            pynvml.nvmlDeviceGetGpuInstanceProfileInfo, card, profile, 2
        )
        calls[f"nvmlDeviceGetGpuInstancePossiblePlacements_v2, profile {profile}"] = partial(
            _list_placements, card, profile
        )
    return {name: _try_call(call) for name, call in calls.items()}


def read_use(card: Any) -> dict[str, Any]:
    """Return what the card is used now: memory in bytes, energy in mJ since the driver was loaded, processes, and what
    it has of percentages, by NVML's number of each GPM metric. None: the card does not report it.
    """
    return {
        "memory_bytes": pynvml.nvmlDeviceGetMemoryInfo(card).used,
        "energy_mj": _try_read(lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(card)),
        "processes": len(pynvml.nvmlDeviceGetComputeRunningProcesses_v3(card)),
        "utilization_percent": _try_read(lambda: pynvml.nvmlDeviceGetUtilizationRates(card).gpu),
        "gpm_percent": _try_read(lambda: _read_gpm(card)),
    }


def _try_read(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except pynvml.NVMLError_NotSupported:
        return None


def _read_gpm(card: Any) -> dict[int, float]:
    """Read the metrics that the stand-in has, between two samples."""
    samples = [pynvml.nvmlGpmSampleAlloc() for _ in range(2)]
    try:
        for sample in samples:
            pynvml.nvmlGpmSampleGet(card, sample)
        asked = pynvml.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, len(_GPM_METRICS)
        asked.sample1, asked.sample2 = samples
        for place, metric in enumerate(_GPM_METRICS):
            asked.metrics[place].metricId = metric
        pynvml.nvmlGpmMetricsGet(asked)
        read = asked.metrics[: len(_GPM_METRICS)]
        return {one.metricId: one.value for one in read if one.nvmlReturn == pynvml.NVML_SUCCESS}
    finally:
        for sample in samples:
            pynvml.nvmlGpmSampleFree(sample)


def sweep_stand_in(model: str, product: str, mode: str) -> dict[str, str]:
    """Return the same of a card of the stand-in, by a process of its own."""
    command = [sys.executable, "-m", "tests.gpu.sweep", model, product, mode]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_REPLY_S, check=False)
    assert done.returncode == 0, done.stderr
    outcomes: dict[str, str] = json.loads(done.stdout)
    return outcomes


def _try_call(call: Callable[[], object]) -> str:
    try:
        call()
    except pynvml.NVMLError as error:
        return _ERRORS.get(error.value, str(error.value))
    return DONE


def _read_field(card: Any, field: int) -> None:
    """Read one field. Raises NVMLError, also with the error code that the field has for itself."""
    (value,) = pynvml.nvmlDeviceGetFieldValues(card, [field])
    if value.nvmlReturn != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(value.nvmlReturn)


def _wait_for_event(card: Any) -> None:
    events = pynvml.nvmlEventSetCreate()
    try:
        pynvml.nvmlDeviceRegisterEvents(card, pynvml.nvmlEventTypeXidCriticalError, events)
        pynvml.nvmlEventSetWait_v2(events, 0)
    finally:
        pynvml.nvmlEventSetFree(events)


def _list_placements(card: Any, profile: int) -> None:
    info = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(card, profile, 2)
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(card, info.id, None, ctypes.byref(ctypes.c_uint(0)))


def _main(model: str, product: str, mode: str) -> None:
    description = CardDescription(model=model, product=product, is_mig_capable=mode != "none", is_mig_on=mode == "on")
    with tempfile.TemporaryDirectory() as folder:
        machine = NvidiaMachine.create(Path(folder) / "machine", MachineDescription(cards=(description,)))
        os.environ[MACHINE_VARIABLE] = str(machine.folder)
        library = NvmlLibrary(machine.driver_root)
        library.open()
        print(json.dumps(sweep(pynvml.nvmlDeviceGetHandleByIndex(0))))
        library.close()


if __name__ == "__main__":
    _main(*sys.argv[1:])
