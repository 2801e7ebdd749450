"""Descriptions of shells and images, and the folder of image files."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from driver.kubeletplugin.backends.base import HardwareRefusedError
from driver.kubeletplugin.backends.dfl import descriptions
from driver.kubeletplugin.backends.dfl.descriptions import Descriptions, ImageReference, read_descriptions
from driver.kubeletplugin.backends.dfl.images import ImageFolder
from driver.partitions.geometry import Placement
from tests.fakes.dfl import build_gbs
from tests.fakes.dfl.machine import AES_ID, BLANK_ID, FFT_ID, INTERFACE, DflMachine

OTHER: Final = "33333333-3333-4333-8333-333333333333"
SHA: Final = "a0" * 32
SHELL: Final[Mapping[str, Any]] = {
    "kind": "Shell",
    "name": "lab",
    "interfaceUUID": INTERFACE,
    "slots": [{"lut": 1}, {"lut": 2}],
    "blank": {"afuID": BLANK_ID, "files": [{"file": "blank.gbs", "sha256": SHA, "slots": [0, 1]}]},
}
IMAGE: Final[Mapping[str, Any]] = {
    "kind": "Image",
    "function": "aes",
    "interfaceUUID": INTERFACE,
    "afuID": AES_ID,
    "loadSeconds": 0.5,
    "files": [{"file": "aes.gbs", "sha256": SHA, "slots": [0, 1]}],
}


def read(tmp_path: Path, **documents: Mapping[str, Any]) -> Descriptions:
    for name, document in documents.items():
        (tmp_path / f"{name}.yaml").write_text(json.dumps(document))
    return read_descriptions(tmp_path)


def test_a_shell_has_the_functions_that_were_built_for_its_interface(tmp_path: Path) -> None:
    fft = {
        **IMAGE,
        "function": "fft",
        "afuID": FFT_ID.upper(),
        "files": [{"file": "fft/slot1.gbs", "sha256": SHA, "slots": [1]}],
    }
    found = read(tmp_path, shell=SHELL, aes=IMAGE, fft=fft)
    assert not found.problems
    lab = found.shells[INTERFACE]
    placements = {one.name: one.placements for one in lab.shell.functions}
    assert placements == {"aes": (Placement(0, 1), Placement(1, 1)), "fft": (Placement(1, 1),)}
    assert lab.images["fft", 1] == ImageReference(
        file="fft/slot1.gbs", sha256=SHA, interface_uuid=INTERFACE, afu_id=FFT_ID, load_s=0.5
    )
    assert {slot: image.afu_id for slot, image in lab.blanks.items()} == {0: BLANK_ID, 1: BLANK_ID}
    assert [slot.lut for slot in lab.shell.slots] == [1, 2]


def test_the_examples_in_docs_fpga_are_read(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "fpga.md").read_text()
    blocks = [block.partition("```")[0] for block in page.split("```yaml\n")[1:]]
    for number, block in enumerate(block for block in blocks if block.startswith("kind: ")):
        (tmp_path / f"{number}.yaml").write_text(block)
    found = read_descriptions(tmp_path)
    assert found.problems == ()
    [shell] = found.shells.values()
    assert [one.name for one in shell.shell.functions] == ["aes-gcm"]
    assert shell.blanks.keys() == {0}


def test_the_examples_in_the_module_s_documentation_are_read(tmp_path: Path) -> None:
    assert descriptions.__doc__ is not None
    blocks = [block.split("\n\n")[1] for block in descriptions.__doc__.split(".. code-block:: yaml")[1:]]
    for number, block in enumerate(blocks):
        (tmp_path / f"{number}.yaml").write_text(block.replace("<64 hexadecimal digits>", SHA))
    found = read_descriptions(tmp_path)
    assert (len(found.shells), found.problems) == (1, ())
    [shell] = found.shells.values()
    assert [one.name for one in shell.shell.functions] == ["aes-gcm"]


WRONG: Final[Mapping[str, tuple[Mapping[str, Any], str]]] = {
    "an unknown field": ({**IMAGE, "colour": "red"}, "colour"),
    "an unknown kind": ({**IMAGE, "kind": "Bitstream"}, "Bitstream"),
    "no kind": ({"function": "aes"}, "kind"),
    "a missing field": ({k: v for k, v in IMAGE.items() if k != "loadSeconds"}, "loadSeconds"),
    "an unknown field of a file": ({**IMAGE, "files": [{**IMAGE["files"][0], "url": "x"}]}, "url"),
    "a name that is no label": ({**IMAGE, "function": "AES_GCM"}, "function"),
    "a name that is too long": ({**IMAGE, "function": "a" * 41}, "function"),
    "no UUID": ({**IMAGE, "afuID": "9c1d"}, "afuID"),
    "a digest in capitals": ({**IMAGE, "files": [{**IMAGE["files"][0], "sha256": "A" * 64}]}, "sha256"),
    "a file above the folder": ({**IMAGE, "files": [{**IMAGE["files"][0], "file": "../secret"}]}, "file"),
    "a file from the root": ({**IMAGE, "files": [{**IMAGE["files"][0], "file": "/etc/passwd"}]}, "file"),
    "a slot that no card has": ({**IMAGE, "files": [{**IMAGE["files"][0], "slots": [8]}]}, "slots"),
    "a slot that the shell has not": ({**IMAGE, "files": [{**IMAGE["files"][0], "slots": [2]}]}, "has no slot 2"),
    "a slot twice": ({**IMAGE, "files": [*IMAGE["files"], *IMAGE["files"]]}, "slot 0 is named twice"),
    "no slot": ({**IMAGE, "files": [{**IMAGE["files"][0], "slots": []}]}, "slots"),
    "no load time": ({**IMAGE, "loadSeconds": -1}, "loadSeconds"),
    "a parameter with a line end": ({**IMAGE, "parameters": {"LANES": "8\nPATH=/"}}, "parameters"),
    "a parameter that is no variable": ({**IMAGE, "parameters": {"LANES=8": ""}}, "key"),
    "another interface": ({**IMAGE, "interfaceUUID": OTHER}, "no shell is described"),
    "the blank image's id": ({**IMAGE, "afuID": BLANK_ID}, "blank image has the same"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_description_that_is_wrong_is_said_and_hides_no_other(case: str, tmp_path: Path) -> None:
    wrong, message = WRONG[case]
    good = {**IMAGE, "function": "good", "afuID": OTHER}
    found = read(tmp_path, shell=SHELL, aaa=wrong, good=good)
    [problem] = found.problems
    assert "aaa.yaml" in problem
    assert message in problem
    assert [one.name for one in found.shells[INTERFACE].shell.functions] == ["good"]


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (IMAGE, "another file describes aes"),
        ({**IMAGE, "function": "sea"}, "aes has the same"),
        ({**SHELL, "name": "other"}, "the same interface"),
        ({**SHELL, "interfaceUUID": OTHER}, "a shell of the same name"),
    ],
)
def test_of_two_descriptions_that_contradict_one_another_the_first_counts(
    second: Mapping[str, Any], message: str, tmp_path: Path
) -> None:
    found = read(tmp_path, a_shell=SHELL, b_image=IMAGE, z_second=second)
    [problem] = found.problems
    assert problem.startswith("z_second.yaml: ")
    assert message in problem
    assert [one.name for one in found.shells[INTERFACE].shell.functions] == ["aes"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"kind: [", "is no YAML"),
        (b"kind: Image\nkind: Shell\n", "twice"),
        (b"#" * 70_000, "more than 65536 bytes"),
        (b"", "object"),
        (b"\xff\xfe\x00", "YAML"),
    ],
)
def test_a_file_that_is_no_document_is_said(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_bytes(content)
    found = read(tmp_path, shell=SHELL)
    [problem] = found.problems
    assert "broken.yaml" in problem
    assert message in problem
    assert INTERFACE in found.shells


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    assert read_descriptions(tmp_path / "none").problems == (
        f"{tmp_path / 'none'} is not there: no shell is described",
    )


# Image files


class Images:
    """A folder with the image ``aes.gbs``, and the description of it."""

    def __init__(self, folder: Path) -> None:
        self.machine = DflMachine(folder)
        self.machine.images.mkdir(parents=True)
        described = self.machine.add_image("aes.gbs", AES_ID)
        self.image = ImageReference(**described, interface_uuid=INTERFACE, afu_id=AES_ID, load_s=0)
        self.file = self.machine.images / "aes.gbs"
        self.folder = ImageFolder(self.machine.images)

    def describe(self, content: bytes) -> None:
        """Replace the file, and describe the new one."""
        described = self.machine.add_image("aes.gbs", AES_ID, content)
        self.image = ImageReference(**described, interface_uuid=INTERFACE, afu_id=AES_ID, load_s=0)


def test_an_image_as_described_is_read_without_its_header(tmp_path: Path) -> None:
    images = Images(tmp_path)
    assert images.folder.find_fault(images.image) == ""
    bits = images.folder.read(images.image)
    assert bits.data[bits.offset :].startswith(b"BITS")
    assert bits.size == len(bits.data) - bits.offset


def _replace_by_a_link_out(images: Images) -> None:
    outside = images.machine.folder / "outside.gbs"
    images.file.rename(outside)
    images.file.symlink_to(outside)


def _replace_by_a_folder(images: Images) -> None:
    images.file.unlink()
    images.file.mkdir()


def _replace_by_a_circle(images: Images) -> None:
    images.file.unlink()
    images.file.symlink_to(images.file)


FAULTS: Final[Mapping[str, tuple[Callable[[Images], object], str]]] = {
    "gone": (lambda images: images.file.unlink(), "cannot be opened"),
    "changed": (lambda images: images.file.write_bytes(build_gbs(AES_ID, padding=1)), "is another file"),
    "a folder": (_replace_by_a_folder, "is no file"),
    "a link out of the folder": (_replace_by_a_link_out, "leads out of"),
    "a link to itself": (_replace_by_a_circle, "cannot be opened"),
    "no GBS file": (lambda images: images.describe(b"\x7fELF"), "does not begin with"),
    "for another interface": (
        lambda images: images.describe(build_gbs(AES_ID, interface=OTHER)),
        f"built for the interface {OTHER}",
    ),
    "another accelerator": (lambda images: images.describe(build_gbs(FFT_ID)), f"is the accelerator {FFT_ID}"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_an_image_that_is_not_what_was_described_is_refused(case: str, tmp_path: Path) -> None:
    """FP-05, FP-06 (the digest)."""
    change, message = FAULTS[case]
    images = Images(tmp_path)
    assert images.folder.find_fault(images.image) == ""
    change(images)
    assert message in images.folder.find_fault(images.image)
    with pytest.raises(HardwareRefusedError, match=message):
        images.folder.read(images.image)


def test_a_link_inside_of_the_folder_is_followed_as_a_mounted_config_map_has_them(tmp_path: Path) -> None:
    images = Images(tmp_path)
    (images.machine.images / "..data").mkdir()
    images.file.rename(images.machine.images / "..data/aes.gbs")
    images.file.symlink_to("..data/aes.gbs")
    assert images.folder.find_fault(images.image) == ""


def test_an_image_that_is_right_again_is_taken_again(tmp_path: Path) -> None:
    images = Images(tmp_path)
    content = images.file.read_bytes()
    images.file.write_bytes(content[:-1])
    assert images.folder.find_fault(images.image)
    images.file.write_bytes(content)
    assert images.folder.find_fault(images.image) == ""
