"""``kerf demo`` on simulated cards that are described with two layouts: one pod of each layout, and one too many."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kubeletplugin.backends.simulated.test_layouts import DOCUMENTS


def _class(name: str, **spec: str) -> list[dict[str, Any]]:
    """A class, and a template for claims of it."""
    request = {"name": "fpga", "exactly": {"deviceClassName": name}}
    return [
        {
            "apiVersion": "kerf.dev/v1alpha1",
            "kind": "ResourceClass",
            "metadata": {"name": name},
            "spec": {"device": "fpga", **spec},
        },
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": name},
            "spec": {"spec": {"devices": {"requests": [request]}}},
        },
    ]


def _pod(name: str, class_: str) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox", "resources": {"claims": [{"name": "fpga"}]}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "resourceClaims": [{"name": "fpga", "resourceClaimTemplateName": class_}],
            "containers": [container],
        },
    }


@pytest.mark.long
def test_pods_of_two_layouts_get_two_cards_and_those_of_one_layout_share_one(tmp_path: Path) -> None:
    """FP-09 and FP-10, through the scheduler, the plugin's processes and the containers' OCI specs."""
    descriptions = tmp_path / "descriptions"
    descriptions.mkdir()
    for number, document in enumerate(DOCUMENTS):
        (descriptions / f"{number}.yaml").write_text(json.dumps(document))
    config = {
        "state": "state",
        "descriptionFolder": str(descriptions),
        "cards": [{"kind": "fpga", "shell": "split"}],
        "pace": 0,
    }
    (tmp_path / "cards.yaml").write_text(json.dumps(config))
    manifests = [*_class("fft", function="fft"), *_class("vadd", function="vadd"), *_class("slot")]
    pods = [_pod("scattered", "fft"), _pod("undivided", "vadd"), _pod("between", "slot")]
    (tmp_path / "pods.yaml").write_text(yaml.safe_dump_all([*manifests, *pods]))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "kerf_dra.driver.cli", "demo", "--nodes=2", "--family=fpga", "--output=json"),
            *(f"--backend=simulated={tmp_path}/cards.yaml", f"--filename={tmp_path}/pods.yaml"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert "fpga-0-fft-at-0-" in done.stdout
    assert "KERF_DEVICE_FPGA_0_FFT_AT_0_" in done.stdout
    assert '"fpga-0-vadd-at-0-of-flat"' in done.stdout
    where = {pod["name"]: pod["node"] for pod in document["pods"]}
    assert where["scattered"] == where["between"] != where["undivided"]
    assert document["left"] == {"partitions": 0, "cdi_files": 0, "checkpoint_records": 0, "claims": 0}
