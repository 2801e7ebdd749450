"""The error codes of NVML (``nvmlReturn_t``) that are an answer, by function, and those that say where an error is.

A code that the table does not have for its function is an error of the call, and says nothing about what is on a card.
No row says that a partition is gone: a GPU instance is gone when a list of its profile, which has succeeded, does not
have it (``NvmlLibrary.list_gpu_instances``). Where a row says "unsupported", it is not believed of a card that has
answered before.

The source of each row is the comment of its function in NVML's header (``nvml.h``, NVML API 13).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

LIBRARY_LACKS: Final = frozenset({"FUNCTION_NOT_FOUND", "ARGUMENT_VERSION_MISMATCH"})
"""Of any function: the library is older than the function, or has another version of its structure."""


class Meaning(StrEnum):
    """What an error code answers."""

    UNSUPPORTED = "unsupported"
    """This card, or this version of NVML, does not have what is asked about."""
    ABSENT = "absent"
    """There is no object of this name."""
    STALE = "stale"
    """The handle, which a list has just returned, is not valid any more: the list is made again."""
    TAKEN = "taken"
    """Something else has the place."""
    NOTHING_YET = "nothing yet"
    """Nothing has happened in the time of the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The error codes of one function that are an answer."""

    codes: frozenset[str]
    """The names without ``NVML_ERROR_``."""
    meaning: Meaning
    source: str
    """What the header says of the code."""


def _unsupported(source: str, *more: str) -> Answer:
    """Return the row of a query that a card, or a library without the function or its structure, may not have."""
    codes = LIBRARY_LACKS | {"NOT_SUPPORTED", *more}
    return Answer(codes=codes, meaning=Meaning.UNSUPPORTED, source=source)


_NO_FEATURE: Final = "NOT_SUPPORTED: if the device does not support this feature"
_NO_QUERY: Final = "NOT_SUPPORTED: if this query is not supported by device; NO_PERMISSION: if the user doesn't have it"
_INVALID_HANDLE: Final = "INVALID_ARGUMENT: if the instance is invalid"

ANSWERS: Final[Mapping[str, Answer]] = MappingProxyType(
    {
        # Cards
        "nvmlDeviceGetHandleByUUID": Answer(
            codes=frozenset({"NOT_FOUND", "GPU_NOT_FOUND"}),
            meaning=Meaning.ABSENT,
            source="NOT_FOUND: if uuid does not match a valid device on the system",
        ),
        "nvmlDeviceGetMemoryInfo": _unsupported("NOT_SUPPORTED: if video memory is unsupported on the device"),
        "nvmlDeviceGetMigMode": _unsupported("NOT_SUPPORTED: if device doesn't support MIG mode"),
        # Profiles
        "nvmlDeviceGetGpuInstanceProfileInfo": _unsupported(
            "NOT_SUPPORTED: if device doesn't have MIG mode enabled or profile isn't supported; INVALID_ARGUMENT: if "
            "profile or info->version are invalid, as for those that are newer than the library",
            "INVALID_ARGUMENT",
        ),
        "nvmlDeviceGetGpuInstancePossiblePlacements": _unsupported(
            "NOT_SUPPORTED: if device doesn't support MIG or profileId isn't supported"
        ),
        "nvmlGpuInstanceGetComputeInstanceProfileInfo": _unsupported(
            "NOT_SUPPORTED: if profile isn't supported; INVALID_ARGUMENT: if profile or info->version are invalid",
            "INVALID_ARGUMENT",
        ),
        # Instances
        "nvmlDeviceCreateGpuInstanceWithPlacement": Answer(
            codes=frozenset({"INSUFFICIENT_RESOURCES"}),
            meaning=Meaning.TAKEN,
            source="INSUFFICIENT_RESOURCES: if the requested GPU instance could not be created",
        ),
        "nvmlGpuInstanceGetInfo": Answer(
            codes=frozenset({"INVALID_ARGUMENT", "NOT_FOUND"}), meaning=Meaning.STALE, source=_INVALID_HANDLE
        ),
        "nvmlComputeInstanceGetInfo": Answer(
            codes=frozenset({"INVALID_ARGUMENT", "NOT_FOUND"}), meaning=Meaning.STALE, source=_INVALID_HANDLE
        ),
        # Processes
        "nvmlDeviceGetComputeRunningProcesses_v3": _unsupported(_NO_QUERY, "NO_PERMISSION"),
        "nvmlDeviceGetGraphicsRunningProcesses_v3": _unsupported(_NO_QUERY, "NO_PERMISSION"),
        # Use
        "nvmlDeviceGetTotalEnergyConsumption": _unsupported(
            "NOT_SUPPORTED: if the device does not support energy readings"
        ),
        "nvmlDeviceGetUtilizationRates": _unsupported(
            "NOT_SUPPORTED: if the device does not support this feature, as with MIG enabled"
        ),
        "nvmlGpmQueryDeviceSupport": _unsupported("a library that is older than the function"),
        "nvmlGpmSampleGet": _unsupported("an error of NVML; NOT_SUPPORTED of a device without GPM"),
        "nvmlGpmMigSampleGet": Answer(
            codes=LIBRARY_LACKS | {"NOT_SUPPORTED", "NOT_FOUND", "INVALID_ARGUMENT"},
            meaning=Meaning.STALE,
            source="an error of NVML; NOT_FOUND or INVALID_ARGUMENT of an instance that is gone, NOT_SUPPORTED of a "
            "device without GPM",
        ),
        "nvmlGpmMetricsGet": Answer(
            codes=LIBRARY_LACKS | {"NOT_SUPPORTED", "INVALID_ARGUMENT"},
            meaning=Meaning.STALE,
            source="an error of NVML; INVALID_ARGUMENT of samples of two instances",
        ),
        # Health and events
        "nvmlDeviceGetRemappedRows": _unsupported(
            "NOT_SUPPORTED: if MIG is enabled or if the device doesn't support this feature"
        ),
        "nvmlDeviceGetCurrentClocksEventReasons": _unsupported(_NO_FEATURE),
        "nvmlDeviceGetFieldValues": _unsupported("the status of each field is beside its value"),
        "nvmlDeviceGetSupportedEventTypes": _unsupported("a library that is older than the function"),
        "nvmlDeviceRegisterEvents": _unsupported(
            "NOT_SUPPORTED: if the platform does not support this feature or some of requested event types"
        ),
        "nvmlEventSetWait_v2": Answer(
            codes=frozenset({"TIMEOUT"}),
            meaning=Meaning.NOTHING_YET,
            source="TIMEOUT: if no event arrived in specified timeout or interrupt arrived",
        ),
    }
)
"""By the function's name in the bindings."""
OTHER_VERSION: Final = "LIB_RM_VERSION_MISMATCH"
"""The kernel driver that is loaded now is not of the library's version."""
DRIVER_IS_AWAY: Final = frozenset({"DRIVER_NOT_LOADED", "UNINITIALIZED", OTHER_VERSION})
"""Of any function: the kernel driver was unloaded or loaded again, so NVML has to be opened again."""
LIBRARY_MISSING: Final = "LIBRARY_NOT_FOUND"
"""Of opening NVML: the linker does not find its library, so no driver is installed."""
CARD_IS_AWAY: Final = DRIVER_IS_AWAY | {"GPU_IS_LOST"}
"""Of any function: the card does not answer, which is no proof of what is on it."""
REFUSED: Final = LIBRARY_LACKS | {"INVALID_ARGUMENT", "NOT_SUPPORTED", "NO_PERMISSION"}
"""Of any function, where they are no answer: the same call will not succeed later either."""
RESET_REQUIRED: Final = "RESET_REQUIRED"
IN_USE: Final = "IN_USE"
"""Of any function: a process, or another instance, uses what the call would change."""
NO_ANSWER: Final[frozenset[str]] = frozenset()


def find_answers(function: str) -> frozenset[str]:
    """Return the error codes that are an answer of this function of the bindings."""
    answer = ANSWERS.get(function)
    return NO_ANSWER if answer is None else answer.codes
