"""The hardware that a demo gives its nodes: simulated, or a copy of what the user's backends are configured with."""

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from driver.cli.demo import command
from driver.demo.hardware import DemoHardware, HardwareUnusableError
from driver.kubeletplugin.backends.registry import BackendChoice, BackendUnavailableError


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
