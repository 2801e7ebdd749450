"""The folder of image files."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

from kerf_dra.driver.families.fpga.descriptions import ImageReference
from kerf_dra.driver.kubeletplugin.backends.base import HardwareRefusedError
from kerf_dra.driver.kubeletplugin.backends.dfl.gbs import read_gbs_header
from kerf_dra.driver.kubeletplugin.backends.fpga.images.cache import ImageCache
from kerf_dra.driver.kubeletplugin.backends.fpga.images.files import MAX_BYTES, ImageFiles
from kerf_dra.driver.kubeletplugin.backends.fpga.images.signatures import KeyRing
from tests.fakes.dfl import build_gbs
from tests.fakes.dfl.machine import AES_ID, FFT_ID, INTERFACE, DflMachine

KEY: Final = """-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAzfKO4nul3qPPnhV8pw+VSfrrEywXUYLsGA0JcMUTeuY=
-----END PUBLIC KEY-----
"""
OTHER: Final = "33333333-3333-4333-8333-333333333333"


class Images:
    """A folder with the image ``aes.gbs``, and the description of it."""

    def __init__(self, folder: Path) -> None:
        self.machine = DflMachine(folder)
        self.machine.images.mkdir(parents=True)
        described = self.machine.add_image("aes.gbs", AES_ID)
        self.image = ImageReference(**described, interface_uuid=INTERFACE, afu_id=AES_ID, load_s=0)
        self.file = self.machine.images / "aes.gbs"
        self.folder = ImageFiles(
            self.machine.images, ImageCache(folder / "cache", 1 << 20), KeyRing({}), read_gbs_header
        )

    def describe(self, content: bytes) -> None:
        """Replace the file, and describe the new one."""
        described = self.machine.add_image("aes.gbs", AES_ID, content)
        self.image = ImageReference(**described, interface_uuid=INTERFACE, afu_id=AES_ID, load_s=0)


def test_an_image_as_described_is_read_without_its_header(tmp_path: Path) -> None:
    images = Images(tmp_path)
    assert images.folder.find_fault(images.image) is None
    with images.folder.open_bits(images.image) as bits:
        assert bits.data[bits.offset :].startswith(b"BITS")
        assert bits.size == len(bits.data) - bits.offset
        assert os.pread(bits.descriptor, bits.size + 1, bits.offset) == bits.data[bits.offset :]


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


def _replace_by_a_pipe(images: Images) -> None:
    images.file.unlink()
    os.mkfifo(images.file)


FAULTS: Final[Mapping[str, tuple[Callable[[Images], object], str]]] = {
    "gone": (lambda images: images.file.unlink(), "cannot be opened"),
    "changed": (lambda images: images.file.write_bytes(build_gbs(AES_ID, padding=1)), "is another file"),
    "a folder": (_replace_by_a_folder, "is not a file"),
    "a link out of the folder": (_replace_by_a_link_out, "leads out of"),
    "a link to itself": (_replace_by_a_circle, "cannot be opened"),
    "too large": (lambda images: os.truncate(images.file, MAX_BYTES + 1), f"has {MAX_BYTES + 1} bytes; at most"),
    "a pipe": (_replace_by_a_pipe, "is not a file"),
    "no GBS file": (lambda images: images.describe(b"\x7fELF"), "does not begin with"),
    "empty": (lambda images: images.describe(b""), "does not begin with"),
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
    assert images.folder.find_fault(images.image) is None
    change(images)
    fault = images.folder.find_fault(images.image)
    assert fault is not None
    assert message in fault.message
    with pytest.raises(HardwareRefusedError, match=message), images.folder.open_bits(images.image):
        pass


def test_a_link_inside_of_the_folder_is_followed_as_a_mounted_config_map_has_them(tmp_path: Path) -> None:
    images = Images(tmp_path)
    (images.machine.images / "..data").mkdir()
    images.file.rename(images.machine.images / "..data/aes.gbs")
    images.file.symlink_to("..data/aes.gbs")
    assert images.folder.find_fault(images.image) is None


def test_an_image_that_is_right_again_is_taken_again(tmp_path: Path) -> None:
    images = Images(tmp_path)
    content = images.file.read_bytes()
    images.file.write_bytes(content[:-1])
    assert images.folder.find_fault(images.image)
    images.file.write_bytes(content)
    assert images.folder.find_fault(images.image) is None


def test_an_image_is_checked_by_the_keys_again_when_it_is_loaded(tmp_path: Path) -> None:
    """FP-06 (the signature)."""
    pytest.importorskip("cryptography")
    images = Images(tmp_path)
    node = ImageFiles(
        images.machine.images, ImageCache(tmp_path / "cache", 0), KeyRing({"release": KEY}), read_gbs_header
    )
    fault = node.find_fault(images.image)
    assert fault is not None
    assert fault.reason == "Unsigned"
    with pytest.raises(HardwareRefusedError, match="has no signature"), node.open_bits(images.image):
        pass


def test_what_is_loaded_is_what_was_checked_though_the_file_is_swapped_for_a_link_in_between(tmp_path: Path) -> None:
    images = Images(tmp_path)
    assert images.folder.find_fault(images.image) is None
    other = images.machine.images / "other.gbs"
    other.write_bytes(build_gbs(AES_ID, padding=128))
    images.file.unlink()
    images.file.symlink_to(other)
    with pytest.raises(HardwareRefusedError, match="is another file"), images.folder.open_bits(images.image):
        pass
