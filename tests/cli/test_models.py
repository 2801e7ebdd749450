"""``kerf models``: which models are known, which figures are from a source, and which are estimated."""

import json

import pytest
import yaml

from kerf_dra.driver.cli import main
from kerf_dra.driver.families.gpu.catalog import gpu_figures, gpu_models
from kerf_dra.driver.families.gpu_intel.catalog import intel_gpus


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["models", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_every_model_is_listed_with_what_is_estimated_within_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys)
    assert code == 0
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    listed = {line.split()[0]: line.split(maxsplit=2)[2] for line in lines if line and "MODEL" not in line}
    assert listed.keys() == {model.id for model in gpu_models()} | {gpu.id for gpu in intel_gpus()}
    assert listed["h100-80gb-sxm"] == "-"
    assert listed["h100-80gb-pcie"] == "placements, multiprocessors"
    assert listed["b300-269gb"] == "placements, memory, multiprocessors, engines"
    assert listed["max-1550"] == "memory"
    assert "FPGA" not in out, "what shells there are, a cluster's descriptions say"


def test_a_model_is_told_with_its_sources_and_the_rule_of_each_estimate(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "H100-PCIe")
    assert max(map(len, out.splitlines())) <= 80
    assert out.startswith("Model:        h100-80gb-pcie (gpu)\nProduct:      NVIDIA H100 PCIe\n")
    flat = " ".join(out.split())
    assert "- kubernetes-sigs/dra-driver-nvidia-gpu PR 1018, log: 7g has 114 multiprocessors" in flat
    assert "- multiprocessors of 1g.10gb, 1g.10gb+me, 1g.20gb, 2g.20gb, 3g.40gb, 4g.40gb: the sibling's figure" in flat
    assert "(sibling: h100-80gb-sxm)" in flat
    assert "- multiprocessors, engines of the whole card: the whole card has at least what its" in flat


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_a_program_gets_every_figure_with_sources_and_estimates(
    capsys: pytest.CaptureFixture[str], output: str
) -> None:
    _, out, _ = run(capsys, "-o", output)
    document = json.loads(out) if output == "json" else yaml.load(out, yaml.CSafeLoader)
    figures = {geometry["model"]: geometry["figures"] for geometry in document["gpu"]}
    assert all(one["sources"] for one in figures.values())
    estimated = {(one["part"], one["figure"]) for one in figures["h100-80gb-pcie"]["estimated"]}
    assert ("1g.10gb", "multiprocessors") in estimated
    assert ("all", "placements") in estimated
    assert ("7g.80gb", "multiprocessors") not in estimated, "a log has it"
    _, one, _ = run(capsys, "max-1550", "-o", output)
    assert [*(json.loads(one) if output == "json" else yaml.safe_load(one))] == ["gpu-intel"]


def test_an_unknown_model_is_told_with_those_that_begin_so(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "gh200")
    assert code == 1
    assert "there is no model 'gh200': did you mean gh200-96gb, gh200-144gb?" in err


def test_every_estimate_is_of_a_profile_that_the_model_has() -> None:
    figures = gpu_figures()
    assert figures.keys() == {model.id for model in gpu_models()}
    for model in gpu_models():
        parts = {"all", "whole"} | {profile.name for profile in model.profiles}
        assert {one.part for one in figures[model.id].estimated} <= parts


def test_the_partitions_of_a_model_are_a_table_with_what_to_ask_for(capsys: pytest.CaptureFixture[str]) -> None:
    """It listed the names alone: who looked for 20 GB found no size."""
    _, out, _ = run(capsys, "h100-80gb-sxm")
    lines = out.splitlines()
    begin = lines.index("PARTITION   MEMORY   COMPUTE SLICES  MULTIPROCESSORS  PER CARD  UP TO")
    assert lines[begin + 1 : begin + 9] == [
        "1g.10gb     9984Mi   1               16               7         9Gi or 10G",
        "1g.10gb+me  9984Mi   1               16               1         -",
        "1g.20gb     20096Mi  1               26               4         19Gi or 21G",
        "2g.20gb     20096Mi  2               32               3         -",
        "3g.40gb     40448Mi  3               60               2         39Gi or 42G",
        "4g.40gb     40448Mi  4               64               1         -",
        "7g.80gb     81152Mi  7               132              1         79Gi or 85G",
        "whole card  81559Mi  7               132              1         81559Mi",
    ]


@pytest.mark.parametrize("model", [model.id for model in gpu_models()] + [gpu.id for gpu in intel_gpus()])
def test_the_table_of_every_model_fits_a_terminal(capsys: pytest.CaptureFixture[str], model: str) -> None:
    _, out, _ = run(capsys, model)
    assert "PARTITION" in out
    assert max(map(len, out.splitlines())) <= 80
