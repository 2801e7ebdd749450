"""``kerf families``: what users' selectors can name."""

import json

import pytest

from driver.cli import main
from driver.families.registry import BUILT_IN


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["families", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_installed_families_are_listed_with_driver_backends_and_configurations(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = run(capsys)
    assert code == 0
    assert [line.split() for line in out.splitlines()] == [
        ["FAMILY", "DRIVER", "BACKENDS", "CONFIGURATIONS"],
        ["gpu", "gpu.kerf.dev", "simulated,", "nvidia,", "nvidia-fake", "GpuConfig"],
        ["fpga", "fpga.kerf.dev", "simulated", "FpgaConfig"],
    ]


@pytest.mark.parametrize("family", BUILT_IN, ids=lambda family: family.name)
def test_a_family_is_described_with_every_attribute_and_capacity_within_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, family: object
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert family in BUILT_IN
    for each in (one for one in BUILT_IN if one == family):
        _, out, _ = run(capsys, each.name)
        for name in (*each.attributes, *each.capacities):
            assert f"\n  {name.rpartition('/')[2]} (" in out or f"\n  {name}\n" in out, name
        flat = " ".join(out.split())
        assert all(attribute.description in flat for attribute in each.attributes.values())
        assert all(description in flat for description in each.capacities.values())
        assert max(map(len, out.splitlines())) <= 80


def test_a_program_gets_the_vocabulary_as_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "fpga", "-o", "json")
    (fpga,) = json.loads(out)
    assert (fpga["name"], fpga["driver"]) == ("fpga", "fpga.kerf.dev")
    assert fpga["attributes"]["driverVersion"]["type"] == "version"
    assert fpga["attributes"]["loadSeconds"]["type"] == "int"
    assert fpga["minimums"] == ["slots", "lut", "dsp"]


def test_an_unknown_family_is_an_error_with_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "gpus")
    assert code == 1
    assert err == "kerf: there is no family 'gpus'; installed are: fpga, gpu; did you mean 'gpu'?\n"
