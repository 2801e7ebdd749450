"""``kerf families``: what users' selectors can name, and policies on parameters."""

import json
from pathlib import Path

import pytest
import yaml

from kerf_dra.driver.cli import main
from kerf_dra.driver.families.registry import BUILT_IN
from tools.generate import policies


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
        ["gpu", "gpu.kerf.dev", "nvidia,", "nvidia-fake,", "simulated", "GpuConfig"],
        ["fpga", "fpga.kerf.dev", "dfl,", "xrt,", "slots,", "simulated", "FpgaConfig"],
        ["gpu-intel", "gpu-intel.kerf.dev", "intel", "IntelGpuConfig"],
        ["shared", "shared.kerf.dev", "discovered", "-"],
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


def test_the_device_class_of_a_family_is_printed_in_the_version_of_the_cluster(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, out, _ = run(capsys, "fpga", "--device-classes", "--api-version", "v1beta1")
    (document,) = yaml.safe_load_all(out)
    assert (document["apiVersion"], document["metadata"]["name"]) == ("resource.k8s.io/v1beta1", "fpga.kerf.dev")
    assert [selector["cel"]["expression"] for selector in document["spec"]["selectors"]] == [
        'device.driver == "fpga.kerf.dev"',
        'device.attributes["fpga.kerf.dev"].cut != "monitor"',
        'device.attributes["fpga.kerf.dev"].shared == false',
    ]


def test_an_unknown_family_is_an_error_with_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "gpus")
    assert code == 1
    assert err == "kerf: there is no family 'gpus'; installed are: fpga, gpu, gpu-intel, shared; did you mean 'gpu'?\n"


def test_the_manifest_has_the_policies_of_kerfs_own_families(tmp_path: Path) -> None:
    (path,) = policies.generate(tmp_path)
    assert (policies.ROOT / path).read_text() == (tmp_path / path).read_text(), "run `make generate`"


def test_the_policies_of_one_family_are_printed_for_kubectl(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "fpga", "--policies")
    assert code == 0
    assert "`kerf families --policies fpga`" in out
    policy, binding = yaml.safe_load_all(out)
    assert policy["metadata"]["name"] == binding["spec"]["policyName"] == "parameters.fpga.kerf.dev"


def test_policies_have_one_form(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "--policies", "-o", "json")
    assert code == 2
    assert "leave --output out" in err
