"""What a card and its devices are used for now, in a few calls of NVML: six for the card, four for each instance.

Beside them, what is asked once for each device: its handle, whether it has GPM, room for samples. What a card without
GPM does in its instances it cannot say. Of a device that several claims share, and that a process uses, it is not known
here which of them does.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kerf_dra.api.errors import KerfError
from kerf_dra.driver.kubeletplugin.backends.base import CardAbsentError, CardSample, DeviceSample
from kerf_dra.driver.kubeletplugin.backends.nvidia.handles import NvidiaHandle
from kerf_dra.driver.kubeletplugin.backends.nvidia.nvml.library import NvmlLibrary


def sample_card(
    library: NvmlLibrary, card_uuid: str, handles: Sequence[NvidiaHandle], now: float, *, sees_processes: bool
) -> CardSample:
    """Return what a card and the devices of ``handles`` are used for; ``now`` is monotonic time in seconds.

    Without ``sees_processes`` NVML may leave out those of other PID namespaces: that it lists none says nothing then.

    Raises CardAbsentError when the card does not answer, and HardwareBusyError when it cannot be read.
    """
    energy_mj = library.read_energy(card_uuid)
    shares = Counter(handle.uuid for handle in handles)
    library.keep_samples(card_uuid, shares.keys())
    processes = library.count_processes(card_uuid) if handles else None
    devices = {handle.uuid: handle for handle in handles}
    samples = {uuid: _sample_device(library, handle, processes, now) for uuid, handle in devices.items()}
    if not sees_processes:
        samples = {uuid: replace(one, processes=one.processes or None) for uuid, one in samples.items()}
    return CardSample(
        energy_mj=energy_mj,
        devices=tuple(
            samples[handle.uuid] if shares[handle.uuid] == 1 else _find_share(samples[handle.uuid])
            for handle in handles
        ),
    )


def _sample_device(
    library: NvmlLibrary, handle: NvidiaHandle, processes: Mapping[int | None, int] | None, now: float
) -> DeviceSample:
    try:
        if handle.instance is None:
            count = None if processes is None else sum(processes.values())
            memory_bytes = library.read_used_memory(handle.card)
            busy = _measure_card(library, handle.card, now)
        else:
            count = None if processes is None else processes.get(handle.instance, 0)
            memory_bytes = library.read_used_memory(handle.card, handle.uuid)
            busy = _measure_instance(library, handle, handle.instance, now)
    except CardAbsentError:
        raise
    except KerfError:  # the device is gone, or fails: the others are there all the same
        return DeviceSample()
    return DeviceSample(memory_bytes=memory_bytes, processes=count, busy=busy)


def _measure_card(library: NvmlLibrary, card_uuid: str, now: float) -> float | None:
    if library.has_gpm(card_uuid):
        return library.measure_activity(card_uuid, card_uuid, None, now)
    return library.read_utilization(card_uuid)


def _measure_instance(library: NvmlLibrary, handle: NvidiaHandle, instance: int, now: float) -> float | None:
    if not library.has_gpm(handle.card):
        return None
    return library.measure_activity(handle.card, handle.uuid, instance, now)


def _find_share(device: DeviceSample) -> DeviceSample:
    """Return what one share of a device is used for: only if nothing uses the device, that is known."""
    return DeviceSample(processes=0) if device.processes == 0 else DeviceSample()
