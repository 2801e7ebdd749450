"""The codec of handles: a backend's own struct as the plain JSON that the checkpoint keeps.

A struct has a tag, so that no backend takes another's handle for its own. A field that is added later needs a default,
so that newer versions read the records of older ones.
"""

from typing import Generic, TypeVar, Union

import msgspec

from kerf_dra.api.wire import to_builtins
from kerf_dra.driver.kubeletplugin.backends.base import Handle, HardwareRefusedError

HandleT = TypeVar("HandleT", bound=msgspec.Struct)


class CardHandle(msgspec.Struct, frozen=True, kw_only=True):
    """What the handles of cards begin with."""

    card: str
    """UUID of the card."""
    device: str
    """Name of the published device."""


class HandleCodec(Generic[HandleT]):
    """Encodes and decodes the handles of one backend, which are of one type or of several with tags of their own."""

    def __init__(self, *types: type[HandleT], owner: str) -> None:
        """``owner`` is the backend as errors name it, such as ``the backend dfl``."""
        self._type: object = Union[types]  # noqa: UP007  (the types are known at run time only)
        self._owner = owner

    def encode(self, handle: HandleT) -> Handle:
        """Return the handle as plain JSON: every field, in the order of the struct."""
        plain: Handle = to_builtins(handle)
        return plain

    def decode(self, handle: Handle) -> HandleT:
        """Read a handle. Raises HardwareRefusedError when another backend or a later version has written it."""
        try:
            decoded: HandleT = msgspec.convert(handle, type=self._type)
        except msgspec.ValidationError as error:
            raise HardwareRefusedError(f"this is not a handle of {self._owner}: {error}") from error
        return decoded
