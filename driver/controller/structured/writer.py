"""Writes DeviceClasses and the status of ResourceClasses: one API call for each action."""

import logging
from typing import Final, Protocol

from kerf_dra.api.errors import PermanentError, TransientError
from kerf_dra.api.kerf.v1alpha1 import RESOURCE_CLASSES, ResourceClassObject, ResourceClassStatus
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.claims import DeviceClass
from kerf_dra.api.model.metadata import ObjectT
from kerf_dra.api.wire import Kind, to_builtins
from kerf_dra.driver.controller.settings import NAME
from kerf_dra.driver.controller.structured.class_compiler import OWN_LABELS
from kerf_dra.driver.controller.structured.plan import (
    Action,
    NotInPlace,
    UpToDate,
    WriteDeviceClass,
    dropped_fields,
    owners_after,
)
from kerf_dra.driver.kube.http.client import PatchType
from kerf_dra.driver.kube.http.errors import AlreadyExistsError, NotFoundError

_log: Final = logging.getLogger(__name__)


class WriteClient(Protocol):
    """The writes of ``kerf_dra.driver.kube.http.client.Client``, with its errors."""

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
    """The action was planned on an outdated state: plan again once the cache is up to date."""


async def execute_action(
    action: Action, client: WriteClient, device_classes: Kind[DeviceClass]
) -> tuple[UpToDate | NotInPlace, DeviceClass | None]:
    """Execute ``action``; return the state of the DeviceClass and, after a write, the server's answer.

    A write that the server rejects permanently is NotInPlace. Raises OutdatedError when the DeviceClass was created or
    deleted in between, and the client's TransientErrors when the server cannot be reached or the object was changed.
    """
    if not isinstance(action, WriteDeviceClass):
        return action, None
    try:
        answer = await _write(action.desired, action.current, client, device_classes)
    except (AlreadyExistsError, NotFoundError) as error:
        raise OutdatedError(str(error)) from error
    except PermanentError as error:
        return NotInPlace(reason="WriteRefused", message=str(error)), None
    return UpToDate(dropped=dropped_fields(action.desired, answer)), answer


async def write_status(
    client: WriteClient, resource_class: ResourceClassObject, status: ResourceClassStatus
) -> ResourceClassObject:
    """Apply the status server-side: fields of ours that ``status`` lacks are removed, those of others stay.

    The resource version makes the write fail if the class has changed since. (A UID would not: the API server does not
    compare it when a status is written.)
    """
    metadata = {"name": resource_class.metadata.name, "resourceVersion": resource_class.metadata.resource_version}
    value = {"metadata": metadata, "status": to_builtins(status)}
    return await client.apply(RESOURCE_CLASSES, value, field_manager=NAME, subresource="status")


async def _write(
    desired: DeviceClass, current: DeviceClass | None, client: WriteClient, kind: Kind[DeviceClass]
) -> DeviceClass:
    name = desired.metadata.name
    if current is None:  # never an apply, which would take over a DeviceClass that another client has just created
        answer = await client.create(kind, desired, field_manager=NAME)
        _log.info("DeviceClass %s: created", name)
        return answer
    patch = _merge_patch(current, desired, kind)
    answer = await client.patch(kind, name, patch, type=PatchType.MERGE, field_manager=NAME)
    _log.info("DeviceClass %s: updated to match its ResourceClass", name)
    return answer


def _merge_patch(current: DeviceClass, desired: DeviceClass, kind: Kind[DeviceClass]) -> JsonObject:
    """Set our fields and remove those that are no longer desired, on condition that ``current`` is unchanged."""
    wanted, there = kind.encode(desired)["spec"], kind.encode(current).get("spec", {})
    return {
        "metadata": {
            "resourceVersion": current.metadata.resource_version,
            "labels": {**dict.fromkeys(OWN_LABELS), **desired.metadata.labels},
            "ownerReferences": to_builtins(owners_after(current, desired)),
        },
        "spec": {**dict.fromkeys(there), **wanted},
    }
