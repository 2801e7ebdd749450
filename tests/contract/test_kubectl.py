"""The real kubectl on `kerf demo --keep`: what people will try first."""

import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from anyio.streams.text import TextReceiveStream

from tests.realcluster import requirements
from tests.realcluster.building import build
from tests.realcluster.choosing import chosen_version
from tests.realcluster.kerf import DEPLOY

pytestmark = pytest.mark.realcluster

EXAMPLE: Final = DEPLOY / "examples" / "gpu-by-size.yaml"
UP_S: Final = 60.0
"""For the demo's story: some 10 s on an idle machine."""
CALL_S: Final = 60.0

Kubectl = Callable[..., str]


@pytest.fixture(scope="module")
async def kubectl(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Kubectl]:
    """Runs kubectl to its end on a demo that is kept; returns what it said."""
    requirements.ensure()
    program, folder = build(chosen_version()).kube, tmp_path_factory.mktemp("kubectl")
    command = [sys.executable, "-m", "driver.cli", "demo", "--keep", "-f", str(DEPLOY / "examples" / "gpu-small.yaml")]
    async with await anyio.open_process(command, stderr=subprocess.STDOUT) as demo:
        try:
            assert demo.stdout is not None
            with anyio.fail_after(UP_S):
                kubeconfig = await _kubeconfig(TextReceiveStream(demo.stdout))

            def run(*arguments: str) -> str:
                done = subprocess.run(
                    [str(program), "kubectl", f"--kubeconfig={kubeconfig}", f"--cache-dir={folder}", *arguments],
                    capture_output=True,
                    text=True,
                    timeout=CALL_S,
                    check=False,
                    env={**os.environ, "HOME": str(folder)},
                )
                assert done.returncode == 0, done.stderr
                assert "unable to" not in done.stderr.lower(), done.stderr
                return done.stdout

            yield run
        finally:
            demo.terminate()
            with anyio.CancelScope(shield=True):
                await demo.wait()


async def _kubeconfig(lines: TextReceiveStream) -> Path:
    said = ""
    async for text in lines:
        said += text
        if match := re.search(r"KUBECONFIG=(\S+)|--kubeconfig[= ](\S+)", said):
            return Path(match[1] or match[2])
    raise AssertionError(f"the demo has ended:\n{said}")


def found(kubectl: Kubectl, *arguments: str) -> Any:
    return json.loads(kubectl("get", *arguments, "--output=json"))


async def test_get_shows_what_there_is(kubectl: Kubectl) -> None:
    shown = kubectl("get", "nodes,pods,resourceslices,deviceclasses,resourceclaims,resourceclasses", "--all-namespaces")
    for expected in ("node-1", "gpu-small", "kerf.dev", "allocated,reserved"):
        assert expected in shown


@pytest.mark.parametrize("kind", ["pod", "resourceclaim", "deviceclass", "resourceslice", "resourceclass", "node"])
async def test_describe_tells_of_every_kind(kubectl: Kubectl, kind: str) -> None:
    described = kubectl("describe", kind)
    assert re.search(r"^Name: +\S", described, re.MULTILINE)


async def test_explain_knows_our_own_kind(kubectl: Kubectl) -> None:
    assert "FIELDS" in kubectl("explain", "resourceclass.spec")


async def test_apply_wait_and_delete_go_through_a_pods_life(kubectl: Kubectl) -> None:
    applied = kubectl("apply", "--filename", str(EXAMPLE))
    assert "pod/gpu-by-size created" in applied
    assert "unchanged" in kubectl("apply", "--filename", str(EXAMPLE))
    kubectl("wait", "pod/gpu-by-size", "--for=condition=Ready", f"--timeout={CALL_S:.0f}s")
    (status,) = found(kubectl, "pod", "gpu-by-size")["status"]["resourceClaimStatuses"]
    kubectl("wait", "pod/gpu-by-size", "--for=jsonpath={.status.phase}=Running", f"--timeout={CALL_S:.0f}s")
    kubectl("delete", "--filename", str(EXAMPLE), f"--timeout={CALL_S:.0f}s")
    names = [one["metadata"]["name"] for one in found(kubectl, "resourceclaims")["items"]]
    assert status["resourceClaimName"] not in names


async def test_server_side_apply_and_patch(kubectl: Kubectl) -> None:
    path = str(DEPLOY / "examples" / "resource-classes.yaml")
    kubectl("apply", "--server-side", "--filename", path)
    name = found(kubectl, "resourceclasses")["items"][0]["metadata"]["name"]
    kubectl("label", "resourceclass", name, "tried=yes")
    kubectl("patch", "resourceclass", name, "--type=merge", "--patch", '{"metadata": {"labels": {"tried": null}}}')
    assert "tried" not in found(kubectl, "resourceclass", name)["metadata"].get("labels", {})
