"""What a node says of a card in maintenance is written beside what the reclaimer says, and for this object alone."""

from pathlib import Path
from typing import Any

import pytest

from kerf_dra.api.core.v1 import CUSTOM_RESOURCE_DEFINITIONS
from kerf_dra.api.kerf.card_maintenance import CARD_MAINTENANCES, CardMaintenanceObject, MaintenanceWork
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.kube.http.client import Client, PatchType
from kerf_dra.driver.kubeletplugin.cluster.base import WorkDroppedError, write_maintenance_work
from tests.kubeletplugin.test_described_hardware import embedded_cluster
from tools.generate import crds

ACTING = MaintenanceWork(state="Acting", started_at="2026-11-27T10:00:00Z", attempts=2, observed_generation=1)
WAITING = MaintenanceWork(state="Waiting", message="dcgm (7) has it open", observed_generation=1)


async def create(admin: Client, name: str) -> CardMaintenanceObject:
    spec = {"nodeName": "node-1", "card": "GPU-1", "then": "Reset"}
    await admin.create(CARD_MAINTENANCES, CardMaintenanceObject(metadata=ObjectMeta(name=name), spec=spec))
    status = {"status": {"phase": "Free", "message": "nothing holds it"}}
    return await admin.patch(CARD_MAINTENANCES, name, status, type=PatchType.MERGE, subresource="status")


async def write(admin: Client, name: str, uid: str, work: MaintenanceWork) -> CardMaintenanceObject | None:
    return await write_maintenance_work(admin, name, uid, work, field_manager="tests")


async def test_the_work_is_replaced_and_the_rest_of_the_status_stays(tmp_path: Path) -> None:
    async with embedded_cluster(tmp_path) as admin:
        first, other = await create(admin, "first"), await create(admin, "other")
        for work in (ACTING, WAITING):
            kept = await write(admin, "first", first.metadata.uid, work)
            assert kept is not None
            assert (kept.status.work, kept.status.phase) == (work, "Free")
        assert await admin.get(CARD_MAINTENANCES, "other") == other


async def test_another_object_of_the_name_gets_nothing(tmp_path: Path) -> None:
    async with embedded_cluster(tmp_path) as admin:
        first = await create(admin, "first")
        await admin.delete(CARD_MAINTENANCES, "first")
        assert await write(admin, "first", first.metadata.uid, ACTING) is None
        again = await create(admin, "first")
        assert await write(admin, "first", first.metadata.uid, ACTING) is None
        assert (await admin.get(CARD_MAINTENANCES, "first")).status.work is None
        assert again.metadata.uid != first.metadata.uid


async def test_a_definition_of_an_earlier_version_is_named(tmp_path: Path) -> None:
    """Helm leaves definitions as they are: an API server with an old one drops the field without a word."""
    async with embedded_cluster(tmp_path) as admin:
        [crd] = [one for one in crds.documents() if one["spec"]["names"]["kind"] == "CardMaintenance"]
        schema: Any = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        del schema["properties"]["status"]["properties"]["work"]
        await admin.apply(CUSTOM_RESOURCE_DEFINITIONS, crd, field_manager="admin")
        first = await create(admin, "first")
        with pytest.raises(WorkDroppedError, match="apply the definitions of this version"):
            await write(admin, "first", first.metadata.uid, ACTING)
