"""Checks that a sample of a card does not contradict itself: totals that only grow are made of it."""

from collections.abc import Sequence
from math import isfinite

from kerf_dra.api.errors import TransientError
from kerf_dra.driver.kubeletplugin.backends.base import CardSample, DeviceSample, Handle, SampledBackend


class ContradictorySampleError(TransientError):
    """A backend's sample of a card contradicts itself; nothing is taken from it."""

    def __init__(self, card_uuid: str, reason: str) -> None:
        super().__init__(f"the sample of card {card_uuid} cannot be true: {reason}; compare with the vendor's tool")


def sample_card(backend: SampledBackend, card_uuid: str, handles: Sequence[Handle]) -> CardSample:
    """Have ``backend`` sample the card with the devices of ``handles``.

    Raises ContradictorySampleError, and whatever the backend raises.
    """
    sample = backend.sample(card_uuid, handles)
    if reason := _find_contradiction(sample, len(handles)):
        raise ContradictorySampleError(card_uuid, reason)
    return sample


def _find_contradiction(sample: CardSample, devices: int) -> str:
    if len(sample.devices) != devices:
        return f"it has {len(sample.devices)} devices of {devices}"
    if (sample.energy_mj or 0) < 0:
        return f"its energy is {sample.energy_mj} mJ"
    return next(filter(None, map(_find_fault, sample.devices)), "")


def _find_fault(device: DeviceSample) -> str:
    if (device.memory_bytes or 0) < 0 or (device.processes or 0) < 0:
        return f"a device has {device.memory_bytes} bytes in use by {device.processes} processes"
    if device.busy is not None and not (isfinite(device.busy) and 0 <= device.busy <= 1):
        return f"a device has computed {device.busy} of the time"
    return ""
