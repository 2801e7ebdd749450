"""``kerf demo`` as its users run it: a process, its output, its exit code, and what it leaves behind."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kerf_dra.driver.demo.environment import find_packaged_folder

DEADLINE_S = 480
"""Far above the 10 s it takes, for machines that run everything at once."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short TMPDIR of its own, in which nothing may be left."""
    root = Path(tempfile.mkdtemp(prefix="kd", dir="/tmp"))
    yield root
    left = list(root.iterdir())
    for path in left:
        subprocess.run(["rm", "-r", path], check=True)
    root.rmdir()
    assert left == []


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "kerf_dra.driver.cli", "demo", *arguments],
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
    assert err == ""
    assert code == 0
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
        pytest.param("RTX-PRO-6000", "1g.24gb-me", id="12 units", marks=pytest.mark.long),
    ],
)
def test_a_claim_by_size_gets_the_smallest_partition_of_every_geometry(folder: Path, model: str, profile: str) -> None:
    example = find_packaged_folder("examples") / "gpu-by-size"
    code, out, err = run(folder, "-f", str(example), "--gpu-model", model, "--nodes", "1", "-o", "json")
    assert err == ""
    assert code == 0
    [pod] = json.loads(out)["pods"]
    assert pod["claims"][0]["devices"][0]["profile"] == profile


@pytest.mark.long  # tests/partitions/test_bursts.py judges bursts without the programs
def test_eight_pods_at_once_share_two_of_eight_cards(folder: Path, tmp_path: Path) -> None:
    documents = list(
        yaml.safe_load_all((find_packaged_folder("examples") / "gpu-by-size/gpu-by-size.yaml").read_text())
    )
    documents[0]["spec"] = {"device": "gpu", "profile": "1g.10gb"}
    pod = documents.pop()
    documents += [{**pod, "metadata": {"name": f"p{number}"}} for number in range(8)]
    burst = tmp_path / "burst.yaml"
    burst.write_text(yaml.safe_dump_all(documents))
    code, out, err = run(folder, "-f", str(burst), "--nodes", "1", "--gpus", "8", "-o", "json")
    assert err == ""
    assert code == 0
    names = [pod["claims"][0]["devices"][0]["device"] for pod in json.loads(out)["pods"]]
    assert sorted(name.partition("-1g-10gb-at-")[0] for name in names) == [*["gpu-0"] * 7, "gpu-1"]


def normalized(text: str) -> list[str]:
    """Lines without what differs from run to run: times, and the names of temporary folders."""
    text = re.sub(r"\d+\.\d s", "0.5 s", text)
    return [" ".join(line.split()) for line in re.sub(r"/tmp/\S+?/kubeconfig", "KUBECONFIG", text).splitlines()]


def test_what_the_readme_shows_of_the_demo_is_what_it_prints(folder: Path) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    command, _, rest = readme.partition("`kerf demo -f deploy/examples/gpu-by-size`")[2].partition("```text\n")
    assert rest, command
    shown = normalized(rest.partition("```")[0])
    example = find_packaged_folder("examples") / "gpu-by-size"
    code, out, err = run(folder, "-f", str(example))
    assert err == ""
    assert code == 0
    assert [line for line in shown if line not in normalized(out)] == []
    assert len(shown) > 5


