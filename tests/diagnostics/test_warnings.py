"""`kerf why` and `kerf plan` warn of what is legal in a pod and its claims, and has no effect."""

import json
from pathlib import Path
from typing import Any

import pytest

from kerf_dra.api.core.v1 import ResourceRequirements
from kerf_dra.api.model.claims import DeviceClaimConfiguration, OpaqueDeviceConfiguration, ResourceClaim
from kerf_dra.driver.cli import main
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.dump import encode_dump, redact
from tests.fakes.cluster_states import allocate_claims, claim, gpu_cluster, pod, replace

FOREIGN = "gpu.nvidia.com"
UNUSED = """\
warning: spec.resourceClaims[0]: no container uses claim gpu, so none gets its
  devices: name it in resources.claims of main"""
CONFIGURED = f"""\
warning: claim gpu, spec.devices.config[0]: the parameters are for driver
  {FOREIGN}, of which no node publishes a device: they have no effect"""


def configured(held: ResourceClaim, driver: str = FOREIGN) -> ResourceClaim:
    opaque = OpaqueDeviceConfiguration(driver=driver, parameters={"token": "secret"})
    devices = replace(held.spec.devices, config=(DeviceClaimConfiguration(opaque=opaque),))
    return replace(held, spec=replace(held.spec, devices=devices))


def waiting(*, uses: bool, is_allocated: bool) -> ClusterState:
    """A cluster with a pod whose claim has a configuration for a driver that is not there."""
    made = pod("p", "gpu")
    if not uses:
        containers = (replace(made.spec.containers[0], resources=ResourceRequirements()),)
        made = replace(made, spec=replace(made.spec, containers=containers))
    asked = configured(claim("gpu", "1g-10gb"))
    state = replace(gpu_cluster(), pods=(made,))
    return allocate_claims(state, asked) if is_allocated else replace(state, claims=(asked,))


@pytest.mark.parametrize("is_allocated", [True, False])
@pytest.mark.parametrize("uses", [True, False])
def test_why_warns_of_a_pod_that_waits_and_of_one_that_has_its_devices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], uses: bool, is_allocated: bool
) -> None:
    dump = tmp_path / "dump.json"
    dump.write_bytes(encode_dump(redact(waiting(uses=uses, is_allocated=is_allocated))))
    assert "secret" not in dump.read_text()
    assert main(["why", "pod/p", "--from", str(dump)]) == 0, "what has no effect is legal"
    out = capsys.readouterr().out
    assert CONFIGURED in out
    assert (UNUSED in out) is not uses
    assert max(map(len, out.splitlines())) <= 80


def manifests(*, uses: bool = True, container_claim: str = "gpu", driver: str = "gpu.kerf.dev") -> list[dict[str, Any]]:
    config = [{"opaque": {"driver": driver, "parameters": {}}}]
    requests = [{"name": "r", "exactly": {"deviceClassName": "1g-10gb"}}]
    template = {"spec": {"devices": {"requests": requests, "config": config}}}
    wanted = {"claims": [{"name": container_claim}]} if uses else {}
    pod_spec = {
        "containers": [{"name": "main", "image": "i", "resources": wanted}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
    }
    api = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}
    spec = {"replicas": 2, "template": {"spec": pod_spec}}
    return [
        {**api, "metadata": {"name": "t"}, "spec": template},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec},
    ]


STRAY = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "stray"},
    "spec": {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "1g-10gb"}}]}}},
}


@pytest.mark.parametrize(
    ("documents", "said"),
    [
        pytest.param(manifests(), [], id="nothing"),
        pytest.param(
            manifests(uses=False),
            [
                (
                    "Deployment default/d: spec.resourceClaims[0]: no container uses claim gpu, so none gets its "
                    "devices: name it in resources.claims of main"
                )
            ],
            id="unused",
        ),
        pytest.param(
            manifests(driver=FOREIGN),
            [
                (
                    "Deployment default/d: claim gpu, spec.devices.config[0]: the parameters are for driver "
                    f"{FOREIGN}, of which no node publishes a device: they have no effect; write driver: "
                    "gpu.kerf.dev, if they are for it, or remove the entry"
                )
            ],
            id="for another driver",
        ),
        pytest.param(
            manifests(container_claim="gpus"),
            [
                (
                    "Deployment default/d: spec.resourceClaims[0]: no container uses claim gpu, so none gets its "
                    "devices: name it in resources.claims of main"
                ),
                (
                    "Deployment default/d: container main, resources.claims[0].name: the pod has no claim gpus, only "
                    "gpu: the API server refuses such a pod"
                ),
            ],
            id="misspelt",
        ),
        pytest.param(
            [*manifests(), STRAY],
            ["ResourceClaimTemplate default/stray: no pod of the documents uses it, so it is placed by itself"],
            id="a template without pod",
        ),
        pytest.param([STRAY], [], id="a template alone is the question"),
    ],
)
def test_a_plan_warns_and_fits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], documents: list[dict[str, Any]], said: list[str]
) -> None:
    dump, file = tmp_path / "dump.json", tmp_path / "m.json"
    dump.write_bytes(encode_dump(redact(gpu_cluster())))
    file.write_text("\n---\n".join(map(json.dumps, documents)))
    assert main(["plan", "-f", str(file), "--from", str(dump), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["warnings"] == said
    assert main(["plan", "-f", str(file), "--from", str(dump)]) == 0
    out = capsys.readouterr().out
    counted = {0: "", 1: ", 1 warning", 2: ", 2 warnings"}[len(said)]
    assert f"would be placed{counted}\n" in out
    assert max(map(len, out[out.index("would be placed") :].splitlines())) <= 80
