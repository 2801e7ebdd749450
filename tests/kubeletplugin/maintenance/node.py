"""A node on the virtual clock whose cards can be reset, and CardMaintenances with the status of a free card."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio

from kerf_dra.api.kerf.card_maintenance import CardMaintenanceStatus, MaintenanceWork, WorkState
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.metadata import Condition
from kerf_dra.api.wire import to_builtins
from kerf_dra.driver.kubeletplugin.backends.base import CardSurvey, Journal
from kerf_dra.driver.kubeletplugin.maintenance.work_file import FILE_NAME, WorkFile, WorkRecord, WorkStage
from kerf_dra.driver.kubeletplugin.plugin import NodePlugin
from kerf_dra.driver.kubeletplugin.settings import Settings
from tests.fakes.cards import fpga, gpu
from tests.fakes.claims import NODE
from tests.fakes.hardware import FakeBackend
from tests.kubeletplugin.claims.repair.node import Node
from tests.kubeletplugin.records import BOOT
from tests.runtime.virtual_time import pass_time

MAINTENANCE = "fan"
KEY = ("uid-of-fan", 2)
LONG_S = 600.0


class MaintainedHardware(FakeBackend):
    """Cards that can be reset and have a MIG mode; a test says who holds them and what fails."""

    def __init__(self) -> None:
        super().__init__([gpu(0), gpu(1), fpga(0)])
        self.acts: list[tuple[str, str]] = []
        self.ends: list[str] = []
        """The cards of ``end_act``."""
        self.holders: dict[str, list[str]] = {}
        self.act_errors: list[Exception] = []
        self.survey_errors: list[Exception] = []
        self.no_partitions: dict[str, str] = {}
        self.no_partitions_after: dict[str, str] = {}
        """By act: why its card has no partitions from then on."""

    def survey(self, card_uuid: str) -> CardSurvey:
        if self.survey_errors and card_uuid == "GPU-1":
            raise self.survey_errors.pop(0)
        return replace(super().survey(card_uuid), no_partitions=self.no_partitions.get(card_uuid, ""))

    def find_card_holders(self, card_uuid: str) -> Sequence[str]:
        return self.holders.get(card_uuid, ())

    def reset_card(self, card_uuid: str, journal: Journal) -> str:
        journal.write(mode="on")
        return self._act("Reset", card_uuid)

    def set_mig_mode(self, card_uuid: str, is_on: bool) -> str:
        return self._act("MigOn" if is_on else "MigOff", card_uuid)

    def end_act(self, card_uuid: str, journal: Journal) -> None:
        self.ends.append(card_uuid)

    def _act(self, act: str, card_uuid: str) -> str:
        assert not self.made or all(made.card_uuid != card_uuid for made in self.made.values())
        self._step(act, card_uuid, card_uuid)
        self.acts.append((act, card_uuid))
        if self.act_errors:
            raise self.act_errors.pop(0)
        if act in self.no_partitions_after:
            self.no_partitions[card_uuid] = self.no_partitions_after[act]
        return f"{act} is done"


@dataclass
class MaintainedNode(Node):
    """A node with two GPUs and an FPGA."""

    backend: Any = field(default_factory=MaintainedHardware)
    hooks: Path | None = None

    @property
    def settings(self) -> Settings:
        return replace(super().settings, maintenance_hooks_dir=self.hooks)

    @asynccontextmanager
    async def running(self, boot_id: str = BOOT) -> AsyncIterator[NodePlugin]:
        """The plugin runs inside, and follows what is put."""
        async with super().running(boot_id) as plugin:
            await pass_time(0.2)
            yield plugin

    @property
    def file(self) -> WorkFile:
        """The file of records, as it is on the disk now."""
        return WorkFile(self.settings.state / FILE_NAME)

    def record(self, key: tuple[str, int] = KEY) -> WorkRecord | None:  # type: ignore[override]
        return self.file.records.get(key)

    def put_record(self, stage: WorkStage, **fields: Any) -> None:
        """Leave the record of an earlier process."""
        uid, generation = KEY
        known = {"uid": uid, "generation": generation, "card_uuid": "GPU-1", "backend": "fake", "act": "Reset"}
        self.file.put(WorkRecord(stage=stage, **{**known, **fields}))

    def put(self, *documents: JsonObject) -> None:
        self.cluster.maintenances.put(*documents)

    def work(self, name: str = MAINTENANCE) -> MaintenanceWork | None:
        """``status.work`` of a CardMaintenance."""
        [found] = [one for one in self.cluster.maintenances.documents or () if one["metadata"]["name"] == name]
        work = found["status"].get("work")
        return None if work is None else MaintenanceWork(**{_snake(key): value for key, value in work.items()})

    async def until(self, state: WorkState, name: str = MAINTENANCE, *, says: str = "") -> MaintenanceWork:
        """Wait until the status has this state, with a message that has a text."""
        with anyio.fail_after(LONG_S):
            while (work := self.work(name)) is None or work.state != state or says not in work.message:
                await pass_time(0.5)
        return work

    def is_withheld(self, card: str = "gpu-1") -> bool:
        return any(key.endswith("/maintenance") for key, _, _ in self.taints(card))


def maintenance(
    card: str = "GPU-1",
    *,
    name: str = MAINTENANCE,
    then: str = "Reset",
    is_free: bool = True,
    generation: int = 2,
    work: WorkState | None = None,
    **spec: object,
) -> JsonObject:
    """A CardMaintenance with the status that the reclaimer writes."""
    status = CardMaintenanceStatus(
        observed_generation=generation,
        phase="Free" if is_free else "Evicting",
        conditions=(Condition(type="Free", status="True" if is_free else "False"),),
        work=None if work is None else MaintenanceWork(state=work, observed_generation=generation),
    )
    return {
        "metadata": {"name": name, "uid": f"uid-of-{name}", "generation": generation},
        "spec": {"nodeName": NODE, "card": card, "then": then, **spec},
        "status": to_builtins(status),
    }


def _snake(name: str) -> str:
    return "".join(f"_{one.lower()}" if one.isupper() else one for one in name)
