"""``kerf migrate`` converts classic classes and templates, and reports what has no equivalent."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from click.testing import CliRunner

from kerf_dra.api.core.v1 import CUSTOM_RESOURCE_DEFINITIONS
from kerf_dra.api.kerf.classic_parameters import CLAIM_PARAMETERS, CLASS_PARAMETERS
from kerf_dra.api.kerf.decoder import decode_resource_class
from kerf_dra.api.resource import v1
from kerf_dra.api.resource.v1alpha2 import KINDS
from kerf_dra.api.wire import Kind
from kerf_dra.driver.cli.cluster.migrate import EXIT_LEFT, command
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.config import load_access
from kerf_dra.driver.kube.http.credentials import Access
from kerf_dra.driver.local.apiserver import ApiServer, ApiServerSettings

DEPLOY = Path(__file__).parents[2] / "deploy"
KNOWN: tuple[Kind[Any], ...] = (*CLASS_PARAMETERS, *CLAIM_PARAMETERS, KINDS.classes, KINDS.templates)
APPLIED = {kind.kind: kind for kind in KNOWN}


@pytest.fixture
async def kubeconfig(tmp_path: Path) -> AsyncIterator[Path]:
    """The kubeconfig of a cluster of 1.30 with the classic examples."""
    server = ApiServer(settings=ApiServerSettings(kubernetes=(1, 30), resource_versions=("v1alpha2",)))
    async with anyio.create_task_group() as tasks:
        await tasks.start(server.serve)
        async with Client(Access(server=server.url), user_agent="test") as client:
            for file in sorted((DEPLOY / "crds").glob("*.yaml")):
                crd = yaml.safe_load(file.read_text())
                await client.apply(CUSTOM_RESOURCE_DEFINITIONS, crd, field_manager="test")
            for file in sorted((DEPLOY / "examples" / "classic").glob("*.yaml")):
                for document in yaml.safe_load_all(file.read_text()):
                    await _apply(client, document)
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(server.kubeconfig()))
        yield path
        tasks.cancel_scope.cancel()


async def _apply(client: Client, document: dict[str, Any]) -> None:
    kind: Any = APPLIED.get(document["kind"])
    if kind is not None:
        metadata = {**document["metadata"], **({"namespace": "default"} if kind.namespaced else {})}
        await client.apply(kind, {**document, "metadata": metadata}, field_manager="test")


async def test_the_examples_become_classes_and_templates_of_today(kubeconfig: Path) -> None:
    result = await anyio.to_thread.run_sync(
        lambda: CliRunner().invoke(command, ["--kubeconfig", str(kubeconfig)], standalone_mode=False)
    )
    assert result.exit_code == 0, result.output
    documents = {
        (document["kind"], document["metadata"]["name"]): document for document in yaml.safe_load_all(result.stdout)
    }
    for (kind, _), document in documents.items():
        if kind == "ResourceClass":
            decode_resource_class(document)
        else:
            v1.KINDS.resource_claim_templates.decode(yaml_to_json(document))
    assert documents["ResourceClass", "gpu-small"]["spec"] == {"device": "gpu", "profile": "1g.10gb"}
    assert documents["ResourceClass", "gpu-by-size-whole"]["spec"] == {"device": "gpu", "cut": "Whole"}
    size = documents["ResourceClaimTemplate", "eighteen-gi"]["spec"]["spec"]["devices"]["requests"][0]["exactly"]
    assert size["deviceClassName"] == "gpu-by-size"
    assert size["selectors"][0]["cel"]["expression"] == (
        'device.capacity["gpu.kerf.dev"].memory.compareTo(quantity("18Gi")) >= 0'
    )
    assert "ResourceClass gpu-monitor: monitor: its claims need adminAccess" in result.stderr
    assert "ResourceClass gpu-small: maxPods: 1 has no equivalent" in result.stderr
    assert result.return_value == EXIT_LEFT


async def test_classes_templates_and_claims_of_a_cluster_that_are_left_are_named(kubeconfig: Path) -> None:
    """Those of other drivers, and claims that no pod owns, were left out without a word."""
    access = await load_access(kubeconfig, None)
    metadata = {"name": "other", "namespace": "default"}
    request = {"resourceClassName": "other"}
    version = {"apiVersion": "resource.k8s.io/v1alpha2"}
    async with Client(access, user_agent="test") as client:
        left: tuple[tuple[Kind[Any], dict[str, Any]], ...] = (
            (KINDS.classes, {"metadata": {"name": "other"}, "driverName": "gpu.example.com"}),
            (KINDS.templates, {"metadata": metadata, "spec": {"spec": request}}),
            (KINDS.claims, {"metadata": metadata, "spec": {"resourceClassName": "gpu-small"}}),
        )
        for kind, fields in left:
            await client.apply(kind, {**version, "kind": kind.kind, **fields}, field_manager="test")
    result = await anyio.to_thread.run_sync(
        lambda: CliRunner().invoke(command, ["--kubeconfig", str(kubeconfig)], standalone_mode=False)
    )
    assert result.return_value == EXIT_LEFT
    assert "ResourceClass other: left out: driverName: gpu.example.com: is not of Kerf" in result.stderr
    assert "ResourceClaimTemplate default/other: left out: resourceClassName: other: there is no" in result.stderr
    assert "ResourceClaim default/other: left out: write a ResourceClaimTemplate" in result.stderr
    assert "name: gpu-small\n" in result.stdout


def yaml_to_json(document: dict[str, Any]) -> bytes:
    import json

    return json.dumps(document).encode()


def test_manifests_with_limits_are_converted_without_a_cluster(tmp_path: Path) -> None:
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    for name in ("one", "two"):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(pod))
    result = CliRunner().invoke(command, ["-f", str(tmp_path)], standalone_mode=False)
    assert result.exit_code == 0, result.output
    assert (result.return_value, result.stderr) == (0, "")
    kinds = [document["kind"] for document in yaml.safe_load_all(result.stdout)]
    assert kinds == ["ResourceClass", "ResourceClaimTemplate", "Pod", "ResourceClaimTemplate", "Pod"]


def test_what_is_left_is_named_on_standard_error_and_in_the_exit_code(tmp_path: Path) -> None:
    """A claim of NVIDIA's driver gave no output at all, and exit code 0."""
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "seven"}}
    claim["spec"] = {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "mig.nvidia.com"}}]}}
    (tmp_path / "claim.yaml").write_text(yaml.safe_dump(claim))
    alone = CliRunner().invoke(command, ["-f", str(tmp_path)], standalone_mode=False)
    assert (alone.return_value, alone.stdout, len(alone.stderr.splitlines())) == (EXIT_LEFT, "", 1)
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [container]}}
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(pod))
    both = CliRunner().invoke(command, ["-f", str(tmp_path)], standalone_mode=False)
    assert (both.return_value, both.stderr) == (EXIT_LEFT, alone.stderr)
    assert [one["kind"] for one in yaml.safe_load_all(both.stdout)][-1] == "Pod"