def test_workloads_make_their_pods_and_of_a_pod_that_fits_nowhere_the_reason_is_told(
    folder: Path, tmp_path: Path
) -> None:
    *others, pod = yaml.safe_load_all((find_packaged_folder("examples") / "gpu-small/gpu-small.yaml").read_text())
    others = [each for each in others if each["kind"] != "Pod"]
    spec = dict(pod["spec"])
    spec["initContainers"] = [{**spec["containers"][0], "name": "first"}]

    def workload(version: str, kind: str, name: str, **more: Any) -> dict[str, Any]:
        labels = {"app": name}
        selector = {} if kind == "Job" else {"selector": {"matchLabels": labels}}
        restart = {"restartPolicy": "Never" if kind == "Job" else "Always"}
        template = {"metadata": {"labels": labels}, "spec": {**spec, **restart}}
        return {
            "apiVersion": version,
            "kind": kind,
            "metadata": {"name": name},
            "spec": {**more, **selector, "template": template},
        }

    items = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"a": "b"}},
        *others,
        workload("apps/v1", "Deployment", "web", replicas=2),
        workload("apps/v1", "StatefulSet", "db", replicas=2, serviceName="db"),
        workload("batch/v1", "Job", "train", parallelism=2, completions=1),
    ]
    huge = {"apiVersion": "kerf.dev/v1alpha1", "kind": "ResourceClass", "metadata": {"name": "huge"}}
    items += [
        {**huge, "spec": {"device": "gpu", "minimum": {"memory": "1000Gi"}}},
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "huge"},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "huge"}}]}},
        },
        {
            **pod,
            "metadata": {"name": "cannot"},
            "spec": {**pod["spec"], "resourceClaims": [{"name": "gpu", "resourceClaimName": "huge"}]},
        },
    ]
    own = tmp_path / "list.yaml"
    own.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items}))
    code, out, err = run(folder, "-f", str(own), "--nodes", "1", "-o", "json")
    assert code == 1
    assert "spec.minimum.memory" in err
    assert "timed out" not in err, "it waited for what cannot come"
    assert [waiting["pod"] for waiting in json.loads(out)["waiting"]] == ["default/cannot"]
    assert "spec.minimum.memory" in json.loads(out)["refused_classes"]["huge"]
    pods = {pod["name"]: pod for pod in json.loads(out)["pods"]}
    assert Counter(name.partition("-")[0] for name in pods) == {"web": 2, "db": 2, "train": 1}
    assert {"db-0", "db-1"} <= pods.keys()
    seen = [[c["name"] for c in pod["containers"] if "/dev/nvidiactl" in c["device_nodes"]] for pod in pods.values()]
    assert seen == [["main", "first"]] * 5


def test_a_demo_whose_reader_goes_ends_without_a_word(folder: Path) -> None:
    with start(folder, "--nodes", "1") as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        errors = process.stderr.read()
        assert process.wait(DEADLINE_S) == 128 + signal.SIGPIPE
    assert errors == ""
    assert programs_of(folder) == []


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
    assert lines[-1] == f"Kerf's own examples are in {find_packaged_folder('examples')}", "a wheel has them elsewhere"


def test_an_unknown_model_is_told_with_close_names(folder: Path) -> None:
    code, _, err = run(folder, "--gpu-model", "h100-81gb")
    assert code == 2
    assert "h100-80gb-sxm" in err


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param("kubeconfig", id="while starting", marks=pytest.mark.long),
        pytest.param("A pod asks", id="while pods run"),
    ],
)
def test_ctrl_c_cleans_up_at_any_moment(folder: Path, seen: str) -> None:
    with start(folder, "--nodes", "1") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if seen in line:
                break
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 128 + signal.SIGINT
    assert programs_of(folder) == []
    stops, cleaned_up = err.split("\nkerf demo: ")[1:]
    assert stops.startswith("interrupted: its programs are stopped now")
    assert f"its cluster and its programs have ended, and the folder {folder}" in cleaned_up, "it ended without a word"


def test_a_kept_cluster_stays_up_until_ctrl_c_and_then_proves_that_nothing_is_left(folder: Path) -> None:
    example = find_packaged_folder("examples") / "gpu-whole"
    with start(folder, "-f", str(example), "--keep", "--nodes", "1") as process:
        assert process.stdout is not None
        line = next(line for line in process.stdout if "export KUBECONFIG=" in line)
        config = yaml.safe_load(Path(line.partition("=")[2].strip()).read_text())
        server = config["clusters"][0]["cluster"]["server"]
        with urllib.request.urlopen(f"{server}/api/v1/namespaces/default/pods/gpu-whole/log") as answer:
            log = answer.read().decode()
        assert log.startswith("No container runs in this cluster, so this is no log.\n")
        assert "with the device node:  /dev/nvidiactl\n" in log
        programs = programs_of(folder)
        assert len(programs) == 2
        # On a node of a real cluster the demo does not touch what that node's kubelet and runtime have.
        [plugin] = [words for words in map(str.split, programs) if "kubelet-plugin" in words]
        for option in ("--kubelet-root", "--state-dir", "--device-plugins-dir", "--cdi-dir"):
            assert plugin[plugin.index(option) + 1].startswith(f"{folder}/")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE_S)
    assert err == ""
    assert process.returncode == 0
    assert "left: 0 partitions" in out
    assert "\nOK 1 pod got what it asked for, and nothing is left" in out


def limited(name: str, **limits: str) -> dict[str, Any]:
    container = {"name": "main", "image": "i", "resources": {"limits": limits}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


def class_(name: str, **spec: Any) -> dict[str, Any]:
    api = {"apiVersion": "kerf.dev/v1alpha1", "kind": "ResourceClass"}
    return {**api, "metadata": {"name": name}, "spec": {"device": "gpu", **spec}}


def template(name: str, driver: str = "gpu.kerf.dev") -> dict[str, Any]:
    requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu.kerf.dev"}}]
    parameters = {"apiVersion": "kerf.dev/v1alpha1", "kind": "GpuConfig"}
    devices = {"requests": requests, "config": [{"opaque": {"driver": driver, "parameters": parameters}}]}
    api = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}
    return {**api, "metadata": {"name": name}, "spec": {"spec": {"devices": devices}}}


