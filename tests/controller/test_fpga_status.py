"""The status of FpgaShells and FpgaImages, from objects and slices: what is verified, fetched and refused."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import anyio
import pytest
from msgspec.structs import replace

from kerf_dra.api.kerf.fpga_objects import FPGA_IMAGES, FPGA_SHELLS, FpgaNodes, FpgaStatus
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.devices import Attribute, Device, ResourcePool, ResourceSlice, ResourceSliceSpec
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.wire import to_builtins
from kerf_dra.driver.controller.fpga_status import (
    FpgaObject,
    build_status,
    describe_objects,
    reduce_devices,
    summarize_slices,
    to_document,
)
from kerf_dra.driver.controller.structured.fpga_objects import FpgaStatusWriter
from kerf_dra.driver.families.fpga.refused_images import format_refusals, parse_refusals
from kerf_dra.driver.kube.http.errors import NotFoundError
from kerf_dra.driver.kube.http.write_history import UndoneWriteError
from tests.fakes.dfl.machine import AES_ID, INTERFACE, build_document

NOW: Final = datetime(2026, 11, 23, 4, tzinfo=UTC)
SHA: Final = "a0" * 32
OTHER: Final = "33333333-3333-4333-8333-333333333333"


def shell(**changes: Any) -> FpgaObject:
    spec = {"interfaceUUID": INTERFACE, "slots": [{}, {}], **changes}
    return FPGA_SHELLS.decode(json.dumps(build_document("FpgaShell", "lab", **spec)).encode())


def image(name: str = "aes", **changes: Any) -> FpgaObject:
    file = {"file": "aes.gbs", "sha256": SHA, "slots": [[0]]}
    spec = {"function": name, "interfaceUUID": INTERFACE.upper(), "afuID": AES_ID, "loadSeconds": 1, "files": [file]}
    return FPGA_IMAGES.decode(json.dumps(build_document("FpgaImage", name, **{**spec, **changes})).encode())


def slice_of(
    node: str, *functions: str, card: str = "FPGA-1", digest: str = SHA, refused: str = "", layout: str = ""
) -> ResourceSlice:
    """A slice with a whole card and a device for each function."""
    common = {"interfaceUUID": INTERFACE, "uuid": card, "refusedImages": refused, "layout": layout}
    found: list[Mapping[str, str]] = [
        common,
        *({**common, "function": one, "imageDigest": digest} for one in functions),
    ]
    devices = tuple(
        Device(name=f"{card.lower()}-{number}", attributes={name: Attribute.of(value) for name, value in one.items()})
        for number, one in enumerate(found)
    )
    pool = ResourcePool(name=f"{node}/fpga", generation=1, resource_slice_count=1)
    spec = ResourceSliceSpec(driver="fpga.kerf.dev", pool=pool, node_name=node, devices=devices)
    return ResourceSlice(metadata=ObjectMeta(name=f"{node}-{card.lower()}"), spec=spec)


def status(held: FpgaObject, *slices: ResourceSlice, beside: tuple[FpgaObject, ...] = ()) -> FpgaStatus:
    others = beside or (shell(),)
    objects = [held, *(one for one in others if one != held)]
    return build_status(held, describe_objects(objects), summarize_slices(slices), now=NOW)


def conditions(found: FpgaStatus) -> dict[str, tuple[str, str]]:
    return {one.type: (one.status, one.reason) for one in found.conditions}


def message(found: FpgaStatus, type_: str) -> str:
    return next(one.message for one in found.conditions if one.type == type_)


def test_an_image_is_fetched_on_the_nodes_all_of_whose_cards_have_it_from_one_of_its_files() -> None:
    found = status(
        image(),
        slice_of("node-1", "aes"),
        slice_of("node-1", "aes", "fft", card="FPGA-2"),
        slice_of("node-2", "aes"),
        slice_of("node-2", card="FPGA-2"),
        slice_of("node-3", "aes", digest="b1" * 32),
        slice_of("node-4", "fft"),
    )
    assert found.nodes == FpgaNodes(total=4, fetched=1)
    assert conditions(found) == {
        "Verified": ("True", "Valid"),
        "Fetched": ("False", "Missing"),
        "Refused": ("False", "NotRefused"),
    }
    assert message(found, "Fetched") == "1 of 4 nodes with such cards have it; not node-2, node-3, node-4"


def test_what_is_kept_of_devices_says_the_same_of_objects() -> None:
    """Attributes that no status names are left out, and devices that differ in nothing else."""
    given = [
        slice_of("node-1", "aes", "fft", refused="fft=Missing"),
        slice_of("node-2", "aes", card="FPGA-2", digest="b1" * 32, refused="halves/aes=Missing", layout="halves"),
        slice_of("node-3"),
    ]
    wide = [replace(one, spec=replace(one.spec, devices=tuple(map(_widen, one.spec.devices * 2)))) for one in given]
    kept = [replace(one, spec=replace(one.spec, devices=reduce_devices(one.spec.devices))) for one in wide]
    assert [len(one.spec.devices) for one in kept] == [3, 2, 1]
    assert not any("extra" in device.attributes for one in kept for device in one.spec.devices)
    assert summarize_slices(kept) == summarize_slices(given)
    assert reduce_devices([Device(name="gpu-0", attributes={"uuid": Attribute.of("GPU-0")})]) == ()


def _widen(device: Device) -> Device:
    return replace(device, attributes={**device.attributes, "extra": Attribute.of("x")})


def test_an_image_on_all_nodes_is_fetched_and_one_without_cards_is_neither() -> None:
    everywhere = status(image(), slice_of("node-1", "aes"))
    assert conditions(everywhere)["Fetched"] == ("True", "OnAllNodes")
    assert conditions(status(image()))["Fetched"] == ("Unknown", "NoCards")
    assert status(image()).nodes == FpgaNodes(total=0)


def test_a_refused_image_says_on_which_nodes_and_why() -> None:
    slices = [slice_of(f"node-{n}", refused="aes=WrongDigest fft=Missing") for n in range(7)]
    found = status(image(), *slices, slice_of("node-8", refused="aes=NotFetched"))
    assert conditions(found)["Refused"] == ("True", "RefusedByNodes")
    assert message(found, "Refused").startswith(
        "WrongDigest on node-0, node-1, node-2, node-3, node-4 and 2 more; NotFetched on node-8: the logs"
    )


@pytest.mark.parametrize(
    ("held", "beside", "said"),
    [
        (image(afuID="x"), (), "spec.afuID"),
        (image(interfaceUUID=OTHER), (), "no shell is described"),
        (image("zzz"), (shell(), image()), "spec.afuID: aes has the same"),
        (image(files=[{"file": "a", "sha256": SHA, "slots": [[7]]}]), (), "has no slot 7"),
        (shell(slots=[]), (), "spec.slots: is empty"),
    ],
)
def test_an_object_that_is_wrong_is_not_verified_and_nothing_else_is_said_of_it(
    held: FpgaObject, beside: tuple[FpgaObject, ...], said: str
) -> None:
    found = status(held, slice_of("node-1", "aes"), beside=beside)
    assert conditions(found) == {"Verified": ("False", "Invalid")}
    assert said in message(found, "Verified")
    assert found.nodes is None


def test_a_shell_says_on_how_many_nodes_it_is_and_whether_its_blank_image_is_refused() -> None:
    found = status(shell(), slice_of("node-1"), slice_of("node-2", refused="(blank)=Missing"))
    assert found.nodes == FpgaNodes(total=2)
    assert conditions(found) == {"Verified": ("True", "Valid"), "Refused": ("True", "RefusedByNodes")}


def test_what_is_refused_of_one_layout_is_not_refused_of_another_with_the_same_function() -> None:
    """Each layout has an interface of its own, and an image of the function for it; the attribute is the card's."""
    refused = "aes=WrongDigest halves/aes=Missing"
    for layout, reason in (("", "WrongDigest"), ("halves", "Missing")):
        found = status(image(), slice_of("node-1", "aes", refused=refused, layout=layout))
        assert message(found, "Refused").startswith(f"{reason} on node-1: the logs")
    found = status(image(), slice_of("node-1", "aes", refused="halves/aes=Missing"))
    assert conditions(found)["Refused"][0] == "False"


