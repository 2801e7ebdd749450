"""The backend ``nvidia-fake``, and machines made from the command line."""

import os
import subprocess
import sys
from pathlib import Path

import pynvml
import pytest

from kerf_dra.api.errors import InvalidDocumentError, PermanentError
from kerf_dra.driver.cli import main
from kerf_dra.driver.testing.nvml import NvidiaMachine
from kerf_dra.driver.testing.nvml.__main__ import main as make_machine
from kerf_dra.driver.testing.nvml.demonstration import open_backend
from tests.fakes.nvml import NEEDS_COMPILER, open_nvml

pytestmark = NEEDS_COMPILER

CARDS = "cards: [{model: h100-80gb, count: 2}, {model: a100-40gb, mig: true}]\n"


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "cards.yaml"
    path.write_text(CARDS)
    return path


def test_the_cards_are_shown_as_any_others_within_80_columns(
    document: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["devices", f"--backend=nvidia-fake={document}", f"--state-dir={document.parent}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["gpu.kerf.dev, pool this-node/gpu", "3 cards, 78 devices in 3 slices"]
    assert "gpu-2: not available whole: MIG mode is on, and to switch it off takes a reset:" in lines
    assert any(line.split()[:3] == ["gpu-0-3g-40gb-at-4", "3g.40gb", "4:4"] for line in lines)
    assert max(map(len, lines)) <= 80


def test_each_document_has_a_machine_of_its_own_which_stays(document: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "cards.yaml").write_text("cards: [{model: a30}]\n")
    seen = []
    for path in (document, tmp_path / "other" / "cards.yaml", document):
        backend = open_backend(path)
        backend.open()
        seen.append([card.uuid for card in backend.discover()])
        backend.close()
    assert [len(uuids) for uuids in seen] == [3, 1, 3]
    assert seen[0] == seen[2]


@pytest.mark.parametrize(
    ("text", "message"),
    [("cards: [{model: h100-80gb, number: 2}]", "unknown field `number`"), ("{}", "missing required field `cards`")],
)
def test_an_invalid_document_is_refused_with_its_path(document: Path, text: str, message: str) -> None:
    document.write_text(text)
    with pytest.raises(InvalidDocumentError, match=message):
        open_backend(document)


def test_without_a_document_an_example_is_given() -> None:
    with pytest.raises(PermanentError, match="cards: "):
        open_backend(None)


def test_a_machine_of_the_command_line_is_found_by_the_variables_that_it_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert make_machine([str(tmp_path / "m"), "h100-80gb", "a30"]) == 0
    printed = [line.removeprefix("export ").split("=") for line in capsys.readouterr().out.splitlines()]
    code = "import pynvml; pynvml.nvmlInit(); print(pynvml.nvmlDeviceGetCount())"
    environment = {**os.environ, **dict(printed)}
    command = [sys.executable, "-c", code]
    assert subprocess.check_output(command, env=environment, text=True, timeout=240) == "2\n"
    assert make_machine([str(tmp_path / "m"), "a30"]) == 1
    assert "is there already" in capsys.readouterr().err
    assert make_machine([str(tmp_path / "m")]) == 2


def test_a_reset_by_hand_ends_instances_and_takes_the_pending_mode(tmp_path: Path) -> None:
    assert make_machine([str(tmp_path / "m"), "a100-40gb"]) == 0
    machine = NvidiaMachine(tmp_path / "m")
    machine.start_process(0, 1)
    with open_nvml(machine):
        card = pynvml.nvmlDeviceGetHandleByIndex(0)
        assert pynvml.nvmlDeviceSetMigMode(card, 1) == pynvml.NVML_ERROR_IN_USE
        machine.remap_rows(0, uncorrectable=1, is_pending=True)
        machine.reset_card(0)
        assert pynvml.nvmlDeviceGetMigMode(card) == [1, 1]
        assert pynvml.nvmlDeviceGetRemappedRows(card) == (0, 1, 0, 0)


def test_the_stand_in_needs_nothing_of_what_the_contract_suite_needs() -> None:
    code = (
        "import sys, kerf_dra.driver.testing.nvml.demonstration;"
        "print({'pytest', 'hypothesis', 'pynvml'} & {*sys.modules})"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True, timeout=240) == "set()\n"
