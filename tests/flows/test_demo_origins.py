"""``kerf demo -f`` with devices of each origin beside simulated cards, by the examples and their pages."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kerf_dra.driver.demo.environment import find_packaged_folder
from tests.demo.test_manifest_hardware import IMAGE, SHELLS
from tests.flows.test_demo import folder, run

__all__ = ["folder"]

FUNCTION = """
apiVersion: kerf.dev/v1alpha1
kind: ResourceClass
metadata: {name: sort}
spec: {device: fpga, function: sort}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: sort}
spec: {spec: {devices: {requests: [{name: fpga, exactly: {deviceClassName: sort}}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: sorter}
spec:
  resourceClaims: [{name: fpga, resourceClaimTemplateName: sort}]
  containers: [{name: main, image: busybox, resources: {claims: [{name: fpga}]}}]
"""


def run_example(folder: Path, name: str, *arguments: str) -> dict[str, Any]:
    """Run an example of ``deploy/examples``, all of whose pods run; returns the report."""
    code, out, err = run(folder, "-f", str(find_packaged_folder("examples") / name), "-o", "json", *arguments)
    assert (code, err) == (0, "")
    document: dict[str, Any] = json.loads(out)
    assert document["left"] == {"partitions": 0, "cdi_files": 0, "checkpoint_records": 0, "claims": 0}
    return document


def page_of(name: str) -> str:
    return (find_packaged_folder("examples") / name / "README.md").read_text()


def test_five_replicas_have_two_cameras(folder: Path) -> None:
    document = run_example(folder, "discovered-cameras")
    pods = document["pods"]
    assert len(pods) == 5
    page = page_of("discovered-cameras")
    for device in document["discovered_devices"]:
        shown = f"{len(device['users'])} of {device['capacity']} users"
        assert f"{device['name']}  seen by {' and '.join(device['nodes'])}; {shown}" in page
    used = Counter(pod["claims"][0]["devices"][0]["device"] for pod in pods)
    assert sorted(used.values()) == [2, 3]
    environments = [pod["container"]["env"] for pod in pods]
    found = {value for env in environments for name, value in env.items() if name.startswith("DEBUG_ECHO_DESCRIPTION_")}
    assert found == {"rtsp://10.0.0.7", "rtsp://10.0.0.8"}
    assert {env["RESOLUTION_WIDTH"] for env in environments} == {"640"}
    assert {card["kind"] for node in document["nodes"] for card in node["cards"]} == {"gpu", "fpga"}


@pytest.mark.long
def test_a_pod_has_the_function_of_an_image_of_the_users_own(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(f"{SHELLS}---{IMAGE}---{FUNCTION}")
    code, out, err = run(folder, "-f", str(file), "--nodes", "2", "-o", "json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    fpgas = [card["model"] for node in document["nodes"] for card in node["cards"] if card["kind"] == "fpga"]
    assert Counter(fpgas) == {"lab": 2, "edge": 2}
    [pod] = document["pods"]
    [device] = pod["claims"][0]["devices"]
    assert device["profile"] == "sort"


@pytest.mark.long
def test_a_pod_of_a_device_plugin_has_its_partition(folder: Path) -> None:
    """It is released at the end, of which no call tells the plugin: the demo waits for it."""
    document = run_example(folder, "device-plugin", "--nodes", "1")
    [pod] = document["pods"]
    [device] = pod["extended_devices"]["example.com/gpu"]
    assert device.startswith("gpu-0-1g-10gb-at-")
    assert (pod["claims"], document["warnings"]) == ([], [])
    environment = pod["container"]["env"]
    assert environment["KERF_RESOURCE_EXAMPLE_COM_GPU"] == device
    assert environment[f"KERF_DEVICE_{device.upper().replace('-', '_')}"].startswith("MIG-")
    assert "/dev/nvidia0" in pod["container"]["device_nodes"]


def test_tiles_have_a_mask_and_shares_their_limits(folder: Path) -> None:
    """RM-02, RM-05: two tiles of one card, and two shares of 500 millicores of the other."""
    document = run_example(folder, "intel-fractions", "--nodes", "1", "--gpus", "0")
    cards = [(card["kind"], card["model"]) for card in document["nodes"][0]["cards"]]
    assert Counter(cards) == {("gpu-intel", "max-1550"): 2, ("fpga", "quad"): 1}
    pods = {pod["name"]: pod for pod in document["pods"]}
    held = {name: pod["claims"][0]["devices"][0] for name, pod in pods.items()}
    assert held["intel-tile-1"]["card"] == held["intel-tile-2"]["card"] != held["intel-share-1"]["card"]
    assert held["intel-share-1"]["card"] == held["intel-share-2"]["card"]
    assert [held[name]["is_share"] for name in ("intel-tile-1", "intel-share-1")] == [False, True]
    assert held["intel-share-1"]["memory_bytes"] == 60 * 2**30
    page = page_of("intel-fractions")
    for name, mask in (("intel-tile-1", "0"), ("intel-tile-2", "1")):
        environment = pods[name]["container"]["env"]
        assert (environment["ZE_AFFINITY_MASK"], environment["ZE_FLAT_DEVICE_HIERARCHY"]) == (mask, "FLAT")
        assert f"| {name} | `ZE_AFFINITY_MASK={mask}` |" in page
    for name in ("intel-share-1", "intel-share-2"):
        environment = pods[name]["container"]["env"]
        assert "ZE_AFFINITY_MASK" not in environment
        limits = {key: value for key, value in environment.items() if key.startswith(("KERF_MEMORY", "KERF_MILLI"))}
        assert sorted(limits.values()) == ["500", "64424509440"]
