"""The real ``kubectl`` against the embedded API server."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE

import anyio
import pytest
import yaml
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

from tests.local.apiserver.api_client import IN_TIME_S, Api

KUBECTL = shutil.which("kubectl")
pytestmark = pytest.mark.skipif(KUBECTL is None, reason="there is no kubectl on this machine")

POD = """
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {app: a}}
spec:
  containers:
    - {name: c, image: "busybox:1"}
"""
CLAIM = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c}
spec:
  devices:
    requests: [{name: r, exactly: {deviceClassName: gpu}}]
"""
SLICE = """
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec:
  driver: d.example.com
  nodeName: n1
  pool: {name: n1, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0}]
"""
DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.test.dev}
spec:
  group: test.dev
  scope: Namespaced
  names: {plural: widgets, kind: Widget, shortNames: [wd]}
  versions:
    - name: v1
      served: true
      storage: true
      additionalPrinterColumns: [{name: Size, type: integer, jsonPath: .spec.size}]
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              description: What is wanted.
              properties: {size: {type: integer, minimum: 1, description: How large it is.}}
"""
WIDGET = """
apiVersion: test.dev/v1
kind: Widget
metadata: {name: w}
spec: {size: 3}
"""


@dataclass
class Kubectl:
    """The program with a kubeconfig and a cache of its own."""

    folder: Path

    def command(self, arguments: tuple[str, ...]) -> list[str]:
        return [str(KUBECTL), "--cache-dir", str(self.folder / "cache"), *arguments]

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH",) if name in os.environ}
        return {**kept, "HOME": str(self.folder), "KUBECONFIG": str(self.folder / "kubeconfig")}

    async def __call__(self, *arguments: str, text: str = "", fails: bool = False) -> str:
        """Run kubectl and return all its output; check whether it fails."""
        with anyio.fail_after(IN_TIME_S):
            done = await anyio.run_process(
                self.command(arguments), input=text.encode(), env=self.environment, check=False
            )
        said = done.stdout.decode() + done.stderr.decode()
        assert bool(done.returncode) == fails, said
        return said

    @asynccontextmanager
    async def started(self, *arguments: str) -> AsyncIterator[Process]:
        async with await anyio.open_process(
            self.command(arguments), env=self.environment, stdout=PIPE, stderr=PIPE
        ) as process:
            yield process
            process.terminate()


@pytest.fixture
def kubectl(api: Api, tmp_path: Path) -> Kubectl:
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(api.server.kubeconfig()))
    return Kubectl(tmp_path)


def table(text: str) -> list[list[str]]:
    return [line.split() for line in text.strip().splitlines()]


async def test_it_finds_the_server_and_what_it_serves(kubectl: Kubectl) -> None:
    assert "Server Version: v1.37.0" in await kubectl("version")
    rows = {row[0]: row for row in table(await kubectl("api-resources", "--no-headers"))}
    assert rows["pods"] == ["pods", "po", "v1", "true", "Pod"]
    assert rows["resourceslices"] == ["resourceslices", "resource.k8s.io/v1", "false", "ResourceSlice"]
    assert "resource.k8s.io/v1beta1" in (await kubectl("api-versions")).split()


async def test_a_pod_is_created_shown_described_and_deleted(kubectl: Kubectl) -> None:
    assert await kubectl("create", "-f", "-", text=POD) == "pod/p created\n"
    header, row = table(await kubectl("get", "pods", "-o", "wide"))
    assert header[:5] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert row[:4] == ["p", "0/1", "Pending", "0"]
    described = await kubectl("describe", "pod", "p")
    assert ["Image:", "busybox:1"] in table(described)
    assert ["Labels:", "app=a"] in table(described)
    assert 'pods "p" already exists' in await kubectl("create", "-f", "-", text=POD, fails=True)
    assert 'pod "p" deleted' in await kubectl("delete", "pod", "p")
    assert 'pods "p" not found' in await kubectl("get", "pod", "p", fails=True)


async def test_an_apply_changes_only_what_changed(kubectl: Kubectl) -> None:
    assert await kubectl("apply", "-f", "-", text=POD) == "pod/p created\n"
    assert await kubectl("apply", "-f", "-", text=POD) == "pod/p unchanged\n"
    newer = POD.replace("busybox:1", "busybox:2")
    assert await kubectl("apply", "-f", "-", text=newer) == "pod/p configured\n"
    assert await kubectl("get", "pod", "p", "-o", "jsonpath={.spec.containers[0].image}") == "busybox:2"


async def test_a_server_side_apply_meets_conflicts(kubectl: Kubectl) -> None:
    apply = ("apply", "--server-side", "-f", "-")
    assert await kubectl(*apply, text=POD) == "pod/p serverside-applied\n"
    other = (*apply, "--field-manager", "other")
    newer = POD.replace("busybox:1", "busybox:2")
    refused = await kubectl(*other, text=newer, fails=True)
    assert 'Apply failed with 1 conflict: conflict with "kubectl": .spec.containers[name="c"].image' in refused
    assert await kubectl(*other, "--force-conflicts", text=newer) == "pod/p serverside-applied\n"


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        ("strategic", '{"metadata": {"labels": {"b": "c"}}}'),
        ("merge", '{"metadata": {"labels": {"b": "c"}}}'),
        ("json", '[{"op": "add", "path": "/metadata/labels/b", "value": "c"}]'),
    ],
)
async def test_every_kind_of_patch_works(kubectl: Kubectl, kind: str, patch: str) -> None:
    await kubectl("create", "-f", "-", text=POD)
    assert await kubectl("patch", "pod", "p", "--type", kind, "-p", patch) == "pod/p patched\n"
    assert await kubectl("get", "pods", "-l", "app=a,b=c", "-o", "name") == "pod/p\n"


async def test_labels_and_annotations_are_set(kubectl: Kubectl) -> None:
    await kubectl("create", "configmap", "m", "--from-literal", "a=b")
    assert await kubectl("label", "configmap", "m", "x=y") == "configmap/m labeled\n"
    assert await kubectl("annotate", "configmap", "m", "x=y") == "configmap/m annotated\n"
    assert "already has a value" in await kubectl("label", "configmap", "m", "x=z", fails=True)


async def test_devices_are_shown_in_columns(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", text=f"{CLAIM}---{SLICE}")
    assert [row[:2] for row in table(await kubectl("get", "resourceclaims"))] == [["NAME", "STATE"], ["c", "pending"]]
    header, row = table(await kubectl("get", "resourceslices"))
    assert header == ["NAME", "NODE", "DRIVER", "POOL", "AGE"]
    assert row[:4] == ["s", "n1", "d.example.com", "n1"]
    by_driver = ("get", "resourceslices", "--field-selector", "spec.driver=d.example.com", "-o", "name")
    assert await kubectl(*by_driver) == "resourceslice.resource.k8s.io/s\n"


async def test_a_wrong_claim_is_refused_with_its_causes(kubectl: Kubectl) -> None:
    wrong = CLAIM.replace("deviceClassName: gpu", "count: 1")
    said = await kubectl("create", "-f", "-", text=wrong, fails=True)
    assert "spec.devices.requests[0].exactly.deviceClassName: Required value" in said


async def test_a_definition_is_waited_for_and_its_objects_used(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", text=DEFINITION)
    waited = await kubectl("wait", "--for=condition=established", "crd/widgets.test.dev", "--timeout=60s")
    assert waited == "customresourcedefinition.apiextensions.k8s.io/widgets.test.dev condition met\n"
    assert await kubectl("apply", "-f", "-", text=WIDGET) == "widget.test.dev/w created\n"
    assert await kubectl("apply", "-f", "-", text=WIDGET) == "widget.test.dev/w unchanged\n"
    assert table(await kubectl("get", "wd")) == [["NAME", "SIZE"], ["w", "3"]]
    refused = await kubectl("apply", "-f", "-", text=WIDGET.replace("3", "0"), fails=True)
    assert "spec.size in body should be greater than or equal to 1" in refused
    strict = await kubectl("apply", "-f", "-", text=WIDGET.replace("size", "sise"), fails=True)
    assert 'strict decoding error: unknown field "spec.sise"' in strict


async def test_a_kind_is_explained(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", text=DEFINITION)
    explained = await kubectl("explain", "widgets.spec.size")
    assert "size <integer>" in explained
    assert "How large it is." in explained
    assert "KIND:       Pod" in await kubectl("explain", "pods")


async def test_a_deletion_is_waited_for(api: Api, kubectl: Kubectl) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    await api.made(path, {"metadata": {"name": "m", "finalizers": ["a.b/c"]}})
    await kubectl("delete", "configmap", "m", "--wait=false")

    async def let_go() -> None:
        await api.merge(f"{path}/m", {"metadata": {"finalizers": None}})

    async with anyio.create_task_group() as group:
        group.start_soon(let_go)
        await kubectl("wait", "--for=delete", "configmap/m", "--timeout=60s")
    assert (await api.get(f"{path}/m")).status == 404


async def test_a_namespace_is_deleted_with_its_content(kubectl: Kubectl) -> None:
    await kubectl("create", "namespace", "t")
    await kubectl("create", "configmap", "m", "-n", "t", "--from-literal", "a=b")
    assert 'namespace "t" deleted' in await kubectl("delete", "namespace", "t")
    assert 'namespaces "t" not found' in await kubectl("get", "namespace", "t", fails=True)


async def test_changes_are_watched(api: Api, kubectl: Kubectl) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    async with kubectl.started("get", "configmaps", "--watch", "--output-watch-events") as process:
        assert process.stdout is not None
        lines = TextReceiveStream(process.stdout)
        with anyio.fail_after(IN_TIME_S):
            await api.made(path, {"metadata": {"name": "m"}, "data": {"a": "b"}})
            seen = ""
            while "ADDED" not in seen:
                seen += await lines.receive()
            await api.merge(f"{path}/m", {"data": {"c": "d"}})
            await api.delete(f"{path}/m")
            while "DELETED" not in seen or not seen.endswith("\n"):  # kubectl writes a row in pieces
                seen += await lines.receive()
    assert [row[:3] for row in table(seen)] == [
        ["EVENT", "NAME", "DATA"],
        ["ADDED", "m", "1"],
        ["MODIFIED", "m", "2"],
        ["DELETED", "m", "2"],
    ]
