"""Kerf's programs with the example backend of ``docs/write-a-backend.md``, which is installed by its entry point."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.testing.installed_example import EXAMPLE, run_module

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: own-size}
spec:
  resourceClaims: [{name: npu, resourceClaimTemplateName: own-size}]
  containers:
  - {name: main, image: "busybox:1.37", resources: {claims: [{name: npu}]}}
"""


def test_its_devices_are_shown(installed: Mapping[str, str], folder: Path) -> None:
    for number in range(2):
        (folder / f"npus/npu-{number}").mkdir(parents=True)
    arguments = ("kerf_dra.driver.cli", "devices", "--family", "npu", "--backend", "acme=npus")
    [family] = json.loads(run_module(installed, folder, *arguments, "-o", "json"))["families"]
    assert family["driver"] == "npu.acme.example"
    names = {device["name"] for slice_ in family["pool"]["slices"] for device in slice_.get("devices", ())}
    assert {"npu-0", "npu-0-1c-at-3", "npu-1-2c-at-2"} <= names
    assert len(names) == 14
    assert "npu-1-2c-at-2" in run_module(installed, folder, *arguments)


@pytest.mark.long  # what a backend must do for it is tested above and in test_npu_example.py, without the programs
def test_pods_of_its_manifests_run_in_the_demo(installed: Mapping[str, str], folder: Path) -> None:
    (folder / "npus/npu-0").mkdir(parents=True)
    environment = {**installed, "TMPDIR": str(folder)}
    claim = run_module(
        installed, folder, "kerf_dra.driver.cli", "claim", "npu", "--memory", "8Gi", "--name", "own-size"
    )
    (folder / "own-size.yaml").write_text(f"{claim}---\n{POD}")
    manifests = ("-f", str(EXAMPLE / "pods.yaml"), "-f", "own-size.yaml")
    arguments = ("kerf_dra.driver.cli", "demo", "--backend", "acme=npus", *manifests, "--nodes", "1")
    report = json.loads(run_module(environment, folder, *arguments, "-o", "json"))
    pods = {pod["name"]: pod for pod in report["pods"]}
    assert {name: [device["profile"] for device in pod["claims"][0]["devices"]] for name, pod in pods.items()} == {
        "two-cores": ["2c"],
        "by-size": ["1c"],
        "own-size": ["1c"],
    }
    nodes = {name: pod["container"]["device_nodes"] for name, pod in pods.items()}
    assert len({path for paths in nodes.values() for path in paths}) == 4, "four cores are in use, each once"
    assert [*pods["two-cores"]["container"]["env"].values()].count("int8") == 1
    assert report["left"] == {"partitions": 0, "cdi_files": 0, "checkpoint_records": 0, "claims": 0}
    assert [*(folder / "npus/npu-0").iterdir()] == [], "the demo works on a copy"
