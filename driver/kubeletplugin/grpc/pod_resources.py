"""The client of the kubelet's pod-resources service: what the pods on this node use, by its own account."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import anyio
import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from kerf_dra.api.errors import TransientError
from kerf_dra.api.podresources.v1 import LIST, ClaimUse, DeviceUse, PodUses
from kerf_dra.driver.runtime.unary_call import call_unary

TIMEOUT_S: Final = 10.0
"""Limit of one call: the kubelet answers from memory, in milliseconds."""


class PodResourcesError(TransientError):
    """The kubelet does not say which claims are in use."""


class PodResourcesClient:
    """Asks the kubelet at ``socket``, with a connection for each call: there is one every few seconds."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def list_uses(self) -> Sequence[ClaimUse] | None:
        """Return which claims are in use by which pods; None: the plugin has no access to the socket's folder.

        Raises PodResourcesError while the kubelet does not answer, or the folder cannot be looked at.
        """
        uses = await self._list()
        return None if uses is None else uses.claims

    async def list_device_uses(self) -> Sequence[DeviceUse] | None:
        """Return which device IDs of extended resources pods have; None: the plugin has no access to the folder.

        Raises PodResourcesError as ``list_uses`` does.
        """
        uses = await self._list()
        return None if uses is None else uses.devices

    async def _list(self) -> PodUses | None:
        try:
            if not await anyio.Path(self._socket.parent).is_dir():
                return None
        except OSError as error:
            raise PodResourcesError(f"cannot see whether {self._socket.parent} is there: {error.strerror}") from error
        async with grpc.aio.insecure_channel(f"unix:{self._socket}") as channel:
            try:
                return await call_unary(channel, LIST, None, TIMEOUT_S)
            except (grpc.aio.AioRpcError, DecodeError) as error:
                reason = error.details() if isinstance(error, grpc.aio.AioRpcError) else f"unreadable answer: {error}"
                raise PodResourcesError(
                    f"the kubelet does not say at {self._socket} what its pods use: {reason}"
                ) from error
