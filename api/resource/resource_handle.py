"""``resourceHandles[].data``: how Kerf writes down in a claim what it was given, until Kubernetes 1.30.

The data is the model's own DeviceAllocationResult as versioned JSON: the kubelet plugin finds in it the very devices
and configuration that newer versions have in ``status.allocation.devices``. It is the only record of an allocation.

``deploy/classic/sharing-policy.yaml`` reads ``maxPods`` where it stands in the text: third, as it is written here.
"""

from typing import Annotated, Final, NamedTuple

import msgspec

from api.errors import PermanentError
from api.model.allocations import (
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
)
from api.model.base import Value
from api.model.classic import MAX_HANDLE_BYTES
from api.wire import dec_hook, enc_hook

API_VERSION: Final = "kerf.dev/v1alpha1"
KIND: Final = "AllocatedDevices"


class HandleTooLargeError(PermanentError):
    """An allocation does not fit into a handle."""

    def __init__(self, size: int) -> None:
        super().__init__(
            f"the allocation takes {size} bytes, a resource handle holds {MAX_HANDLE_BYTES}: ask for fewer devices"
        )


class Handle(NamedTuple):
    """What a handle of Kerf says."""

    devices: DeviceAllocationResult
    max_pods: int | None
    """How many pods may use them at a time; None: it does not say."""


class _Handle(Value, forbid_unknown_fields=True):
    api_version: str
    kind: str
    max_pods: Annotated[int, msgspec.Meta(ge=1)] | None = None
    results: tuple[DeviceRequestAllocationResult, ...]
    config: tuple[DeviceAllocationConfiguration, ...] = ()


class UnreadableHandleError(ValueError):
    """The data is none that Kerf has written, or not whole."""


_decoder: Final = msgspec.json.Decoder(_Handle, dec_hook=dec_hook)
_encoder: Final = msgspec.json.Encoder(enc_hook=enc_hook)


def encode_handle(devices: DeviceAllocationResult, max_pods: int) -> str:
    """Raises HandleTooLargeError."""
    handle = _Handle(
        api_version=API_VERSION, kind=KIND, max_pods=max_pods, results=devices.results, config=devices.config
    )
    data = _encoder.encode(handle)
    if len(data) > MAX_HANDLE_BYTES:
        raise HandleTooLargeError(len(data))
    return data.decode()


def decode_handle(driver: str, data: str) -> Handle:
    """What the handle of ``driver`` says. Raises UnreadableHandleError."""
    try:
        handle = _decoder.decode(data)
    except (msgspec.DecodeError, ValueError) as error:
        raise UnreadableHandleError(f"it is not JSON of a {KIND}: {error}") from error
    if (handle.api_version, handle.kind) != (API_VERSION, KIND):
        raise UnreadableHandleError(f"it is a {handle.kind} of {handle.api_version}, not a {KIND} of {API_VERSION}")
    if strangers := sorted({result.driver for result in handle.results} - {driver}):
        raise UnreadableHandleError(f"it names devices of {', '.join(strangers)} in a handle of {driver}")
    return Handle(DeviceAllocationResult(results=handle.results, config=handle.config), handle.max_pods)
