"""``kerf demo`` as its users run it: a process, its output, its exit code, and what it leaves behind."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from driver.demo.environment import find_packaged_folder

DEADLINE_S = 240
"""Far above the 10 s it takes, for machines that run everything at once."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short TMPDIR of its own, in which nothing may be left."""
    root = Path("/tmp") / f"kd{os.getpid()}"
    root.mkdir()
    yield root
    left = list(root.iterdir())
    for path in left:
        subprocess.run(["rm", "-r", path], check=True)
    root.rmdir()
    assert left == []


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "driver.cli", "demo", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )


def run(folder: Path, *arguments: str) -> tuple[int, str, str]:
    with start(folder, *arguments) as process:
        out, err = process.communicate(timeout=DEADLINE_S)
    return process.returncode, out, err


def programs_of(folder: Path) -> list[str]:
    """Command lines of processes that were started for a demo in this folder."""
    found = []
    for directory in Path("/proc").iterdir():
        try:
            line = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if f" {folder}/" in line:
            found.append(line)
    return found


def test_the_whole_story_is_observed_and_nothing_is_left(folder: Path) -> None:
    code, out, err = run(folder, "--output", "json")
    assert (code, err) == (0, "")
    document: dict[str, Any] = json.loads(out)
    assert [node["name"] for node in document["nodes"]] == ["node-1", "node-2"]
    assert document["left"] == {"partitions": 0, "cdi_files": 0, "checkpoint_records": 0, "claims": 0}
    assert document["resized"]["before"] == ["1g.10gb"] * 7
    assert sorted(document["resized"]["after"]) == ["3g.40gb", "4g.40gb"]
    assert [load["function"] for load in document["loaded"]] == ["aes-gcm", "fft-large"]
    assert all(seconds > 0 for seconds in document["timings_s"].values())
    pods = {pod["name"]: pod for pod in document["pods"]}
    assert {pod["phase"] for pod in pods.values()} == {"Running"}
    sized = pods["gpu-by-size"]
    [device] = sized["claims"][0]["devices"]
    assert (device["driver"], device["pool"], device["profile"]) == ("gpu.kerf.dev", f"{sized['node']}/gpu", "1g.20gb")
    assert device["memory_bytes"] == 20096 * 2**20
    variable = f"KERF_DEVICE_{device['device'].upper().replace('-', '_')}"
    assert sized["container"]["env"][variable].startswith("MIG-")
    assert "/dev/nvidiactl" in sized["container"]["device_nodes"]
    assert sized["container"]["mounts"]
    assert pods["gpu-whole"]["claims"][0]["devices"][0]["profile"] is None
    trainer, monitor = (container["env"] for container in pods["shared-claim"]["containers"])
    device_of = {name: value for name, value in trainer.items() if name.startswith("KERF_DEVICE")}
    assert len(device_of) == 1
    assert device_of.items() <= monitor.items()
    assert programs_of(folder) == []


@pytest.mark.parametrize(
    ("model", "profile"),
    [
        pytest.param("H100-80GB", "1g.20gb", id="8 slices", marks=pytest.mark.long),
        pytest.param("A30", "4g.24gb", id="4 slices", marks=pytest.mark.long),
        pytest.param("RTX-PRO-6000", "1g.24gb-me", id="12 units"),
    ],
)
def test_a_claim_by_size_gets_the_smallest_partition_of_every_geometry(folder: Path, model: str, profile: str) -> None:
    example = find_packaged_folder("examples") / "gpu-by-size.yaml"
    code, out, err = run(folder, "-f", str(example), "--gpu-model", model, "--nodes", "1", "-o", "json")
    assert (code, err) == (0, "")
    [pod] = json.loads(out)["pods"]
    assert pod["claims"][0]["devices"][0]["profile"] == profile


def test_eight_pods_at_once_share_two_of_eight_cards(folder: Path, tmp_path: Path) -> None:
    documents = list(yaml.safe_load_all((find_packaged_folder("examples") / "gpu-by-size.yaml").read_text()))
    documents[0]["spec"] = {"device": "gpu", "profile": "1g.10gb"}
    pod = documents.pop()
    documents += [{**pod, "metadata": {"name": f"p{number}"}} for number in range(8)]
    burst = tmp_path / "burst.yaml"
    burst.write_text(yaml.safe_dump_all(documents))
    code, out, err = run(folder, "-f", str(burst), "--nodes", "1", "--gpus", "8", "-o", "json")
    assert (code, err) == (0, "")
    names = [pod["claims"][0]["devices"][0]["device"] for pod in json.loads(out)["pods"]]
    assert sorted(name.partition("-1g-10gb-at-")[0] for name in names) == [*["gpu-0"] * 7, "gpu-1"]


def test_the_text_tells_the_story_line_by_line_when_piped(folder: Path) -> None:
    example = find_packaged_folder("examples") / "shared-claim.yaml"
    code, out, err = run(folder, "-f", str(example), "--nodes", "1")
    assert (code, err) == (0, "")
    assert "default/shared-claim  Running  node-1  gpu-0-1g-10gb-at-" in out
    assert "default/shared-claim, container monitor, sees" in out
    assert out.rstrip().endswith("left: 0 partitions, 0 CDI files, 0 checkpoint records, 0 claims")


def test_bad_manifests_are_all_told_and_nothing_is_started(folder: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(
        "apiVersion: kerf.dev/v1alpha1\nkind: ResourceClass\nmetadata: {name: x}\nspec: {devise: gpu, cut: Hole}\n"
    )
    code, out, err = run(folder, "-f", str(bad), "-f", str(tmp_path / "missing.yaml"))
    assert (code, out) == (2, "")
    lines = err.splitlines()
    assert any(line.startswith(f"{bad}: document 1: ResourceClass x: spec.devise: ") for line in lines)
    assert any(line.startswith(f"{bad}: document 1: ResourceClass x: spec.cut: ") for line in lines)
    assert any(line.startswith(f"{tmp_path / 'missing.yaml'}: ") for line in lines)


def test_an_unknown_model_is_told_with_close_names(folder: Path) -> None:
    code, _, err = run(folder, "--gpu-model", "h100-81gb")
    assert code == 2
    assert "h100-80gb-sxm" in err


def test_a_minimum_that_no_card_has_is_told_at_once(folder: Path, tmp_path: Path) -> None:
    example = (find_packaged_folder("examples") / "gpu-by-size.yaml").read_text()
    large = tmp_path / "large.yaml"
    large.write_text(example.replace("18Gi", "100Gi"))
    code, _, err = run(folder, "-f", str(large), "--nodes", "1", "-o", "json")
    assert code == 1
    assert "spec.minimum.memory" in err
    assert "timed out" not in err, "it waited for what cannot come"


@pytest.mark.parametrize("seen", ["kubeconfig: ", "Running"], ids=["while starting", "while pods run"])
def test_ctrl_c_cleans_up_at_any_moment(folder: Path, seen: str) -> None:
    with start(folder) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if seen in line:
                break
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 128 + signal.SIGINT
    assert programs_of(folder) == []


def test_a_kept_cluster_stays_up_until_ctrl_c_and_then_proves_that_nothing_is_left(folder: Path) -> None:
    example = find_packaged_folder("examples") / "gpu-whole.yaml"
    with start(folder, "-f", str(example), "--keep", "--nodes", "1") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "the cluster stays up" in line:
                break
        assert len(programs_of(folder)) == 2
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, err) == (0, "")
    assert "left: 0 partitions" in out
