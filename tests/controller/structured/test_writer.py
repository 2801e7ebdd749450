"""What the answers to a write of a DeviceClass mean: planned on an old state, refused, or to be tried again."""

from typing import Any, cast

import anyio
import pytest

from kerf_dra.api.model.claims import DeviceClass, DeviceClassSpec
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.driver.controller.structured.plan import NotInPlace, WriteDeviceClass
from kerf_dra.driver.controller.structured.writer import OutdatedError, WriteClient, execute_action
from kerf_dra.driver.kube.http.errors import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
)

CLASS = DeviceClass(metadata=ObjectMeta(name="small", resource_version="1"), spec=DeviceClassSpec())


class FailingClient:
    """A client whose writes all have one answer."""

    def __init__(self, error: ApiError) -> None:
        self._error = error

    async def create(self, *_: Any, **__: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        raise self._error

    patch = create


def failing(error: ApiError) -> WriteClient:
    return cast("WriteClient", FailingClient(error))


@pytest.mark.parametrize("current", [None, CLASS], ids=["create", "update"])
@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (AlreadyExistsError("POST", 409, "AlreadyExists", "it was created"), OutdatedError),
        (NotFoundError("PATCH", 404, "NotFound", "it was deleted"), OutdatedError),
        (ConflictError("PATCH", 409, "Conflict", "it was changed"), ConflictError),
    ],
    ids=["created in between", "deleted in between", "changed in between"],
)
async def test_a_write_that_was_planned_on_an_old_state_is_planned_again(
    error: ApiError, raised: type[Exception], current: DeviceClass | None
) -> None:
    with pytest.raises(raised, match="it was"):
        await execute_action(WriteDeviceClass(desired=CLASS, current=current), failing(error), KINDS.device_classes)


@pytest.mark.parametrize(
    "error", [ForbiddenError("POST", 403, "Forbidden", "a policy"), InvalidError("POST", 422, "Invalid", "a policy")]
)
async def test_a_write_that_is_refused_is_said_and_not_tried_again(error: ApiError) -> None:
    action = WriteDeviceClass(desired=CLASS, current=None)
    state, answer = await execute_action(action, failing(error), KINDS.device_classes)
    assert isinstance(state, NotInPlace)
    assert (state.reason, answer) == ("WriteRefused", None)
    assert "a policy" in state.message
