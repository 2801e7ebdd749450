"""``kerf devices``: what this node's backends see, one table for each family."""

import json
from pathlib import Path

import pytest

from driver.cli import main


@pytest.fixture
def backend(tmp_path: Path) -> str:
    path = tmp_path / "cards.yaml"
    path.write_text("state: hardware\ncards: [{kind: gpu, model: h100-80gb-sxm}, {kind: fpga, shell: quad}]\n")
    return f"--backend=simulated={path}"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["devices", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_each_family_has_a_table_with_its_own_sizes_within_80_columns(
    capsys: pytest.CaptureFixture[str], backend: str
) -> None:
    code, out, _ = run(capsys, backend)
    assert code == 0
    gpus, fpgas = out.split("\n\n")
    assert gpus.splitlines()[0] == "gpu.kerf.dev, pool this-node/gpu"
    assert gpus.splitlines()[2].split() == ["DEVICE", "CUT", "PLACEMENT", "MEMORY", "COMPUTESLICES"]
    rows = {row[0]: row[1:] for row in map(str.split, (gpus + fpgas).splitlines())}
    assert rows["gpu-0-3g-40gb-at-4"][:2] == ["3g.40gb", "4:4"]
    assert rows["gpu-0"][:2] == ["whole", "0:8"]
    assert fpgas.splitlines()[2].split() == ["DEVICE", "CUT", "PLACEMENT", "SLOTS", "LUT", "DSP"]
    assert rows["fpga-0-aes-gcm-at-1"][:3] == ["aes-gcm", "1:1", "1"]
    assert max(map(len, out.splitlines())) <= 80


def test_one_family_can_be_chosen(capsys: pytest.CaptureFixture[str], backend: str) -> None:
    _, out, _ = run(capsys, backend, "--family=fpga", "-o", "json")
    (family,) = json.loads(out)["families"]
    assert (family["name"], family["driver"], len(family["cards"])) == ("fpga", "fpga.kerf.dev", 1)
    assert family["pool"]["name"] == "this-node/fpga"


def test_a_family_without_cards_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "cards.yaml"
    path.write_text("state: hardware\ncards: [{kind: gpu, model: a30}]\n")
    code, out, _ = run(capsys, f"--backend=simulated={path}")
    assert code == 0
    assert out.endswith("\n\nfpga.kerf.dev: no cards\n")


def test_an_unknown_backend_is_an_error_with_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "--backend=simulatd")
    assert code == 1
    assert err.startswith("kerf: there is no backend 'simulatd'; installed are: simulated; did you mean 'simulated'?")
