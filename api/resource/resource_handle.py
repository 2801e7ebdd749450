"""``resourceHandles[].data``: the record of an allocation in a claim, until Kubernetes 1.30.

The data is the model's DeviceAllocationResult as versioned JSON: the devices and configuration that later versions have
in ``status.allocation.devices``. It is the only record of an allocation.

``deploy/classic/sharing-policy.yaml`` expects ``maxPods`` as the third field of the JSON.
"""

from typing import Annotated, Final, NamedTuple

import msgspec

from kerf_dra.api.errors import PermanentError
from kerf_dra.api.model.allocations import (
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
)
from kerf_dra.api.model.base import Value
from kerf_dra.api.model.classic import MAX_HANDLE_BYTES
from kerf_dra.api.wire import dec_hook, enc_hook

API_VERSION: Final = "kerf.dev/v1alpha1"
KIND: Final = "AllocatedDevices"


class HandleTooLargeError(PermanentError):
    """An allocation does not fit into a handle."""

    def __init__(self, size: int) -> None:
        super().__init__(
            f"the allocation takes {size} bytes, a resource handle holds {MAX_HANDLE_BYTES}: request fewer devices"
        )


class Handle(NamedTuple):
    """The content of a handle."""

    devices: DeviceAllocationResult
    max_pods: int | None
    """The number of pods that may use the devices at a time; None: the handle has no such field."""


class _Handle(Value, forbid_unknown_fields=True):
    api_version: str
    kind: str
    max_pods: Annotated[int, msgspec.Meta(ge=1)] | None = None
    results: tuple[DeviceRequestAllocationResult, ...]
    config: tuple[DeviceAllocationConfiguration, ...] = ()


class UnreadableHandleError(ValueError):
    """The data of a handle was not written by Kerf, or is damaged."""


_decoder: Final = msgspec.json.Decoder(_Handle, dec_hook=dec_hook)
_encoder: Final = msgspec.json.Encoder(enc_hook=enc_hook)


def encode_handle(devices: DeviceAllocationResult, max_pods: int) -> str:
    """Encode a handle. Raises HandleTooLargeError when it exceeds MAX_HANDLE_BYTES."""
    handle = _Handle(
        api_version=API_VERSION, kind=KIND, max_pods=max_pods, results=devices.results, config=devices.config
    )
    data = _encoder.encode(handle)
    if len(data) > MAX_HANDLE_BYTES:
        raise HandleTooLargeError(len(data))
    return data.decode()


def decode_handle(driver: str, data: str) -> Handle:
    """Decode a handle. Raises UnreadableHandleError when it is not from Kerf, or has devices not of ``driver``."""
    try:
        handle = _decoder.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise UnreadableHandleError(f"it is not JSON of a {KIND}: {error}") from error
    if (handle.api_version, handle.kind) != (API_VERSION, KIND):
        raise UnreadableHandleError(f"it is a {handle.kind} of {handle.api_version}, not a {KIND} of {API_VERSION}")
    if strangers := sorted({result.driver for result in handle.results} - {driver}):
        raise UnreadableHandleError(f"it names devices of {', '.join(strangers)} in a handle of {driver}")
    return Handle(DeviceAllocationResult(results=handle.results, config=handle.config), handle.max_pods)
