"""An installed Kerf needs no checkout, and no name on a user's path is in its way.

It once installed the top-level packages ``api``, ``cdi`` and ``driver``: beside a folder ``api`` of the user's own
every command ended with a ModuleNotFoundError.
"""

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tools.sources import IMPORT_PACKAGE, PRODUCT

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs/examples/npu"


@dataclass(frozen=True, slots=True)
class Installation:
    """An environment with Kerf, and a folder with foreign packages where its programs are started."""

    environment: Path
    folder: Path

    def run(self, *command: str) -> str:
        """Run a program of the environment and return what it prints."""
        variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        variables |= {"PYTHONPATH": str(self.folder), "TMPDIR": str(self.folder)}
        done = subprocess.run(
            [str(self.environment / "bin" / command[0]), *command[1:]],
            cwd=self.folder,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
        return done.stdout


def build(target: str, source: Path, folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    [made] = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdist", ROOT, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel is built from the sdist: as package indexes' users build it, without the checkout's links."""
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, filter="data")
    [source] = unpacked.iterdir()
    return build("wheel", source, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module", params=["wheel", pytest.param("sdist", marks=pytest.mark.long)])
def installation(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """An environment with the packages that this one has, into which pip installs Kerf; nothing is downloaded."""
    made: Path = request.getfixturevalue(request.param)
    environment = tmp_path_factory.mktemp("environment")
    venv.create(environment, with_pip=True)
    paths = {"base": str(environment), "platbase": str(environment)}
    site = Path(sysconfig.get_path("purelib", vars=paths))
    # A path in a .pth file brings packages, and not what their own .pth files say: this checkout is not found.
    (site / "of_the_tests.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    pip = [str(environment / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-index", "--no-deps", "--no-build-isolation", str(made)], check=True)
    with tempfile.TemporaryDirectory(prefix="kw", dir="/tmp") as name:
        for package in PRODUCT:
            for parent in (Path(name), site):
                (parent / package).mkdir()
                (parent / package / "__init__.py").write_text(f"raise ImportError('the foreign {package}')\n")
        yield Installation(environment, Path(name))


def test_every_module_of_kerf_is_in_the_wheel(wheel: Path) -> None:
    kept = {path.as_posix() for package in PRODUCT for path in (ROOT / package).rglob("*.py")}
    expected = {f"{IMPORT_PACKAGE}/{Path(path).relative_to(ROOT)}" for path in kept} | {f"{IMPORT_PACKAGE}/__init__.py"}
    expected |= {f"{IMPORT_PACKAGE}/driver/deploy/npu/{path.name}" for path in EXAMPLE.glob("*.py")}
    with zipfile.ZipFile(wheel) as archive:
        assert {name for name in archive.namelist() if name.endswith(".py")} == expected


def test_an_installed_kerf_runs_beside_foreign_packages_of_its_folders_names(installation: Installation) -> None:
    assert installation.run("kerf", "version").startswith("kerf 0.")
    code = f"import {IMPORT_PACKAGE} as kerf; print(kerf.__file__)"
    package = Path(installation.run("python", "-c", code).strip()).parent
    assert package.is_relative_to(installation.environment)
    made = installation.run("kerf", "new-driver", "tpu", "--folder", str(package.parent / "new-driver"))
    assert "has the driver tpu.acme.example" in made
    example = package / "driver/deploy/examples/gpu-small"
    printed = installation.run("kerf", "demo", "-f", str(example), "--nodes", "1", "-o", "json")
    assert json.loads(printed)["left"]["partitions"] == 0


def test_the_contract_suite_runs_beside_foreign_packages(installation: Installation) -> None:
    for module in ("acme_npu.py", "test_acme_npu.py"):
        (installation.folder / module).write_text((EXAMPLE / module).read_text())
    printed = installation.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_acme_npu.py")
    assert " passed" in printed
