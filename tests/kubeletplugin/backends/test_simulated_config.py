"""The document that describes simulated cards, and opening a backend with it."""

from pathlib import Path

import pytest

from api.errors import InvalidDocumentError, PermanentError
from api.model.names import ClaimRef, DeviceId, ShareId
from driver.kubeletplugin.backends.base import AllocatedDevice
from driver.kubeletplugin.backends.simulated import open_backend
from driver.kubeletplugin.backends.simulated.config import read_config
from tests.partitions.cards import gpu_partition

GOOD = """
state: hardware
cards:
- {kind: gpu, model: H100-80GB, count: 2}
- {kind: fpga, shell: quad}
- {kind: gpu, model: a30}
delays: {nvmlGpuInstanceDestroy: 0.5}
pace: 0
"""


def write(directory: Path, text: str) -> Path:
    path = directory / "simulated.yaml"
    path.write_text(text)
    return path


async def test_a_document_gives_cards_numbered_by_kind(tmp_path: Path) -> None:
    cards = await open_backend(write(tmp_path, GOOD)).discover()
    assert [(card.kind.value, card.index) for card in cards] == [("gpu", 0), ("gpu", 1), ("gpu", 2), ("fpga", 0)]
    assert [getattr(card, "model", card).id for card in cards[:3]] == ["h100-80gb-sxm", "h100-80gb-sxm", "a30-24gb"]  # type: ignore[union-attr]


async def test_identities_depend_on_the_seed_or_else_on_the_state_directory(tmp_path: Path) -> None:
    async def uuids(text: str) -> list[str]:
        return [card.uuid for card in await open_backend(write(tmp_path, text)).discover()]

    plain = await uuids(GOOD)
    assert await uuids(GOOD) == plain
    assert not set(plain) & set(await uuids(GOOD.replace("hardware", "elsewhere")))
    seeded = await uuids(GOOD + "seed: node-7\n")
    assert seeded == await uuids(GOOD.replace("hardware", "elsewhere") + "seed: node-7\n")
    assert not set(plain) & set(seeded)


def test_a_relative_state_directory_lies_beside_the_document(tmp_path: Path) -> None:
    open_backend(write(tmp_path, GOOD))
    assert (tmp_path / "hardware").is_dir()
    assert (tmp_path / "hardware").stat().st_mode & 0o077 == 0, "only the owner may change what hardware does"


BAD = {
    "a misspelt field": ("stat: x\ncards: []\n", "stat"),
    "a missing field": ("cards: []\n", "state"),
    "another type": ("state: x\ncards: [{kind: gpu, model: h100-80gb, count: two}]\n", r"cards\[0\]\.count"),
    "no cards of a kind": ("state: x\ncards: [{kind: gpu, model: h100-80gb, count: 0}]\n", r"cards\[0\]\.count"),
    "an unknown kind": ("state: x\ncards: [{kind: tpu, model: v5}]\n", r"cards\[0\]\.kind: Invalid value 'tpu'"),
    "a field of the other kind": ("state: x\ncards: [{kind: fpga, shell: quad, model: a30}]\n", r"cards\[0\]: .*model"),
    "an unknown model": (
        "state: x\ncards: [{kind: gpu, model: h100}, {kind: fpga, shell: quat}]\n",
        r"cards\[0\]\.model: there is no GPU model 'h100'.*; cards\[1\]\.shell: .*did you mean quad",
    ),
    "an unknown step": ("state: x\ncards: []\ndelays: {nvmlDeviceReset: 1}\n", "delays: .*nvmlDeviceReset"),
    "a negative delay": ("state: x\ncards: []\ndelays: {fpga-program: -1}\n", "delays"),
    "no YAML": ("{", "is no YAML at line"),
    "no mapping": ("- a\n", "object"),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD.keys())
def test_what_is_wrong_with_a_document_is_said_with_its_path(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidDocumentError, match=rf"(?s)simulated\.yaml: .*{message}"):
        read_config(write(tmp_path, text))


def test_a_document_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidDocumentError, match=r"nothing\.yaml"):
        read_config(tmp_path / "nothing.yaml")


def test_without_a_document_the_error_shows_one() -> None:
    with pytest.raises(PermanentError, match="kind: gpu"):
        open_backend(None)


async def test_a_state_directory_of_other_cards_is_refused(tmp_path: Path) -> None:
    backend = open_backend(write(tmp_path, GOOD))
    card, *_ = await backend.discover()
    device = AllocatedDevice(
        claim=ClaimRef("default", "training", "uid-of-training"),
        share=ShareId(DeviceId("kerf.dev", "node-1/gpu", "gpu-0-1g-10gb-at-0"), None),
        partition=gpu_partition(card, "1g.10gb", 0),
        admin_access=False,
        consumed_capacity={},
    )
    await backend.prepare(device, None)
    with pytest.raises(PermanentError, match="state of gpu-0 as a h100-80gb-sxm, but is configured as a a30-24gb"):
        open_backend(write(tmp_path, GOOD.replace("H100-80GB", "a30")))
