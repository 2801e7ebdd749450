"""Writes the status of FpgaShells and FpgaImages: they and the slices of their driver are read, nothing else changes.

Their definitions may be missing, as in a cluster without FPGAs: then nothing is written until they are there.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Protocol

from kerf_dra.api.kerf.fpga_objects import FPGA_IMAGES, FPGA_SHELLS
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.api.model.metadata import ObjectT
from kerf_dra.api.wire import Kind, ObjectList, to_builtins
from kerf_dra.driver.controller.device_types import DeviceType, device_types_of
from kerf_dra.driver.controller.fpga_status import FpgaObject, build_status, describe_objects, summarize_slices
from kerf_dra.driver.controller.repeated_writes import write_repeatedly
from kerf_dra.driver.controller.settings import NAME
from kerf_dra.driver.families.fpga.descriptions import Descriptions
from kerf_dra.driver.families.fpga.geometry import fpga_geometry
from kerf_dra.driver.kube.http.client import PatchType
from kerf_dra.driver.kube.http.errors import ForbiddenError, NotFoundError
from kerf_dra.driver.kube.http.write_history import UndoneWriteError

_KINDS: Final[tuple[Kind[Any], ...]] = (FPGA_SHELLS, FPGA_IMAGES)

_log = logging.getLogger(__name__)


class StatusClient(Protocol):
    """The calls of ``kerf_dra.driver.kube.http.client.Client``, with its errors."""

    async def list(self, kind: Kind[ObjectT]) -> ObjectList[ObjectT]: ...

    async def patch(
        self,
        kind: Kind[ObjectT],
        name: str,
        patch: JsonObject,
        *,
        type: PatchType,  # noqa: A002  (the client's name)
        subresource: str = "",
        field_manager: str = "",
    ) -> ObjectT: ...


class FpgaStatusWriter:
    """Compares the status of all objects with what it should be, again and again: there are few, and few changes."""

    def __init__(
        self,
        client: StatusClient,
        slices: Callable[[], Iterable[ResourceSlice]],
        *,
        interval_s: float,
        now: Callable[[], datetime],
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """``slices`` returns the cached slices of the FPGA driver; ``on_change`` is called when ``device_types`` are
        others.
        """
        self._on_change = on_change
        self.device_types: frozenset[DeviceType] = frozenset()
        """The types of the devices that described cards can have, whether or not a node publishes them."""
        self._client = client
        self._slices = slices
        self._interval_s = interval_s
        self._now = now

    async def run(self) -> None:
        """Run until cancelled."""
        what = "the status of FpgaShells and FpgaImages"
        await write_repeatedly(self.write, what=what, interval_s=self._interval_s)

    async def write(self) -> None:
        """Write the status of each object that differs from what it should be. Raises ApiError."""
        objects: list[tuple[Kind[Any], FpgaObject]] = []
        for kind in _KINDS:
            try:
                listed: ObjectList[Any] = await self._client.list(kind)
                objects += [(kind, held) for held in listed.items]
            except (NotFoundError, ForbiddenError):
                return
        descriptions = describe_objects(held for _, held in objects)
        self._note_device_types(descriptions)
        if not objects:
            return
        published = summarize_slices(self._slices())
        for kind, held in objects:
            status = build_status(held, descriptions, published, now=self._now())
            if status != held.status and not held.is_terminating:
                await self._write(kind, held, to_builtins(status))

    def _note_device_types(self, descriptions: Descriptions) -> None:
        types = frozenset(one for shell in descriptions.cards for one in device_types_of(fpga_geometry(shell)))
        if types != self.device_types:
            self.device_types = types
            self._on_change()

    async def _write(self, kind: Kind[Any], held: FpgaObject, status: Mapping[str, Any]) -> None:
        metadata = {"uid": held.metadata.uid}
        try:
            await self._client.patch(
                kind,
                held.metadata.name,
                {"metadata": metadata, "status": {"nodes": None, **status}},
                type=PatchType.MERGE,
                subresource="status",
                field_manager=NAME,
            )
        except (NotFoundError, UndoneWriteError):
            return  # deleted meanwhile, or another program writes it: the others go on
