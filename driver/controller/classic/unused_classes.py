"""Says of ``kerf.dev`` ResourceClasses that they have no effect where drivers allocate (Kubernetes 1.27 to 1.31).

There a class is one of ``resource.k8s.io`` with GpuClassParameters or FpgaClassParameters. Nor can a class's extended
resource be offered: claims are allocated from NodeInventories, which list whole cards, and keep nothing apart for it.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, Protocol

from kerf_dra.api.kerf.v1alpha1 import DEVICE_PLUGIN, RESOURCE_CLASSES, ResourceClassObject, ResourceClassStatus
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.metadata import Condition, ObjectT
from kerf_dra.api.wire import Kind, ObjectList, to_builtins
from kerf_dra.driver.controller.repeated_writes import write_repeatedly
from kerf_dra.driver.controller.settings import NAME
from kerf_dra.driver.kube.http.errors import ForbiddenError, NotFoundError
from kerf_dra.driver.kube.http.write_history import UndoneWriteError

REASON: Final = "ClassicDRA"
"""The reason of the conditions."""
_UNUSED: Final = (
    "drivers allocate in this cluster (classic DRA, Kubernetes 1.27 to 1.31): a class is one of resource.k8s.io with "
    "GpuClassParameters or FpgaClassParameters (docs/classic.md); this one has an effect from Kubernetes 1.32 on"
)
_NOT_OFFERED: Final = (
    "no node offers the extended resource: before Kubernetes 1.32 Kerf's controller allocates from whole cards, "
    "and can reserve no part of a card; have pods name claims instead"
)

_log = logging.getLogger(__name__)


class ClassClient(Protocol):
    """The calls of ``kerf_dra.driver.kube.http.client.Client``, with its errors."""

    async def list(self, kind: Kind[ObjectT]) -> ObjectList[ObjectT]: ...

    async def apply(
        self, kind: Kind[ObjectT], value: JsonObject, *, field_manager: str, subresource: str = ""
    ) -> ObjectT: ...


class UnusedClassReporter:
    """Writes the status of all ResourceClasses again and again, where it differs: there are few, and few change."""

    def __init__(self, client: ClassClient, *, interval_s: float, now: Callable[[], datetime]) -> None:
        self._client = client
        self._interval_s = interval_s
        self._now = now

    async def run(self) -> None:
        """Run until cancelled."""
        await write_repeatedly(self._write, what="the status of ResourceClasses", interval_s=self._interval_s)

    async def _write(self) -> None:
        for held in await self._list():
            await self._report(held)

    async def _list(self) -> Sequence[ResourceClassObject]:
        try:
            return (await self._client.list(RESOURCE_CLASSES)).items
        except (NotFoundError, ForbiddenError):
            return ()  # the definition is not installed, as it need not be here

    async def _report(self, held: ResourceClassObject) -> None:
        status = build_status(held, now=self._now())
        if status == held.status or held.is_terminating:
            return
        metadata = {"name": held.metadata.name, "resourceVersion": held.metadata.resource_version}
        value = {"metadata": metadata, "status": to_builtins(status)}
        with suppress(UndoneWriteError):  # another program writes this one: the others go on
            await self._client.apply(RESOURCE_CLASSES, value, field_manager=NAME, subresource="status")


def build_status(held: ResourceClassObject, *, now: datetime) -> ResourceClassStatus:
    """Return the status that a class should have; conditions that were there keep their transition times."""
    messages = {"Accepted": _UNUSED}
    if held.spec.get("devicePlugin"):
        messages[DEVICE_PLUGIN] = _NOT_OFFERED
    since = {each.type: each.last_transition_time for each in held.status.conditions if each.reason == REASON}
    stamp = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return ResourceClassStatus(
        observed_generation=held.metadata.generation,
        conditions=tuple(
            Condition(
                type=type_,
                status="False",
                reason=REASON,
                message=message,
                last_transition_time=since.get(type_) or stamp,
                observed_generation=held.metadata.generation,
            )
            for type_, message in messages.items()
        ),
    )