def test_a_name_with_control_characters_does_not_reach_the_terminal() -> None:
    spec = {"discoveryHandler": {"name": "onvif"}}
    value = {"apiVersion": "akri.sh/v0", "kind": "Configuration", "metadata": {"name": "a\x1b[31m\nb"}, "spec": spec}
    result = CliRunner().invoke(command, ["-f", "-"], input=json.dumps(value), standalone_mode=False)
    [line] = result.stderr.splitlines()
    assert line.isprintable()
    assert "metadata.name must be a DNS label" in line


def test_akris_objects_are_converted_as_kubectl_prints_them() -> None:
    configuration = {
        "apiVersion": "akri.sh/v0",
        "kind": "Configuration",
        "metadata": {"name": "cameras"},
        "spec": {
            "discoveryHandler": {"name": "udev", "discoveryDetails": 'udevRules:\n- KERNEL=="video*"\n'},
            "configurationServiceSpec": {"ports": []},
        },
    }
    listed = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [configuration]})
    result = CliRunner().invoke(command, ["-f", "-"], input=listed, standalone_mode=False)
    assert result.exit_code == 0, result.output
    assert '    details: |\n      udevRules:\n      - KERNEL=="video*"\n' in result.stdout, "lines stay lines"
    assert [one["kind"] for one in yaml.safe_load_all(result.stdout)] == ["DiscoveryConfiguration"]
    assert "Configuration cameras: spec.configurationServiceSpec: left out:" in result.stderr
