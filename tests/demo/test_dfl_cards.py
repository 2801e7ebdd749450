"""``kerf demo`` on stand-ins of DFL cards: Kerf's own processes, whose system calls the stand-in answers."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.fakes.dfl import NEEDS_COMPILER, DflMachine, build_library
from tests.fakes.dfl.machine import BLANK_ID

PODS: Final = """
apiVersion: kerf.dev/v1alpha1
kind: ResourceClass
metadata: {name: aes}
spec: {device: fpga, function: aes, models: [lab]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: aes}
spec: {spec: {devices: {requests: [{name: fpga, exactly: {deviceClassName: aes}}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: aes}
spec:
  restartPolicy: Never
  resourceClaims: [{name: fpga, resourceClaimTemplateName: aes}]
  containers:
  - {name: main, image: busybox, command: [sleep, "300"], resources: {claims: [{name: fpga}]}}
"""


@NEEDS_COMPILER
@pytest.mark.long
def test_a_pod_gets_its_function_and_the_slot_is_blank_after_it(tmp_path: Path) -> None:
    """FP-01, FP-08, FP-13, FP-15, through the scheduler, the plugin's process and the container's OCI spec."""
    machine = DflMachine.create(tmp_path / "machine")
    machine.describe()
    folders = {
        "descriptionFolder": machine.descriptions,
        "imageFolder": machine.images,
        "systemRoot": machine.folder,
    }
    (tmp_path / "dfl.yaml").write_text("".join(f"{field}: {folder}\n" for field, folder in folders.items()))
    (tmp_path / "pods.yaml").write_text(PODS)
    command = [sys.executable, "-m", "kerf_dra.driver.cli", "demo", f"--backend=dfl={tmp_path}/dfl.yaml", "--nodes=1"]
    environment = {**os.environ, "LD_PRELOAD": str(build_library())}
    done = subprocess.run(
        [*command, f"--filename={tmp_path}/pods.yaml", "--output=json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "KERF_PORT_FPGA_0_AES_AT_" in done.stdout
    assert "/dev/dfl-port." in done.stdout
    assert "dfl-fme" not in done.stdout
    assert [call.split()[0] for call in machine.calls()] == ["pr", "reset", "pr", "reset"]
    assert {machine.read_afu_id(port) for port in range(8)} == {BLANK_ID}
