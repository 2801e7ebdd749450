"""The family ``npu``: NPUs with four cores. A card is a folder; an empty file PROFILE-START-UUID in it, a partition."""

import uuid
from pathlib import Path
from typing import Literal

from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase
from kerf_dra.api.model.devices import Attribute
from kerf_dra.api.model.names import DriverName
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.cdi import ContainerEdits, DeviceNode
from kerf_dra.driver.families.base import AttributeDefinition, Family
from kerf_dra.driver.kubeletplugin.backends import base
from kerf_dra.driver.kubeletplugin.backends.eventless import EventlessBackend
from kerf_dra.driver.partitions.geometry import Card, Placement
from kerf_dra.driver.partitions.uniform_geometry import build_uniform_geometry

Found = base.FoundPartition | None


class NpuConfig(DeviceConfigBase, tag="NpuConfig"):
    """Parameters of NPU devices, in a class or a claim."""

    precision: Literal["fp16", "int8"] = "fp16"


PROFILES = {"1c": 1, "2c": 2}
CORE = {"cores": Quantity(1), "memory": Quantity("8Gi")}
GEOMETRY = build_uniform_geometry("npu", "acme-npu-4", unit="core", units=4, profiles=PROFILES, capacity=CORE)
WORDS = {"cut": "whole or partition", "profile": "1c or 2c", "model": "model", "uuid": "card", "node": "node"}
NPU = Family(
    name="npu",
    driver=DriverName("npu.acme.example"),
    attributes={name: AttributeDefinition(description=text, neutral=Attribute.of("")) for name, text in WORDS.items()},
    capacities={"cores": "The number of cores.", "memory": "The memory in bytes."},
    minimums=("cores", "memory"),
    class_fields=frozenset({"profile", "minimum", "config"}),
    configurations={"NpuConfig": NpuConfig},
    geometries=lambda: [GEOMETRY],
    backends={"acme": "acme_npu:AcmeBackend"},
)


class AcmeBackend(EventlessBackend):
    name = "acme"

    def __init__(self, config: Path | None) -> None:
        super().__init__()
        root = config if config is not None and config.is_dir() else Path("/var/lib/acme-npu")
        folders = sorted(root.resolve().glob("npu-*"))
        self._cards = {f"NPU-{uuid.uuid5(uuid.NAMESPACE_URL, str(folder))}": folder for folder in folders}

    def discover(self) -> list[Card]:
        there = [(card, int(folder.name.split("-")[1])) for card, folder in self._cards.items() if folder.is_dir()]
        return [Card(uuid=card, index=index, geometry=GEOMETRY) for card, index in there]

    def survey(self, card_uuid: str) -> base.CardSurvey:
        return base.CardSurvey(card_uuid=card_uuid, partitions=tuple(map(_found, self._folder(card_uuid).iterdir())))

    def prepare(
        self, device: base.AllocatedDevice, config: DeviceConfigBase | None, journal: base.Journal, found: Found
    ) -> base.Handle:
        folder, place = self._folder(device.partition.card_uuid), device.partition.placement
        if not (found or device.admin_access):
            for other in map(_found, folder.iterdir()):
                if not (place and other.placement and not place.overlaps(other.placement)):
                    raise base.HardwareConflictError(f"in use outside of Kerf: {other}")
            if place is not None:
                file = folder / f"{device.partition.profile}-{place.start}-{uuid.uuid4()}"
                file.touch(exist_ok=False)
                found = _found(file)
        number, cores = folder.name.split("-")[1], range(4) if place is None else place.units
        nodes = [f"/dev/acme{number}c{core}" for core in cores]
        precision = config.precision if isinstance(config, NpuConfig) else "fp16"
        handle = {"card": device.partition.card_uuid, "file": found.id if found else "none", "precision": precision}
        return {**handle, "device": device.share.id.device, "nodes": nodes, "uuid": found.uuid if found else ""}

    def unprepare(self, handle: base.Handle) -> None:
        (self._folder(handle["card"]) / handle["file"]).unlink(missing_ok=True)

    def abandon(self, device: base.AllocatedDevice, journal: base.Journal, found: Found) -> None:
        if found is not None:
            (self._folder(device.partition.card_uuid) / found.id).unlink(missing_ok=True)

    def edits(self, handle: base.Handle) -> ContainerEdits:
        variable = f"ACME_{handle['device'].upper().replace('-', '_')}={handle['precision']}"
        nodes = [DeviceNode(path=node, host_path="/dev/null", type="c", major=1, minor=3) for node in handle["nodes"]]
        return ContainerEdits(env=(variable,), device_nodes=tuple(nodes))

    def _folder(self, card_uuid: str) -> Path:
        if card_uuid not in self._cards or not self._cards[card_uuid].is_dir():
            raise base.CardAbsentError(f"card {card_uuid} is not there")
        return self._cards[card_uuid]


def _found(file: Path) -> base.FoundPartition:
    profile, start, serial = file.name.split("-", 2)
    place = Placement(int(start), PROFILES[profile])
    return base.FoundPartition(id=file.name, profile=profile, placement=place, uuid=serial)
