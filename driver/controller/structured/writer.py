"""Carries plans out: one API call for each."""

import logging
from typing import Final, Protocol

from api.errors import PermanentError, TransientError
from api.kerf.v1alpha1 import RESOURCE_CLASSES, ResourceClassObject, ResourceClassStatus
from api.model.base import JsonObject
from api.model.claims import DeviceClass
from api.model.metadata import ObjectT
from api.wire import Kind, to_builtins
from driver.controller.structured.plan import Change, Create, InPlace, Obstacle, Step, dropped_fields, owners_after
from driver.kube.http.client import PatchType
from driver.kube.http.errors import AlreadyExistsError, NotFoundError

FIELD_MANAGER: Final = "kerf-controller"

_log = logging.getLogger(__name__)


class Writing(Protocol):
    """What this needs of ``driver.kube.http.client.Client``, with its errors."""

    async def create(self, kind: Kind[ObjectT], value: ObjectT, *, field_manager: str = "") -> ObjectT: ...

    async def patch(
        self,
        kind: Kind[ObjectT],
        name: str,
        patch: JsonObject,
        *,
        type: PatchType,  # noqa: A002  (the client's name)
        field_manager: str = "",
    ) -> ObjectT: ...

    async def apply(
        self, kind: Kind[ObjectT], value: JsonObject, *, field_manager: str, subresource: str = ""
    ) -> ObjectT: ...


class OutdatedError(TransientError):
    """The cache showed a state that is gone: decide again when it has caught up."""


async def carry_out(
    step: Step, client: Writing, device_classes: Kind[DeviceClass]
) -> tuple[InPlace | Obstacle, DeviceClass | None]:
    """Do what ``step`` says; returns what came of it and, after a write, the server's answer.

    Raises TransientError when the step should be decided again later: the server cannot be reached, or its state is not
    what the step was decided on. What the server refuses for good is an Obstacle.
    """
    if not isinstance(step, Create | Change):
        return step, None
    try:
        answer = await _write(step, client, device_classes)
    except (AlreadyExistsError, NotFoundError) as error:
        raise OutdatedError(str(error)) from error
    except PermanentError as error:
        return Obstacle(reason="WriteRefused", message=str(error)), None
    return InPlace(dropped=dropped_fields(step.desired, answer)), answer


async def write_status(
    client: Writing, resource_class: ResourceClassObject, status: ResourceClassStatus
) -> ResourceClassObject:
    """Server-side apply of the status: fields that it no longer has go, those of others stay.

    The resource version makes sure that it is said of the very state that was looked at. (A UID would not: the API
    server does not compare it when a status is written.)
    """
    metadata = {
        "name": resource_class.metadata.name,
        "resourceVersion": resource_class.metadata.resource_version,
    }
    return await client.apply(
        RESOURCE_CLASSES,
        {"metadata": metadata, "status": to_builtins(status)},
        field_manager=FIELD_MANAGER,
        subresource="status",
    )


async def _write(step: Create | Change, client: Writing, device_classes: Kind[DeviceClass]) -> DeviceClass:
    name = step.desired.metadata.name
    if isinstance(step, Create):  # never an apply, which would take over a class that somebody else just made
        answer = await client.create(device_classes, step.desired, field_manager=FIELD_MANAGER)
        _log.info("DeviceClass %s: created", name)
        return answer
    patch = _merge_patch(step.current, step.desired, device_classes)
    answer = await client.patch(device_classes, name, patch, type=PatchType.MERGE, field_manager=FIELD_MANAGER)
    _log.info("DeviceClass %s: brought back to what its ResourceClass says", name)
    return answer


def _merge_patch(current: DeviceClass, desired: DeviceClass, kind: Kind[DeviceClass]) -> JsonObject:
    """Sets what is ours and removes what it no longer has, on exactly the state that was looked at."""
    wanted, there = kind.encode(desired)["spec"], kind.encode(current).get("spec", {})
    return {
        "metadata": {
            "resourceVersion": current.metadata.resource_version,
            "labels": desired.metadata.labels,
            "ownerReferences": to_builtins(owners_after(current, desired)),
        },
        "spec": {**dict.fromkeys(there), **wanted},
    }
