"""``kerf new-driver``: what it makes passes the contract suite and ``kerf sanity``, before anybody has changed it."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from kerf_dra.driver.cli import kerf
from kerf_dra.driver.cli.catalog.new_driver import build_files, read_example, rename
from kerf_dra.driver.sanity import restart_rows
from kerf_dra.driver.sanity.run import ROWS, run_rows
from tests.kubeletplugin.harness import short_directory
from tests.sanity.node import kerf_command, one_driver
from tests.testing.installed_example import install, run_module

NAME, VENDOR = "quantum", "umbrella"
DRIVER = "quantum.umbrella.example"


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """The folder of a new driver."""
    folder = tmp_path / "made"
    done = CliRunner().invoke(kerf, ["new-driver", NAME, f"--vendor={VENDOR}", f"--folder={folder}"])
    assert done.exit_code == 0, done.output
    assert done.output.startswith(f"{folder} has the driver {DRIVER}. Next:\n")
    return folder


def test_the_example_is_the_driver_with_its_own_names() -> None:
    example = read_example()
    assert build_files(example, name="npu", vendor="acme") == example


def test_no_name_of_the_example_is_left(made: Path) -> None:
    for path in made.iterdir():
        assert not {"acme", "npu"} & {*path.name.lower().replace(".", "_").split("_")}
        assert "acme" not in path.read_text().lower()
        assert "npu" not in path.read_text().lower()
    assert (made / "umbrella_quantum.py").is_file()


@pytest.mark.parametrize(
    ("old", "new"),
    [("NPU", "QUANTUM"), ("NpuConfig", "QuantumConfig"), ("acme_npu", "umbrella_quantum"), ("Acme's", "Umbrella's")],
)
def test_names_are_written_as_the_example_writes_them(old: str, new: str) -> None:
    assert rename(old, name=NAME, vendor=VENDOR) == new


def test_it_passes_the_contract_of_backends(made: Path, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    environment = install(tmp_path / "site", made)
    shutil.copy(made / "test_umbrella_quantum.py", tmp_path)
    printed = run_module(environment, tmp_path, "pytest", "-q", "-p", "no:cacheprovider", "test_umbrella_quantum.py")
    assert " passed" in printed
    assert "failed" not in printed


async def test_it_meets_every_row_of_kerf_sanity(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restart_rows, "_CYCLES", 20)
    (tmp_path / "site").mkdir()
    for number in range(2):
        (tmp_path / f"cards/quantum-{number}").mkdir(parents=True)
    variables = {"PYTHONPATH": install(tmp_path / "site", made)["PYTHONPATH"]}
    with short_directory() as root:
        command = kerf_command(root, NAME, f"{VENDOR}={tmp_path / 'cards'}")
        async with one_driver(root, DRIVER, command, variables) as driver:
            results = [result async for result in run_rows(driver, ROWS)]
    assert [(result.row.id, result.outcome, result.seen) for result in results] == [
        (row.id, "passed", "") for row in ROWS
    ]


def test_its_values_name_its_driver(made: Path) -> None:
    values = yaml.safe_load((made / "values.yaml").read_text())
    assert DRIVER in values["drivers"]
    assert [(each["families"], [*each["backends"]]) for each in values["plugins"]] == [([DRIVER], [VENDOR])]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gpu"], "there is a family of this name"),
        (["Npu"], "2 to 16 lower-case letters and digits, the first a letter"),
        (["tpu", "--vendor=a.b"], "--vendor 'a.b'"),
    ],
)
def test_a_name_that_cannot_be_is_refused(arguments: Sequence[str], message: str) -> None:
    done = CliRunner().invoke(kerf, ["new-driver", *arguments])
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())


def test_a_folder_that_is_there_is_left_alone(made: Path) -> None:
    (made / "umbrella_quantum.py").write_text("mine")
    done = CliRunner().invoke(kerf, ["new-driver", NAME, f"--folder={made}"])
    assert done.exit_code != 0
    assert (made / "umbrella_quantum.py").read_text() == "mine"
