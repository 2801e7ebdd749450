"""NVML's queries of what cards and their instances are used for: energy, memory, processes, activity.

Activity is measured by GPM, from Hopper on, as the difference of two samples of a card or a GPU instance. Of each
device the sample before is kept, so that a measurement takes one new sample. Samples that were taken less than a tenth
of a second apart give 0 without an error (seen of an H100 and an H200), and so do not count.
"""

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kerf_dra.api.errors import KerfError
from kerf_dra.driver.kubeletplugin.backends.base import CardAbsentError, HardwareBusyError
from kerf_dra.driver.kubeletplugin.backends.nvidia.nvml.session import NvmlSession

_NO_INSTANCE: Final = 0xFFFFFFFF
"""The id of a GPU instance that NVML gives for what is outside of all."""
_REFRESH_S: Final = 0.1
"""Seconds between two samples of GPM below which they give nothing."""
_PERCENT: Final = 100.0


class MigDeviceGoneError(HardwareBusyError):
    """NVML does not know a MIG device, which was destroyed or is not complete yet."""

    def __init__(self, mig_uuid: str) -> None:
        super().__init__(f"MIG device {mig_uuid} is not there")


@dataclass(slots=True)
class _GpmSamples:
    """The samples of one device, of which NVML has the memory."""

    generation: int
    """NVML's opening that they belong to."""
    older: Any
    newer: Any
    """The latest sample, and the one that is taken next in place of the one before."""
    taken_at: float | None = None
    """When ``newer`` was taken, in seconds; None: it was not."""


