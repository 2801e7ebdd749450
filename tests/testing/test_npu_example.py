"""The example of ``docs/write-a-backend.md``: the page quotes it, and it works as the page says."""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs/examples/npu"
PAGE = (ROOT / "docs/write-a-backend.md").read_text()


def quotes(language: str, page: str = PAGE) -> list[str]:
    """The page's code blocks."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)


def code_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment of a Python in which the example is installed."""
    site = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(site / "dist")]
    subprocess.run(build, cwd=EXAMPLE, check=True, capture_output=True)
    [wheel] = (site / "dist").iterdir()
    install = [sys.executable, "-m", "zipfile", "-e", str(wheel), str(site)]  # a pure wheel is installed by unpacking
    subprocess.run(install, check=True, capture_output=True)
    return {**os.environ, "PYTHONPATH": f"{site}:{ROOT}", "PYTEST_ADDOPTS": ""}


@pytest.fixture
def folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="npu", dir="/tmp") as name:
        yield Path(name)


def run(environment: Mapping[str, str], folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", *arguments]
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_the_page_quotes_the_whole_example() -> None:
    explained, _, _ = PAGE.partition("## Install it")
    assert code_lines("".join(quotes("python", explained))) == code_lines((EXAMPLE / "acme_npu.py").read_text())


def test_the_page_quotes_the_entry_point() -> None:
    [quoted] = quotes("toml")
    assert tomllib.loads(quoted)["project"] == {
        key: value
        for key, value in tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"].items()
        if key == "entry-points"
    }


def test_the_example_has_less_than_100_lines() -> None:
    assert len((EXAMPLE / "acme_npu.py").read_text().splitlines()) < 100


def test_the_test_module_of_the_page_passes(installed: Mapping[str, str], folder: Path) -> None:
    [module] = quotes("python", PAGE.partition("## Test it")[2])
    (folder / "test_page.py").write_text(module)
    assert " passed" in run(installed, folder, "pytest", "-q", "-p", "no:cacheprovider", "test_page.py")


def test_its_devices_are_shown(installed: Mapping[str, str], folder: Path) -> None:
    for number in range(2):
        (folder / f"npus/npu-{number}").mkdir(parents=True)
    arguments = ("driver.cli", "devices", "--family", "npu", "--backend", "acme=npus")
    [family] = json.loads(run(installed, folder, *arguments, "-o", "json"))["families"]
    assert family["driver"] == "npu.acme.example"
    names = {device["name"] for slice_ in family["pool"]["slices"] for device in slice_.get("devices", ())}
    assert {"npu-0", "npu-0-1c-at-3", "npu-1-2c-at-2"} <= names
    assert len(names) == 14
    assert "npu-1-2c-at-2" in run(installed, folder, *arguments)


def test_pods_of_its_manifests_run_in_the_demo(installed: Mapping[str, str], folder: Path) -> None:
    (folder / "npus/npu-0").mkdir(parents=True)
    environment = {**installed, "TMPDIR": str(folder)}
    arguments = ("driver.cli", "demo", "--backend", "acme=npus", "-f", str(EXAMPLE / "pods.yaml"), "--nodes", "1")
    report = json.loads(run(environment, folder, *arguments, "-o", "json"))
    pods = {pod["name"]: pod for pod in report["pods"]}
    assert {name: [device["profile"] for device in pod["claims"][0]["devices"]] for name, pod in pods.items()} == {
        "two-cores": ["2c"],
        "by-size": ["1c"],
    }
    nodes = {name: pod["container"]["deviceNodes"] for name, pod in pods.items()}
    assert len({*nodes["two-cores"], *nodes["by-size"]}) == 3, "three cores are in use, each once"
    assert [*pods["two-cores"]["container"]["env"].values()].count("int8") == 1
    assert report["left"] == {"partitions": 0, "cdiFiles": 0, "checkpointRecords": 0, "claims": 0}
    assert [*(folder / "npus/npu-0").iterdir()] == [], "the demo works on a copy"


def test_the_manifests_ask_for_the_family() -> None:
    documents = yaml.safe_load_all((EXAMPLE / "pods.yaml").read_text())
    assert {document["spec"]["device"] for document in documents if document["kind"] == "ResourceClass"} == {"npu"}
