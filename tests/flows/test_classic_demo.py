"""`kerf demo --classic` as its users run it: all steps, own manifests, documents, and nothing left."""

import json
import logging
from pathlib import Path

from click.testing import CliRunner

from kerf_dra.driver.cli.demo import command
from kerf_dra.driver.demo.environment import find_packaged_folder

SMALL = """\
---
apiVersion: resource.k8s.io/v1alpha2
kind: ResourceClass
metadata: {name: small}
driverName: gpu.kerf.dev
parametersRef: {apiGroup: kerf.dev, kind: GpuClassParameters, name: small}
---
apiVersion: kerf.dev/v1alpha1
kind: GpuClassParameters
metadata: {name: small}
spec: {profile: 1g.10gb}
"""
EXAMPLES = find_packaged_folder("examples") / "classic"


def test_the_classic_story_is_told_to_its_end_and_leaves_nothing() -> None:
    result = CliRunner().invoke(command, ["--classic", "--nodes", "1"], standalone_mode=False)
    assert result.return_value == 0, result.output
    told = " ".join(result.output.split())
    files = [one.baseFilename for one in logging.getLogger().handlers if isinstance(one, logging.FileHandler)]
    assert not [file for file in files if file.endswith("cluster.log")], "its log is closed"
    for text in (
        "gpu-0-1g-20gb",
        "fpga-0-aes-gcm-at-",
        "a = pair-1, pair-2",
        "One of them is deleted, and the third runs, on the same partition.",
        "The successor has allocated it",
        "every claim was deallocated first",
        "left: 0 partitions, 0 CDI files, 0 checkpoint records, 0 claims",
        "OK 4 pods got what they asked for",
    ):
        assert text in told


def test_own_manifests_run_and_are_reported_as_a_document_and_with_the_logs(tmp_path: Path) -> None:
    cannot = tmp_path / "cannot.yaml"
    text = (EXAMPLES / "gpu-by-size.yaml").read_text()
    for old, new in (
        ("name: by-size", "name: cannot"),
        ("eighteen", "cannot"),
        ("18Gi", "50Gi"),
        ("gpu-by-size", "small"),
    ):
        text = text.replace(old, new)
    cannot.write_text(text + SMALL)
    files = [EXAMPLES / "classes.yaml", EXAMPLES / "gpu-by-size.yaml", cannot]
    arguments = ["--classic", "--nodes", "1", *(part for file in files for part in ("-f", str(file))), "-o", "json"]
    result = CliRunner().invoke(command, arguments, standalone_mode=False)
    assert result.return_value == 1, result.output
    document = json.loads(result.stdout)
    [pod] = document["pods"]
    assert [device["profile"] for device in pod["claims"][0]["devices"]] == ["1g.20gb"]
    assert "/dev/nvidiactl" in pod["container"]["device_nodes"]
    assert [waiting["pod"] for waiting in document["waiting"]] == ["default/cannot"]
    assert document["left"] == {"partitions": 0, "cdi_files": 0, "checkpoint_records": 0, "claims": 0}


def test_a_kind_that_the_classic_cluster_has_not_is_refused_before_it_starts(tmp_path: Path) -> None:
    example = EXAMPLES.parent / "gpu-by-size"
    result = CliRunner().invoke(command, ["--classic", "-f", str(example)], standalone_mode=False)
    assert result.return_value == 2
    assert "resource.k8s.io/v1 ResourceClaimTemplate are for Kubernetes 1.32 and later" in result.output