def run_documents(folder: Path, tmp_path: Path, *documents: dict[str, Any]) -> tuple[int, str]:
    file = tmp_path / "own.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    code, out, err = run(folder, "-f", str(file), "--nodes", "2")
    assert err == ""
    assert max(len(line) for line in out.splitlines() if str(file) not in line) <= 80
    return code, out


def test_pods_that_would_wait_for_ever_do_not_run_and_are_explained_at_once(folder: Path, tmp_path: Path) -> None:
    """Each of these pods once ran without a device, and the demo said that it got what it asked for."""
    pods = {
        "plain": limited("plain", **{"nvidia.com/gpu": "1"}),
        "other": limited("other", **{"hwchiu/test-dev": "1"}),
        "misspelt": limited("misspelt", **{"example.com/gpus": "1"}),
        "large": limited("large", cpu="5000", memory="100Ti"),
        "offered": limited("offered", **{"kerf.dev/gpu-small": "3"}),
    }
    offer = {"resource": "kerf.dev/gpu-small", "perNode": 2}
    code, out = run_documents(
        folder,
        tmp_path,
        class_("small", profile="1g.10gb", devicePlugin=offer),
        class_("large", profile="3g.40gb", extendedResourceName="example.com/gpu"),
        *pods.values(),
    )
    assert code == 1
    for name in pods:
        assert f"Pod default/{name} does not run" in out
    text = " ".join(out.split())
    assert "no node offers nvidia.com/gpu; `kerf migrate -f` converts it to a claim" in text
    assert "no node offers hwchiu/test-dev" in text
    assert "no node offers example.com/gpus; there is example.com/gpu" in text
    assert "the pod requests 5000, and no node has more than 64" in text
    assert "kerf.dev/gpu-small: the pod asks for 3, and of the node's 2 pods have 0" in text


def test_a_pod_that_a_kubelet_has_rejected_is_shown_at_once_with_the_kubelets_words(
    folder: Path, tmp_path: Path
) -> None:
    """It was sent to the node past the scheduler; the demo waited for two minutes, and said that it uses no devices."""
    pod = limited("rejected", **{"kerf.dev/gpu-small": "3"})
    pod["spec"]["nodeName"] = "node-1"
    offer = {"resource": "kerf.dev/gpu-small", "perNode": 2}
    code, out = run_documents(folder, tmp_path, class_("small", profile="1g.10gb", devicePlugin=offer), pod)
    text = " ".join(out.split())
    assert code == 1
    assert (
        "Pod default/rejected has failed: UnexpectedAdmissionError: Pod was rejected: Allocate failed due to requested "
        "number of devices unavailable for kerf.dev/gpu-small. Requested: 3, Available: 2, which is unexpected"
    ) in text
    assert "FAILED 1 of 1 pods did not run: default/rejected." in text
    assert "timed out" not in text


def test_what_is_legal_and_has_no_effect_is_a_warning(folder: Path, tmp_path: Path) -> None:
    pod = limited("p")
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "a"}]
    code, out = run_documents(folder, tmp_path, template("a", "gpu.nvidia.com"), template("stray"), pod)
    text = " ".join(out.split())
    assert code == 0
    assert re.search(r"OK 1 pod got what it asked for, and nothing is left, in \d+ s, 3 warnings\.", text)
    assert "pod default/p: spec.resourceClaims[0]: no container uses claim gpu" in text
    assert "claim gpu, spec.devices.config[0]: the parameters are for driver gpu.nvidia.com" in text
    assert "ResourceClaimTemplate stray: no pod uses it" in text


@pytest.mark.parametrize(
    ("documents", "verdict"),
    [
        ([class_("huge", minimum={"memory": "1000Gi"})], "FAILED Not ready: ResourceClass huge."),
        ([template("alone")], "FAILED Nothing ran: there is no pod in your manifests."),
    ],
    ids=["a refused class", "no pod"],
)
def test_a_demo_of_what_cannot_run_fails(
    folder: Path, tmp_path: Path, documents: list[dict[str, Any]], verdict: str
) -> None:
    """It said "OK 0 pods got what they asked for"."""
    code, out = run_documents(folder, tmp_path, *documents)
    assert code == 1
    assert verdict in " ".join(out.split())
