"""Descriptions of FPGA shells and images: what counts, what is left out and why; objects and files are read alike."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from kerf_dra.api.kerf.fpga_objects import FPGA_IMAGES, FPGA_SHELLS
from kerf_dra.driver.families.fpga.descriptions import Description, Descriptions, ImageReference, build_descriptions
from kerf_dra.driver.families.fpga.geometry import fpga_geometry
from kerf_dra.driver.kubeletplugin.backends.fpga.descriptions import read_description_files
from kerf_dra.driver.partitions.device_names import device_name
from kerf_dra.driver.partitions.geometry import Card, Placement
from tests.fakes.dfl.machine import AES_ID, BLANK_ID, FFT_ID, INTERFACE, build_document

OTHER: Final = "33333333-3333-4333-8333-333333333333"
SHA: Final = "a0" * 32
EXAMPLES: Final = "driver/kubeletplugin/backends/simulated/examples"
FILE: Final[Mapping[str, Any]] = {"file": "aes.gbs", "sha256": SHA, "slots": [[0], [1]]}
SHELL: Final[Mapping[str, Any]] = {
    "interfaceUUID": INTERFACE,
    "slots": [{"lut": 1}, {"lut": 2}],
    "blank": {"afuID": BLANK_ID, "files": [{"file": "blank.gbs", "sha256": SHA, "slots": [[0], [1]]}]},
}
IMAGE: Final[Mapping[str, Any]] = {
    "function": "aes",
    "interfaceUUID": INTERFACE,
    "afuID": AES_ID,
    "loadSeconds": 0.5,
    "files": [FILE],
}


def shell(name: str = "lab", **changes: Any) -> dict[str, Any]:
    return build_document("FpgaShell", name, **{**SHELL, **changes})


def image(name: str = "aes", **changes: Any) -> dict[str, Any]:
    return build_document("FpgaImage", name, **{**IMAGE, **changes})


def describe(**documents: object) -> Descriptions:
    return build_descriptions(Description(source, document) for source, document in documents.items())


def functions(found: Descriptions) -> list[str]:
    return [one.name for one in found.shells[INTERFACE].shell.functions]


def test_a_shell_has_the_functions_that_were_built_for_its_interface() -> None:
    fft_files = [{"file": "fft/both.gbs", "sha256": SHA, "slots": [[1, 0]]}]
    fft = image("fft", function="fft", afuID=FFT_ID.upper(), files=fft_files, version="2.1")
    found = describe(shell=shell(), aes=image(), fft=fft)
    assert not found.problems
    lab = found.shells[INTERFACE]
    placements = {one.name: one.placements for one in lab.shell.functions}
    assert placements == {"aes": (Placement(0, 1), Placement(1, 1)), "fft": (Placement(0, 2),)}
    assert lab.images["fft", Placement(0, 2)] == ImageReference(
        file="fft/both.gbs",
        sha256=SHA,
        interface_uuid=INTERFACE,
        afu_id=FFT_ID,
        load_s=0.5,
        function="fft",
        version="2.1",
    )
    assert {slot: blank.afu_id for slot, blank in lab.blanks.items()} == {0: BLANK_ID, 1: BLANK_ID}
    assert [slot.lut for slot in lab.shell.slots] == [1, 2]
    assert lab.shell.functions[1].digest(Placement(0, 2)) == SHA


WRONG: Final[Mapping[str, tuple[dict[str, Any], str]]] = {
    "another kind": ({**image(), "kind": "Image"}, 'kind: "Image" is not one of FpgaShell, FpgaImage'),
    "no kind": ({"spec": {}}, "kind: is required"),
    "no version of the API": ({**image(), "apiVersion": "v1"}, "apiVersion"),
    "no name": ({**image(), "metadata": {}}, "metadata.name: is required"),
    "a field that is none": (image(checksum="x"), "spec.checksum: unknown field"),
    "no UUID": (image(afuID="aes"), "spec.afuID"),
    "a digest too short": (image(files=[{**FILE, "sha256": "a0"}]), "spec.files[0].sha256"),
    "a function in capitals": (image(function="AES"), "spec.function"),
    "a file above the folder": (image(files=[{**FILE, "file": "../secret"}]), "spec.files[0].file"),
    "a file from the root": (image(files=[{**FILE, "file": "/etc/passwd"}]), "spec.files[0].file"),
    "a hidden file": (image(files=[{**FILE, "file": "a/.b"}]), "spec.files[0].file"),
    "neither file nor URL": (image(files=[{"sha256": SHA, "slots": [[0]]}]), "needs one of file and url"),
    "file and URL": (image(files=[{**FILE, "url": "https://h/x"}]), "needs one of file and url"),
    "a URL without TLS": (image(files=[{"url": "http://h/x", "sha256": SHA, "slots": [[0]]}]), "spec.files[0].url"),
    "a URL of a file": (image(files=[{"url": "file:///x", "sha256": SHA, "slots": [[0]]}]), "spec.files[0].url"),
    "a URL with a user": (
        image(files=[{"url": "https://a:b@h/x", "sha256": SHA, "slots": [[0]]}]),
        "spec.files[0].url",
    ),
    "a URL with a line end": (
        image(files=[{"url": "https://h/x\r\nA: b", "sha256": SHA, "slots": [[0]]}]),
        "spec.files[0].url",
    ),
    "a signature too short": (image(files=[{**FILE, "signature": "AAAA"}]), "spec.files[0].signature"),
    "a slot that no card has": (image(files=[{**FILE, "slots": [[16]]}]), "spec.files[0].slots"),
    "a slot that the shell has not": (image(files=[{**FILE, "slots": [[2]]}]), "has no slot 2"),
    "a slot twice": (image(files=[FILE, FILE]), "[0] is named twice"),
    "a slot twice in a set": (
        image(files=[{**FILE, "slots": [[0, 0]]}]),
        "[0, 0] has a slot twice",
    ),
    "no slot": (image(files=[{**FILE, "slots": []}]), "spec.files[0].slots: is empty"),
    "an empty set of slots": (image(files=[{**FILE, "slots": [[]]}]), "spec.files[0].slots[0]: is empty"),
    "no load time": (image(loadSeconds=-1), "spec.loadSeconds: -1 is not between 0 and 3600"),
    "a load time that is no number": (image(loadSeconds=float("nan")), "spec.loadSeconds"),
    "a parameter with a line end": (image(parameters={"LANES": "8\nPATH=/"}), "spec.parameters.LANES"),
    "a parameter that is no variable": (image(parameters={"LANES=8": ""}), "spec.parameters.LANES=8"),
    "a namespace that is none": (image(namespaces=["*"]), "spec.namespaces[0]"),
    "another interface": (image(interfaceUUID=OTHER), "no shell is described"),
    "the blank image's id": (image(afuID=BLANK_ID), "blank image has the same"),
    "a function described twice": (image("good-2", function="good"), "another image is described of good"),
    "an id described twice": (image(afuID=OTHER), "good has the same"),
    "an interface described twice": (shell("other"), "describes the same interface"),
    "a shell's name given twice": (shell(interfaceUUID=OTHER), "a shell of the same name"),
    "a shell's name that is too long": (shell("x" * 65, interfaceUUID=OTHER), "more than 64 characters"),
    "a layout with the interface of another shell": (
        shell("other", interfaceUUID=OTHER, layouts=[{"name": "b", "interfaceUUID": INTERFACE, "slots": [{}]}]),
        "spec.layouts[0].interfaceUUID: shell describes the same interface",
    ),
    "two layouts of one interface": (
        shell("other", interfaceUUID=OTHER, layouts=[{"name": "b", "interfaceUUID": OTHER.upper(), "slots": [{}]}]),
        "spec.layouts[0].interfaceUUID: this shell itself describes the same interface",
    ),
    "two layouts of one name": (
        shell(
            "other",
            interfaceUUID=OTHER,
            layouts=[{"name": "b", "interfaceUUID": uuid, "slots": [{}]} for uuid in (AES_ID, FFT_ID)],
        ),
        "spec.layouts[1].name: another layout is named b",
    ),
    "a layout's name that would make device names alike": (
        shell("other", interfaceUUID=OTHER, layouts=[{"name": "a-b", "interfaceUUID": AES_ID, "slots": [{}]}]),
        "spec.layouts[0].name",
    ),
    "layouts of more slots than a card can have counters": (
        shell(
            "other",
            interfaceUUID=OTHER,
            layouts=[{"name": n, "interfaceUUID": u, "slots": [{}] * 16} for n, u in (("a", AES_ID), ("b", FFT_ID))],
        ),
        "spec.layouts: they have 34 slots together; cards can be published with 32",
    ),
    "slots and resources": (
        shell("other", interfaceUUID=OTHER, resources={}),
        "spec: needs one of slots and resources",
    ),
    "neither slots nor resources": (
        {**shell("other"), "spec": {"interfaceUUID": OTHER}},
        "spec: needs one of slots and resources",
    ),
    "an image without slots for a shell that has some": (
        image(files=[{"file": "a", "sha256": SHA}]),
        "spec.files[0].slots: is required: the shell's slots are 0 to 1",
    ),
    "a blank image for two slots": (
        shell("other", interfaceUUID=OTHER, blank={"afuID": BLANK_ID, "files": [{**FILE, "slots": [[0, 1]]}]}),
        "a blank image is for one slot",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_description_that_is_wrong_is_said_and_hides_no_other(case: str) -> None:
    wrong, message = WRONG[case]
    found = describe(shell=shell(), good=image("good", function="good", afuID=OTHER), wrong=wrong)
    assert found.faults.keys() == {"wrong"}
    assert message in found.faults["wrong"]
    assert functions(found) == ["good"]


@pytest.mark.parametrize("document", [None, [], "x", 3])
def test_what_is_no_object_is_said(document: object) -> None:
    assert describe(wrong=document).faults == {"wrong": "kind: is required: one of FpgaShell, FpgaImage"}


def test_a_file_of_a_node_and_an_object_of_the_cluster_are_one_document(tmp_path: Path) -> None:
    documents = {"shell": shell(), "image": image(namespaces=["lab"], parameters={"LANES": "8"})}
    for name, document in documents.items():
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(document))
    files, problems = read_description_files(tmp_path)
    stored_shell = FPGA_SHELLS.decode(json.dumps({**shell(), "status": {"nodes": {"total": 1}}}).encode())
    stored_image = FPGA_IMAGES.decode(json.dumps(documents["image"]).encode())
    objects = describe(shell=FPGA_SHELLS.encode(stored_shell), image=FPGA_IMAGES.encode(stored_image))
    assert problems == []
    assert build_descriptions(files) == objects
    assert functions(build_descriptions(files)) == ["aes"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"kind: [", "is not YAML"),
        (b"kind: FpgaImage\nkind: FpgaShell\n", "twice"),
        (b"#" * 70_000, "more than 65536 bytes"),
        (b"\xff\xfe\x00", "YAML"),
    ],
)
def test_a_file_that_is_no_document_is_said(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_bytes(content)
    (tmp_path / "shell.yaml").write_text(json.dumps(shell()))
    found, [problem] = read_description_files(tmp_path)
    assert "broken.yaml" in problem
    assert message in problem
    assert [source for source, _ in found] == ["shell.yaml"]


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    problem = f"{tmp_path / 'none'} is not there: no shell is described in files"
    assert read_description_files(tmp_path / "none") == ([], [problem])


def test_layouts_and_cards_without_slots_are_put_together_with_the_images_for_each() -> None:
    """A backend that loads no layouts gets each as a shell of its own."""
    flat = "44444444-4444-4444-8444-444444444444"
    layouts = [
        {"name": "halves", "interfaceUUID": OTHER, "loadSeconds": 4, "slots": [{"lut": 9}] * 3},
        {"name": "flat", "interfaceUUID": flat, "resources": {"lut": 7}},
    ]
    found = describe(
        shell=shell(layouts=layouts),
        aes=image(),
        other=image(interfaceUUID=OTHER, files=[{**FILE, "slots": [[2, 0]]}]),
        vadd=image(function="vadd", interfaceUUID=flat, computeUnits=3, files=[{"file": "a", "sha256": SHA}]),
    )
    assert found.problems == ()
    [card] = found.cards
    assert [(one.name, one.placements, one.compute_units) for one in card.functions] == [
        ("aes", (Placement(0, 1), Placement(1, 1)), 0),
        ("aes", (Placement(0, 2, 0b10, "halves"),), 0),
        ("vadd", (Placement(0, 1, 0, "flat"),), 3),
    ]
    assert [(one.name, len(one.slots), one.load_s, one.is_undivided) for one in card.layouts] == [
        ("", 2, 0, False),
        ("halves", 3, 4, False),
        ("flat", 1, 0, True),
    ]
    assert found.shells.keys() == {INTERFACE, OTHER, flat}
    halves = found.shells[OTHER].shell
    assert (halves.name, halves.uuid, halves.further_layouts) == ("lab", OTHER, ())
    assert halves.functions[0].placements == (Placement(0, 2, 0b10),)
    long = image(function="f" * 40, interfaceUUID=OTHER, computeUnits=1, files=[{**FILE, "slots": [[0, 2]]}])
    too_long = describe(shell=shell(layouts=layouts), x=long)
    assert f"would be named fpga-99-{'f' * 40}-at-0-and-2-of-halves-shared, which has 76" in too_long.faults["x"]
    with_slots = describe(shell=shell(layouts=layouts), x=image(interfaceUUID=flat))
    assert "spec.files[0].slots: the shell has no slots: leave the field out" in with_slots.faults["x"]


def test_a_shell_file_with_three_slots_gives_three_slots_by_name() -> None:
    """FP-02: a description in the manner of an embedded board's shell file."""
    documents = json.loads((Path(__file__).parents[2] / EXAMPLES / "edge-3.json").read_text())
    found = build_descriptions(Description(str(number), document) for number, document in enumerate(documents))
    [edge] = found.cards
    card = Card(uuid="FPGA-0", index=0, geometry=fpga_geometry(edge))
    names = [device_name(card, spec.of(card.uuid)) for spec in card.geometry.specs if spec.function is None]
    assert names[:3] == ["fpga-0-slot-0", "fpga-0-slot-1", "fpga-0-slot-2"]
    assert [sorted(slot for place in one.placements for slot in place.units) for one in edge.functions] == [
        [0, 1, 2],
        [1, 2],
        [0, 1, 2],
    ]


