"""The document that describes simulated cards, and opening a backend with it."""

import json
from pathlib import Path

import pytest

from kerf_dra.api.errors import InvalidDocumentError, PermanentError
from kerf_dra.api.model.devices import Attribute
from kerf_dra.api.model.names import ClaimRef, DeviceId, ShareId
from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.families.gpu.catalog import gpu_models
from kerf_dra.driver.kubeletplugin.backends.base import AllocatedDevice
from kerf_dra.driver.kubeletplugin.backends.simulated import open_backend, open_fpgas, open_gpus
from kerf_dra.driver.kubeletplugin.backends.simulated.config import read_config
from kerf_dra.driver.partitions.device_attributes import card_attributes, check_vocabulary
from kerf_dra.driver.partitions.geometry import Placement
from kerf_dra.driver.partitions.slice_limits import MAX_VALUE
from tests.fakes.dfl.machine import AES_ID, INTERFACE, build_document
from tests.kubeletplugin.backends.simulated.machine import Notes
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


def test_a_document_gives_cards_numbered_by_kind(tmp_path: Path) -> None:
    cards = open_backend(write(tmp_path, GOOD)).discover()
    assert [(card.kind, card.index) for card in cards] == [("gpu", 0), ("gpu", 1), ("gpu", 2), ("fpga", 0)]
    assert [card.geometry.model for card in cards[:3]] == ["h100-80gb-sxm", "h100-80gb-sxm", "a30-24gb"]


def test_identities_depend_on_the_seed_or_else_on_the_state_directory(tmp_path: Path) -> None:
    def uuids(text: str) -> list[str]:
        return [card.uuid for card in open_backend(write(tmp_path, text)).discover()]

    plain = uuids(GOOD)
    assert uuids(GOOD) == plain
    assert not set(plain) & set(uuids(GOOD.replace("hardware", "elsewhere")))
    seeded = uuids(GOOD + "seed: node-7\n")
    assert seeded == uuids(GOOD.replace("hardware", "elsewhere") + "seed: node-7\n")
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
    "no YAML": ("{", "is not YAML at line"),
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


def test_a_state_directory_of_other_cards_is_refused(tmp_path: Path) -> None:
    backend = open_backend(write(tmp_path, GOOD))
    card, *_ = backend.discover()
    device = AllocatedDevice(
        claim=ClaimRef("default", "training", "uid-of-training"),
        share=ShareId(DeviceId("gpu.kerf.dev", "node-1/gpu", "gpu-0-1g-10gb-at-0"), None),
        partition=gpu_partition(card, "1g.10gb", 0),
        admin_access=False,
        consumed_capacity={},
    )
    backend.prepare(device, None, Notes(), None)
    with pytest.raises(PermanentError, match="state of gpu-0 as a h100-80gb-sxm, but is configured as a a30-24gb"):
        open_backend(write(tmp_path, GOOD.replace("H100-80GB", "a30")))


def test_each_family_has_its_own_cards_of_one_document(tmp_path: Path) -> None:
    document = write(tmp_path, GOOD)
    gpus, fpgas = open_gpus(document).discover(), open_fpgas(document).discover()
    assert [*gpus, *fpgas] == list(open_backend(document).discover())
    assert [card.kind for card in (*gpus, *fpgas)] == ["gpu", "gpu", "gpu", "fpga"]


def test_a_family_without_cards_in_the_document_has_none(tmp_path: Path) -> None:
    backend = open_fpgas(write(tmp_path, "state: x\ncards: [{kind: gpu, model: a30}]\n"))
    assert backend.discover() == []
    assert backend.wait_for_events(0) == []


def test_a_gpu_and_an_fpga_of_one_numa_node_share_a_pcie_root(tmp_path: Path) -> None:
    cards = open_backend(write(tmp_path, GOOD)).discover()
    roots = {(card.kind, card.index): (card.numa_node, card.pcie_root) for card in cards}
    assert roots["gpu", 0] == roots["fpga", 0] == roots["gpu", 2] == (0, "pci0000:00")
    assert roots["gpu", 1] == (1, "pci0000:80")


def test_cards_say_what_the_document_says_of_sharing_and_drivers(tmp_path: Path) -> None:
    row = "{kind: gpu, model: a30, driverVersion: 550.54.15, sharing: [Mps]}"
    able, plain = open_gpus(write(tmp_path, f"state: x\ncards: [{row}, {{kind: gpu, model: a30}}]\n")).discover()
    assert (able.driver_version, able.attributes["mps"]) == ("550.54.15", Attribute.of(True))
    assert "timeSlicing" not in able.attributes
    assert plain.attributes.keys() == {"cudaDriverVersion", "productName", "simulated"}, (
        "no process runs on a simulated card"
    )


def test_simulated_gpus_say_which_cuda_their_driver_supports(tmp_path: Path) -> None:
    cards = open_backend(write(tmp_path, GOOD)).discover()
    versions = {card.kind: card.attributes.get("cudaDriverVersion") for card in cards}
    assert versions == {"gpu": Attribute(version="13.0.0"), "fpga": None}


@pytest.mark.parametrize("model", [model.id for model in gpu_models()])
def test_every_simulated_card_says_that_it_is_none(tmp_path: Path, model: str) -> None:
    text = f"state: hardware\ncards:\n- {{kind: gpu, model: {model}}}\n- {{kind: fpga, shell: quad}}\n"
    for card, family in zip(open_backend(write(tmp_path, text)).discover(), (GPU, FPGA), strict=True):
        published = card_attributes(card, "node-1", family.vocabulary)
        product = published["productName"].string or ""
        assert product.endswith(" (simulated)")
        assert len(product) <= MAX_VALUE
        assert published["simulated"].value is True
        check_vocabulary(card, family.vocabulary)


def test_a_card_may_have_a_shell_that_an_administrator_describes(tmp_path: Path) -> None:
    shells = tmp_path / "shells"
    shells.mkdir()
    shell = {"interfaceUUID": INTERFACE, "slots": [{"lut": 7}, {"lut": 9}]}
    file = {"file": "aes.gbs", "sha256": "a0" * 32, "slots": [[0, 1]]}
    image = {"function": "aes", "interfaceUUID": INTERFACE, "afuID": AES_ID, "loadSeconds": 0.1, "files": [file]}
    (shells / "shell.yaml").write_text(json.dumps(build_document("FpgaShell", "mine", **shell)))
    (shells / "image.yaml").write_text(json.dumps(build_document("FpgaImage", "aes", **image)))
    path = tmp_path / "cards.yaml"
    cards = "[{kind: fpga, shell: mine}, {kind: fpga, shell: quad}]"
    path.write_text(f"state: state\ndescriptionFolder: shells\ncards: {cards}\n")
    mine, quad = open_fpgas(path).discover()
    assert (mine.geometry.model, mine.units, quad.geometry.model) == ("mine", 2, "quad")
    assert {(spec.function, spec.placement) for spec in mine.geometry.specs if spec.function} == {
        ("aes", Placement(0, 2))
    }
    (shells / "image.yaml").write_text(json.dumps(build_document("FpgaImage", "aes", **{**image, "slots": 1})))
    with pytest.raises(InvalidDocumentError, match=r"spec\.slots: unknown field"):
        read_config(path)
