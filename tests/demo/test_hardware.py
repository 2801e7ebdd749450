"""The hardware that a demo gives its nodes: simulated, or a copy of what the user's backends are configured with."""

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from kerf_dra.driver.cli import main
from kerf_dra.driver.cli.demo import command
from kerf_dra.driver.demo.hardware import DemoHardware, HardwareUnusableError
from kerf_dra.driver.kubeletplugin.backends.registry import BackendChoice, BackendUnavailableError
from kerf_dra.driver.runtime import boot


def test_nodes_have_simulated_cards_that_differ(tmp_path: Path) -> None:
    row = {"kind": "gpu", "model": "h100-80gb-sxm", "count": 2}
    written = [DemoHardware(cards=(row,)).write(tmp_path / node, node) for node in ("node-1", "node-2")]
    documents = [yaml.safe_load(choice.config.read_text()) for [choice] in written if choice.config]
    assert [document["cards"] for document in documents] == [[row], [row]]
    assert documents[0]["seed"] != documents[1]["seed"]


@pytest.mark.parametrize("is_folder", [True, False])
def test_each_node_has_its_own_copy_of_a_backends_configuration(tmp_path: Path, is_folder: bool) -> None:
    config = tmp_path / "config"
    if is_folder:
        (config / "npu-0").mkdir(parents=True)
    else:
        config.write_text("cards: 2")
    hardware = DemoHardware(backends=(BackendChoice(name="acme", config=config), BackendChoice(name="plain")))
    copied, plain = hardware.write(tmp_path / "node-1", "node-1")
    assert plain == BackendChoice(name="plain")
    assert copied.config is not None
    assert copied.config.is_relative_to(tmp_path / "node-1")
    assert (copied.config / "npu-0").is_dir() if is_folder else copied.config.read_text() == "cards: 2"
    assert str(copied) == f"acme={copied.config}"


def test_a_configuration_that_cannot_be_copied_is_named(tmp_path: Path) -> None:
    hardware = DemoHardware(backends=(BackendChoice(name="acme", config=tmp_path / "nothing"),))
    with pytest.raises(HardwareUnusableError, match=r"'acme'.*nothing"):
        hardware.write(tmp_path / "node-1", "node-1")


def test_a_backend_that_is_not_installed_is_named_before_anything_starts() -> None:
    with pytest.raises(BackendUnavailableError, match="there is no backend 'acmee'"):
        DemoHardware(backends=(BackendChoice(name="acmee"),)).find_families()


def test_a_wrong_configuration_is_told_by_its_own_name_before_anything_starts(tmp_path: Path) -> None:
    config = tmp_path / "cards.yaml"
    config.write_text("cards: [")
    hardware = DemoHardware(backends=(BackendChoice(name="simulated", config=config),))
    copied = hardware.write(tmp_path / "node-1", "node-1")
    with pytest.raises(HardwareUnusableError) as caught:
        hardware.check(copied)
    assert str(caught.value).startswith(f"{config}: ")
    assert "node-1" not in str(caught.value)


def test_without_a_boot_id_the_demo_says_in_one_line_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On macOS, and in a sandbox that hides /proc."""
    monkeypatch.setattr(boot, "BOOT_ID", tmp_path / "boot_id")
    assert main(["demo"]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"kerf: {tmp_path}/boot_id cannot be read")
    assert "Kerf needs Linux" in line


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--backend", "simulated"], "--backend needs your manifests (-f)"),
        (["--backend", "simulated", "-f", "pods.yaml", "--classic"], "--backend does not go with --classic"),
        (["--family", "gpu"], "--family needs --backend"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments: list[str], problem: str) -> None:
    result = CliRunner().invoke(command, arguments)
    assert (result.exit_code, problem in result.output) == (2, True), result.output