def test_the_examples_in_docs_fpga_are_read() -> None:
    docs = Path(__file__).parents[2] / "docs"
    page = "\n".join((docs / name).read_text() for name in ("fpga.md", "alveo.md", "fpga-boards.md"))
    blocks = [block.partition("```")[0] for block in page.split("```yaml\n")[1:]]
    documents = [document for block in blocks for document in yaml.safe_load_all(block)]
    found = build_descriptions(
        Description(str(number), document)
        for number, document in enumerate(documents)
        if document.get("kind") in {"FpgaShell", "FpgaImage"}
    )
    assert found.problems == ()
    by_name = {described.shell.name: described for described in found.shells.values()}
    shells = {shell.name: [one.name for one in shell.functions] for shell in found.cards}
    assert shells == {"k26": ["vadd"], "k26-2rp": ["aes128"], "n6001-base": ["aes-gcm"], "split": [], "u250": ["aes"]}
    assert {name for name, described in by_name.items() if described.blanks.keys() == {0}} == {"n6001-base", "u250"}
    layouts = {shell.name: [layout.name for layout in shell.layouts] for shell in found.cards}
    several = ["", "halves", "flat"]
    assert layouts == {"k26": several, "k26-2rp": [""], "n6001-base": [""], "split": several, "u250": [""]}
    assert all(shell.layouts[2].is_undivided for shell in found.cards if shell.name in {"k26", "split"})