class UsageSession(NvmlSession):
    """The queries of use; cards are named by UUID, and each of them is queried in one thread at a time."""

    def __init__(self, driver_root: Path) -> None:
        """``driver_root`` has the driver's files: ``/``, or where a driver container has mounted them."""
        super().__init__(driver_root)
        self._samples: dict[tuple[str, str], _GpmSamples] = {}
        """By the UUIDs of the card and of the device."""
        self._mig_handles: dict[tuple[str, str], tuple[int, Any]] = {}
        """The handles of MIG devices by the same, with NVML's opening that they belong to."""
        self._gpm_support: dict[str, tuple[int, bool]] = {}
        """Whether each card has GPM, with NVML's opening in which that was asked."""

    @abstractmethod
    def _handle(self, card_uuid: str) -> Any:  # noqa: ANN401  (NVML's handles are opaque)
        """Return a card's handle. Raises CardAbsentError when the card is not there."""

    def read_energy(self, card_uuid: str) -> int | None:
        """Return the millijoules that a card has used since its driver was loaded; None: it does not count them."""
        energy = self._call("nvmlDeviceGetTotalEnergyConsumption", self._handle(card_uuid))
        return None if energy is None else int(energy)

    def count_processes(self, card_uuid: str) -> Mapping[int | None, int] | None:
        """Return how many processes compute in each GPU instance, and outside of all under None; None: not reported."""
        computing = self._call("nvmlDeviceGetComputeRunningProcesses_v3", self._handle(card_uuid))
        if computing is None:
            return None
        places = {(process.pid, process.gpuInstanceId) for process in computing}
        return Counter(None if place in (None, _NO_INSTANCE) else place for _, place in places)

    def read_used_memory(self, card_uuid: str, mig_uuid: str = "") -> int | None:
        """Return the bytes in use on a card, or on one of its MIG devices; None: not reported.

        Raises KerfError when the MIG device is gone.
        """
        if not mig_uuid:
            memory = self._call("nvmlDeviceGetMemoryInfo", self._handle(card_uuid))
        else:
            memory = self._read_mig_memory(card_uuid, mig_uuid)
        return None if memory is None else int(memory.used)

    def _read_mig_memory(self, card_uuid: str, mig_uuid: str) -> Any:  # noqa: ANN401
        """Return NVML's structure of a MIG device's memory, of one that was made again under the UUID as well."""
        is_known = (card_uuid, mig_uuid) in self._mig_handles
        try:
            return self._call("nvmlDeviceGetMemoryInfo", self._find_mig_handle(card_uuid, mig_uuid))
        except CardAbsentError:
            raise
        except KerfError:
            self._forget(card_uuid, mig_uuid)
            if not is_known:
                raise
        return self._call("nvmlDeviceGetMemoryInfo", self._find_mig_handle(card_uuid, mig_uuid))

    def read_utilization(self, card_uuid: str) -> float | None:
        """Return the part of the latest second in which a card outside MIG mode computed; None: not reported."""
        rates = self._call("nvmlDeviceGetUtilizationRates", self._handle(card_uuid))
        return None if rates is None else min(1.0, rates.gpu / _PERCENT)

    def has_gpm(self, card_uuid: str) -> bool:
        """Whether the card's activity can be measured; asked once while NVML is open."""
        known = self._gpm_support.get(card_uuid)
        if known is None or known[0] != self.generation:
            support = self._call("nvmlGpmQueryDeviceSupport", self._handle(card_uuid))
            known = self.generation, support is not None and bool(support.isSupportedDevice)
            self._gpm_support[card_uuid] = known
        return known[1]

    def measure_activity(self, card_uuid: str, device_uuid: str, instance: int | None, now: float) -> float | None:
        """Return the part of the time since the call before in which a card, or a GPU instance, computed.

        ``device_uuid`` names the device, ``now`` is monotonic time in seconds. None: there is no call before, it was a
        moment ago, or the device is another one since.
        """
        samples = self._find_samples(card_uuid, device_uuid)
        if samples.taken_at is not None and now - samples.taken_at < _REFRESH_S:
            return None
        handle = self._handle(card_uuid)
        if instance is None:
            taken = self._call("nvmlGpmSampleGet", handle, samples.older)
        else:
            taken = self._call("nvmlGpmMigSampleGet", handle, instance, samples.older)
        if taken is None:
            samples.taken_at = None
            return None
        samples.older, samples.newer = samples.newer, samples.older
        was_taken, samples.taken_at = samples.taken_at is not None, now
        return self._compare(samples) if was_taken else None

    def keep_samples(self, card_uuid: str, device_uuids: Collection[str]) -> None:
        """Give up what is kept of all other devices of a card."""
        known = {uuid for card, uuid in (*self._samples, *self._mig_handles) if card == card_uuid}
        for device_uuid in known.difference(device_uuids):
            self._forget(card_uuid, device_uuid)

    def _compare(self, samples: _GpmSamples) -> float | None:
        nvml = self._bindings()
        asked = nvml.c_nvmlGpmMetricsGet_t(
            version=nvml.NVML_GPM_METRICS_GET_VERSION, numMetrics=1, sample1=samples.older, sample2=samples.newer
        )
        asked.metrics[0].metricId = nvml.NVML_GPM_METRIC_GRAPHICS_UTIL
        if self._call("nvmlGpmMetricsGet", asked) is None:
            return None
        metric = asked.metrics[0]
        if metric.nvmlReturn != nvml.NVML_SUCCESS or not math.isfinite(metric.value):
            return None
        return float(min(1.0, max(0.0, metric.value / _PERCENT)))

    def _find_samples(self, card_uuid: str, device_uuid: str) -> _GpmSamples:
        key = card_uuid, device_uuid
        samples = self._samples.get(key)
        if samples is None or samples.generation != self.generation:
            older, newer = (self._call("nvmlGpmSampleAlloc") for _ in range(2))
            samples = self._samples[key] = _GpmSamples(self.generation, older, newer)
        return samples

    def _forget(self, card_uuid: str, device_uuid: str) -> None:
        self._mig_handles.pop((card_uuid, device_uuid), None)
        samples = self._samples.pop((card_uuid, device_uuid), None)
        if samples is not None and samples.generation == self.generation:
            for sample in (samples.older, samples.newer):
                with suppress(KerfError):
                    self._call("nvmlGpmSampleFree", sample)

    def _find_mig_handle(self, card_uuid: str, mig_uuid: str) -> Any:  # noqa: ANN401
        known = self._mig_handles.get((card_uuid, mig_uuid))
        if known is None or known[0] != self.generation:
            handle = self._call("nvmlDeviceGetHandleByUUID", mig_uuid.encode())
            if handle is None:
                raise MigDeviceGoneError(mig_uuid)
            known = self._mig_handles[card_uuid, mig_uuid] = self.generation, handle
        return known[1]
