"""What ResourceClasses of ``kerf.dev`` say where drivers allocate: they have no effect, nor have their resources."""

from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import msgspec
import pytest

from kerf_dra.api.kerf.v1alpha1 import RESOURCE_CLASSES, ResourceClassObject
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.wire import ListMeta, ObjectList
from kerf_dra.driver.controller.classic.unused_classes import UnusedClassReporter, build_status
from kerf_dra.driver.kube.http.errors import UnreachableError
from kerf_dra.driver.kube.http.write_history import UndoneWriteError
from tests.controller.classic.cluster import ClassicCluster, eventually
from tests.runtime.virtual_time import VIRTUAL_TIME

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
OFFER: JsonObject = {"device": "gpu", "devicePlugin": {"resource": "kerf.dev/small", "perNode": 1}}


async def test_a_class_that_offers_a_resource_is_told_that_no_node_does_and_why(cluster: ClassicCluster) -> None:
    await cluster.admin.apply(RESOURCE_CLASSES, {"metadata": {"name": "small"}, "spec": OFFER}, field_manager="admin")
    found: dict[str, tuple[str, str, str]] = {}

    async def is_told() -> bool:
        held = await cluster.admin.get(RESOURCE_CLASSES, "small")
        found.update({each.type: (each.status, each.reason, each.message) for each in held.status.conditions})
        return len(found) == 2

    await eventually(is_told)
    assert {type_: said[:2] for type_, said in found.items()} == {
        "Accepted": ("False", "ClassicDRA"),
        "DevicePlugin": ("False", "ClassicDRA"),
    }
    assert "has an effect from Kubernetes 1.32 on" in found["Accepted"][2]
    assert "have pods name claims instead" in found["DevicePlugin"][2]


def test_a_status_that_is_right_is_not_written_again_and_a_class_without_a_resource_has_one_condition() -> None:
    held = ResourceClassObject(metadata=ObjectMeta(name="small", generation=3), spec=OFFER)
    first = build_status(held, now=NOON)
    known = ResourceClassObject(metadata=held.metadata, spec=OFFER, status=first)
    assert build_status(known, now=NOON + timedelta(hours=1)) == first
    bare = ResourceClassObject(metadata=held.metadata, spec={"device": "gpu"})
    assert [each.type for each in build_status(bare, now=NOON).conditions] == ["Accepted"]


class Classes:
    """An API server with one class, which cannot be reached at first."""

    def __init__(self) -> None:
        self.held = ResourceClassObject(metadata=ObjectMeta(name="small", generation=1), spec=OFFER)
        self.lists = 0
        self.writes: list[JsonObject] = []

    async def list(self, kind: Any) -> ObjectList[Any]:
        assert kind is RESOURCE_CLASSES
        self.lists += 1
        if self.lists == 1:
            raise UnreachableError("GET", "it starts")
        return ObjectList(metadata=ListMeta(), items=(self.held,))

    async def apply(self, kind: Any, value: JsonObject, *, field_manager: str, subresource: str = "") -> Any:
        assert (kind, field_manager, subresource) == (RESOURCE_CLASSES, "kerf-controller", "status")
        self.writes.append(value)
        self.held = RESOURCE_CLASSES.decode(
            msgspec.json.encode({**RESOURCE_CLASSES.encode(self.held), "status": value["status"]})
        )
        return self.held


@pytest.mark.parametrize("anyio_backend", [VIRTUAL_TIME], ids=["virtual time"])
async def test_classes_are_looked_at_once_an_interval_also_after_a_failure_and_written_once() -> None:
    classes = Classes()
    reporter = UnusedClassReporter(classes, interval_s=30, now=lambda: NOON)
    with anyio.move_on_after(5 * 30 - 1):
        await reporter.run()
    assert classes.lists == 5
    assert len(classes.writes) == 1


async def test_a_class_that_another_program_writes_keeps_no_other_from_being_written() -> None:
    class Contested(Classes):
        async def list(self, kind: Any) -> ObjectList[Any]:
            other = ResourceClassObject(metadata=ObjectMeta(name="contested", generation=1), spec=OFFER)
            return ObjectList(metadata=ListMeta(), items=(other, self.held))

        async def apply(self, kind: Any, value: JsonObject, *, field_manager: str, subresource: str = "") -> Any:
            if value["metadata"]["name"] == "contested":
                raise UndoneWriteError("PATCH contested", 3, 30)
            return await super().apply(kind, value, field_manager=field_manager, subresource=subresource)

    classes = Contested()
    await UnusedClassReporter(classes, interval_s=30, now=lambda: NOON)._write()
    assert [value["metadata"]["name"] for value in classes.writes] == ["small"]
