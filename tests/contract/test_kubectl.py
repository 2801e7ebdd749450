"""The real kubectl on `kerf demo --keep`: common commands."""

import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from anyio.streams.text import TextReceiveStream

from tools.realcluster import requirements
from tools.realcluster.builds import build
from tools.realcluster.environment import chosen_version
from tools.realcluster.kerf import DEPLOY

pytestmark = pytest.mark.realcluster

EXAMPLE: Final = DEPLOY / "examples" / "gpu-by-size"
UP_S: Final = 60.0
"""For the demo's story: some 10 s on an idle machine."""
CALL_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Kubectl:
    """The program, as an administrator of the demo's cluster."""

    command: Sequence[str]
    environment: Mapping[str, str]

    def __call__(self, *arguments: str) -> str:
        """What it said, at its end; it must succeed."""
        done = subprocess.run(
            [*self.command, *arguments],
            capture_output=True,
            text=True,
            timeout=CALL_S,
            check=False,
            env=self.environment,
        )
        assert done.returncode == 0, done.stderr
        assert "unable to" not in done.stderr.lower(), done.stderr
        return done.stdout

    @asynccontextmanager
    async def watching(self, *what: str) -> AsyncIterator[AsyncIterator[str]]:
        """Lines of ``get --watch``, as they come: first what there is."""
        command = [*self.command, "get", *what, "--watch", "--output-watch-events", "--no-headers"]
        async with await anyio.open_process(command, env=self.environment, stderr=None) as watch:
            assert watch.stdout is not None
            try:
                with anyio.fail_after(CALL_S):
                    yield _lines(TextReceiveStream(watch.stdout))
                assert watch.returncode is None, "it ends only when it is told to"
            finally:
                watch.terminate()


async def _lines(texts: TextReceiveStream) -> AsyncIterator[str]:
    said = ""
    async for text in texts:
        *lines, said = (said + text).split("\n")
        for line in lines:
            yield line


@pytest.fixture(scope="module")
async def kubectl(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Kubectl]:
    """On a demo that is kept."""
    requirements.ensure()
    program, folder = build(chosen_version()).kube, tmp_path_factory.mktemp("kubectl")
    command = [
        sys.executable,
        "-m",
        "kerf_dra.driver.cli",
        "demo",
        "--keep",
        "-f",
        str(DEPLOY / "examples" / "gpu-small"),
    ]
    async with await anyio.open_process(command, stderr=subprocess.STDOUT) as demo:
        try:
            assert demo.stdout is not None
            with anyio.fail_after(UP_S):
                kubeconfig = await _kubeconfig(TextReceiveStream(demo.stdout))
            yield Kubectl(
                command=[str(program), "kubectl", f"--kubeconfig={kubeconfig}", f"--cache-dir={folder}"],
                environment={**os.environ, "HOME": str(folder)},
            )
        finally:
            demo.terminate()
            with anyio.CancelScope(shield=True):
                await demo.wait()


async def _kubeconfig(texts: TextReceiveStream) -> Path:
    said = ""
    async for text in texts:
        said += text
        if match := re.search(r"KUBECONFIG=(\S+)\n", said):
            return Path(match[1])
    raise AssertionError(f"the demo has ended:\n{said}")


def found(kubectl: Kubectl, *arguments: str) -> Any:
    return json.loads(kubectl("get", *arguments, "--output=json"))


async def test_get_shows_what_there_is(kubectl: Kubectl) -> None:
    shown = kubectl("get", "nodes,pods,resourceslices,deviceclasses,resourceclaims,resourceclasses", "--all-namespaces")
    for expected in ("node-1", "gpu-small", "gpu.kerf.dev", "allocated,reserved"):
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
    path = str(DEPLOY / "examples" / "resource-classes")
    kubectl("apply", "--server-side", "--filename", path)
    name = found(kubectl, "resourceclasses")["items"][0]["metadata"]["name"]
    kubectl("label", "resourceclass", name, "tried=yes")
    kubectl("patch", "resourceclass", name, "--type=merge", "--patch", '{"metadata": {"labels": {"tried": null}}}')
    assert "tried" not in found(kubectl, "resourceclass", name)["metadata"].get("labels", {})


async def test_watch_tells_of_a_pods_life_as_it_happens(kubectl: Kubectl) -> None:
    async with kubectl.watching("pods") as lines:
        await anext(lines)  # the demo's pod: from now on it watches
        kubectl("apply", "--filename", str(EXAMPLE))
        kubectl("wait", "pod/gpu-by-size", "--for=condition=Ready", f"--timeout={CALL_S:.0f}s")
        kubectl("delete", "--filename", str(EXAMPLE), f"--timeout={CALL_S:.0f}s")
        seen = []
        async for line in lines:
            event, name, _, phase, *_ = line.split()
            if name == "gpu-by-size":
                seen.append((event, phase))
            if event == "DELETED":
                break
    assert seen[0] == ("ADDED", "Pending")
    assert ("MODIFIED", "Running") in seen
    assert seen[-1][0] == "DELETED"


@pytest.mark.parametrize("kind", ["resourceclass", "resourceclaim", "deviceclass", "resourceslice", "node"])
async def test_watch_begins_with_what_there_is_of_every_kind(kubectl: Kubectl, kind: str) -> None:
    there = [one["metadata"]["name"] for one in found(kubectl, kind)["items"]]
    async with kubectl.watching(kind) as lines:
        told = [(await anext(lines)).split()[:2] for _ in there]
    assert told == [["ADDED", name] for name in sorted(there)]
