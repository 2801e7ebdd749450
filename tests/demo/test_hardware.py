"""The hardware that a demo gives its nodes: simulated, or a copy of what the user's backends are configured with."""

import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from kerf_dra.driver.cli import main
from kerf_dra.driver.cli.demo import command
from kerf_dra.driver.demo.hardware import DemoHardware, FoundHardware, HardwareUnusableError
from kerf_dra.driver.families.shared.family import SHARED
from kerf_dra.driver.kubeletplugin.backends.registry import BackendChoice, BackendUnavailableError
from kerf_dra.driver.runtime import boot
from tests.fakes.pci import add_pci_device


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


POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: one}\nspec: {containers: [{name: one, image: one}]}\n"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine without a driver for its two cards of Intel."""
    for address in ("0000:03:00.0", "0000:04:00.0"):
        add_pci_device(tmp_path / "machine", address, (0x8086, 0x56A0), 0x0300)
    (tmp_path / "machine/sys/class/fpga_region").mkdir(parents=True)
    return tmp_path / "machine"


def choose(tmp_path: Path, name: str, config: str) -> BackendChoice:
    path = tmp_path / f"{name}.yaml"
    path.write_text(config)
    return BackendChoice(name=name, config=path)


def check(tmp_path: Path, *choices: BackendChoice, families: tuple[str, ...] = ()) -> FoundHardware:
    hardware = DemoHardware(backends=choices, families=families)
    return hardware.check(hardware.write(tmp_path / "node-1", "node-1"))


@pytest.mark.parametrize(
    ("name", "config", "says"),
    [
        (
            "intel",
            "systemRoot: {machine}",
            "gpu-intel.kerf.dev has no card: intel found none; 0000:03:00.0 (8086:56a0): no driver has it",
        ),
        ("dfl", "systemRoot: {machine}\ndescriptionFolder: {machine}/shells", "/shells is not there: no shell is"),
        ("nvidia", "systemRoot: {machine}\ndriverRoot: {machine}", "gpu.kerf.dev has no card: "),
        (
            "simulated",
            "state: .\ncards: []",
            "gpu.kerf.dev has no card: simulated found none; fpga.kerf.dev has no card: ",
        ),
    ],
)
def test_backends_without_a_card_are_refused_with_the_reason_before_anything_starts(
    machine: Path, tmp_path: Path, name: str, config: str, says: str
) -> None:
    """The demo was silent for two minutes, and the plugin's log had the reason."""
    with pytest.raises(HardwareUnusableError, match=re.escape(says)):
        check(tmp_path, choose(tmp_path, name, config.format(machine=machine)))


def test_the_demo_ends_at_once_with_that_reason(
    machine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    choice = choose(tmp_path, "intel", f"systemRoot: {machine}")
    (tmp_path / "pod.yaml").write_text(POD)
    assert main(["demo", "--backend", str(choice), "-f", str(tmp_path / "pod.yaml")]) == 1
    assert (
        "kerf: gpu-intel.kerf.dev has no card: intel found none; 0000:03:00.0 (8086:56a0): no driver has it"
        in capsys.readouterr().err
    )


def test_a_family_without_cards_beside_one_that_has_some_is_not_waited_for(tmp_path: Path) -> None:
    choice = choose(tmp_path, "simulated", "state: .\ncards: [{kind: gpu, model: a30, count: 2}]")
    found = check(tmp_path, choice)
    assert found.drivers == {"gpu.kerf.dev"}
    assert found.lacking == {"fpga.kerf.dev": "simulated found none"}


def test_devices_that_nodes_find_by_discovery_are_not_waited_for(tmp_path: Path) -> None:
    choice = choose(tmp_path, "simulated", "state: .\ncards: [{kind: gpu, model: a30, count: 2}]")
    for found in (
        check(tmp_path / "a", BackendChoice(name="discovered")),
        check(tmp_path / "b", BackendChoice(name="discovered"), choice, families=("shared", "gpu")),
    ):
        assert "shared.kerf.dev" not in found.drivers
        assert "DiscoveryConfigurations" in found.lacking[SHARED.driver]