def test_a_condition_keeps_the_time_since_when_it_is_so() -> None:
    held = image()
    before = status(held)
    document = {**to_document(held), "status": to_builtins(before)}
    again = FPGA_IMAGES.decode(json.dumps(document).encode())
    later = datetime(2026, 11, 24, tzinfo=UTC)
    now = build_status(again, describe_objects([again, shell()]), summarize_slices([slice_of("a", "aes")]), now=later)
    times = {one.type: one.last_transition_time for one in now.conditions}
    assert times == {
        "Verified": "2026-11-23T04:00:00Z",
        "Fetched": "2026-11-24T00:00:00Z",
        "Refused": "2026-11-23T04:00:00Z",
    }


def test_refusals_that_do_not_fit_an_attribute_are_left_out() -> None:
    reasons = {f"function-{n}": "WrongInterface" for n in range(9)}
    text = format_refusals(reasons)
    assert len(text) <= 64
    assert text.endswith(" ...")
    assert parse_refusals(text) == {"function-0": "WrongInterface", "function-1": "WrongInterface"}
    assert format_refusals({}) == ""
    assert parse_refusals("aes=<b> fft=a;b =x x= ok=Missing") == {"": "x", "ok": "Missing"}


class MemoryClient:
    """Implements ``StatusClient`` on objects in memory."""

    def __init__(self, *objects: JsonObject) -> None:
        self.objects = {(one["kind"], one["metadata"]["name"]): one for one in objects}
        self.is_defined = True
        self.writes: list[str] = []
        self.undone: set[str] = set()
        """What another program undoes each time."""

    async def list(self, kind: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        if not self.is_defined:
            raise NotFoundError("GET", 404, "NotFound", "no such kind")
        items = [one for (name, _), one in self.objects.items() if name == kind.kind]
        return kind.decode_list(json.dumps({"items": items}).encode())

    async def patch(self, kind: Any, name: str, patch: JsonObject, **_: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        if f"{kind.kind} {name}" in self.undone:
            raise UndoneWriteError(f"PATCH {name}", 3, 30)
        self.writes.append(f"{kind.kind} {name}")
        held = self.objects[kind.kind, name]
        held["status"] = {field: value for field, value in patch["status"].items() if value is not None}
        return kind.decode(json.dumps(held).encode())


def test_the_status_is_written_once_and_again_when_it_changes() -> None:
    client = MemoryClient(to_document(shell()), to_document(image()))
    slices: list[ResourceSlice] = []
    writer = FpgaStatusWriter(client, lambda: slices, interval_s=1, now=lambda: NOW)
    for _ in range(2):
        anyio.run(writer.write)
    assert client.writes == ["FpgaShell lab", "FpgaImage aes"]
    slices.append(slice_of("node-1", "aes"))
    anyio.run(writer.write)
    assert client.writes[2:] == ["FpgaShell lab", "FpgaImage aes"]
    assert client.objects["FpgaImage", "aes"]["status"]["nodes"] == {"total": 1, "fetched": 1}


def test_without_the_definitions_nothing_is_written() -> None:
    client = MemoryClient(to_document(shell()))
    client.is_defined = False
    anyio.run(FpgaStatusWriter(client, tuple, interval_s=1, now=lambda: NOW).write)
    assert client.writes == []


def test_an_object_that_another_program_writes_keeps_no_other_from_being_written() -> None:
    client = MemoryClient(to_document(shell()), to_document(image()))
    client.undone = {"FpgaShell lab"}
    writer = FpgaStatusWriter(client, tuple, interval_s=1, now=lambda: NOW)
    anyio.run(writer.write)
    assert client.writes == ["FpgaImage aes"]
