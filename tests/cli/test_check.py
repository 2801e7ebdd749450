"""`kerf check` from the command line: of a node in a temporary folder, and of the embedded cluster."""

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import dropwhile, takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import anyio
import pytest
import yaml

from kerf_dra.api.model.allocations import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaimStatus,
)
from kerf_dra.api.model.names import DriverName
from kerf_dra.driver.cli import main
from kerf_dra.driver.cli.check.node_reader import NodeOptions, read_node
from kerf_dra.driver.kube.discovery import discover
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.config import load_access
from kerf_dra.driver.local.apiserver import ApiServer, ApiServerSettings
from tests.fakes.cluster_states import claim, replace, request

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:click")

PAGE = Path(__file__).parents[2] / "docs/check.md"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path: those of sockets have at most 107 bytes."""
    with TemporaryDirectory(prefix="kerf-") as path:
        yield Path(path)


def arguments(folder: Path, *more: str) -> list[str]:
    cards = folder / "cards.yaml"
    state = str(folder / "cards")
    cards.write_text(yaml.safe_dump({"state": state, "cards": [{"kind": "gpu", "model": "h100-80gb-sxm"}]}))
    return [
        "check",
        "node",
        f"--backend=simulated={cards}",
        f"--kubelet-root={folder / 'kubelet'}",
        f"--cdi-dir={folder / 'cdi'}",
        f"--containerd-config={folder / 'config.toml'}",
        *more,
    ]


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Mapping[str, Any]]:
    code = main([*words, "--output=json"])
    return code, json.loads(capsys.readouterr().out)


def levels(document: Mapping[str, Any]) -> dict[str, str]:
    worst = {"ok": 0, "warning": 1, "problem": 2}
    found: dict[str, str] = {}
    for one in document["checks"]:
        found[one["check"]] = max(found.get(one["check"], "ok"), one["level"], key=worst.__getitem__)
    return found


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a = " + "[" * 5000, "a line of more than 4096 characters"),
        ("a = " + "[\n" * 5000, "nested too deeply"),
        ("a.b = 1\n" * 40_000, "has more than 262144 bytes"),
        ("a" + ".a" * 100_000 + " = 1", "a line of more than 4096 characters"),
    ],
)
def test_a_configuration_of_containerd_without_bottom_or_end_is_a_warning(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, says: str
) -> None:
    (folder / "config.toml").write_text(text)
    code, document = run(capsys, *arguments(folder))
    (found,) = (one for one in document["checks"] if one["check"] == "container-runtime")
    assert (code, found["level"], says in json.dumps(found)) == (0, "warning", True)


def test_a_node_is_checked_without_a_cluster_and_nothing_is_made(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, document = run(capsys, *arguments(folder))
    assert code == 0
    assert document["verdict"] == "warning", "nobody knows the container runtime"
    assert levels(document) | {"pod-resources": "warning", "container-runtime": "warning"} == levels(document)
    assert levels(document)["partitions"] == levels(document)["disk"] == levels(document)["folders"] == "ok"
    assert not (folder / "kubelet").exists()
    assert not (folder / "cdi").exists()


def test_a_folder_of_hooks_that_others_may_write_is_a_problem(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hooks = folder / "hooks"
    hooks.mkdir()
    hooks.chmod(0o777)
    code, document = run(capsys, *arguments(folder), "--maintenance-hooks", str(hooks))
    said = [one for one in document["checks"] if str(hooks) in one["message"]]
    assert (code, [one["level"] for one in said]) == (1, ["problem"])


@pytest.mark.parametrize("columns", [80, 200])
def test_a_problem_is_exit_code_1_with_what_to_do(
    columns: int, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    (folder / "config.toml").write_text('version = 2\n[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = false\n')
    assert main(arguments(folder)) == 1
    lines = capsys.readouterr().out.splitlines()
    problem, *others = dropwhile(lambda line: not line.startswith("problem  container-runtime"), lines)
    (message, *_, step) = [problem, *takewhile(lambda line: line.startswith(" "), others)]
    indent = len(message) - len(message.split(maxsplit=2)[2])
    assert step.startswith(" " * indent)
    words = " ".join(line.strip() for line in (problem, *others))
    assert "-> set enable_cdi = true there, and restart containerd" in words
    assert max(len(line) for line in lines if "/" not in line) <= columns, "paths stay whole"
    assert lines[-1].startswith("node: 1 problem, ")


def test_a_configuration_that_is_no_toml_is_a_warning(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "config.toml").write_text("version = ")
    code, document = run(capsys, *arguments(folder))
    assert (code, levels(document)["container-runtime"]) == (0, "warning")


def test_a_backend_that_fails_is_a_problem(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = arguments(folder)
    (folder / "cards.yaml").write_text("cards: [{kind: gpu, model: nope}]\n")
    code, document = run(capsys, *words)
    assert (code, levels(document)["hardware"]) == (1, "problem")


def test_an_api_server_that_does_not_answer_keeps_no_plugin_from_starting(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(folder / "nowhere"))
    monkeypatch.setenv("HOME", str(folder))
    code, document = run(capsys, *arguments(folder, "--node-name=node-1"))
    assert (code, document["subject"], levels(document)["api-server"]) == (0, "node node-1", "warning")


async def test_a_driver_is_registered_with_the_kubelet_while_one_of_its_sockets_is_open(folder: Path) -> None:
    """A plugin that was killed leaves its socket: it must not keep Kerf's from starting."""
    registry = folder / "kubelet/plugins_registry"
    registry.mkdir(parents=True)
    names = ["gpu.intel.com-reg.sock", *(f"gpu.nvidia.com-{uuid4()}-reg.sock" for _ in range(2)), "a.example.sock"]
    options = NodeOptions(
        node_name="",
        families=(),
        backends=(),
        kubeconfig=None,
        context=None,
        kubelet_root=folder / "kubelet",
        state_dir=None,
        cdi_dir=folder / "cdi",
        instance="",
        containerd_config=folder / "config.toml",
    )
    registered = []
    with ExitStack() as stack:
        for name in names:
            opened = stack.enter_context(socket.socket(socket.AF_UNIX))
            opened.bind(str(registry / name))
            registered.append((await read_node(options, lambda: datetime.now(UTC))).registered)
            opened.listen()
            registered.append((await read_node(options, lambda: datetime.now(UTC))).registered)
            if name == names[1]:
                opened.close()
    intel, both = ("gpu.intel.com",), ("gpu.intel.com", "gpu.nvidia.com")
    assert registered == [(), intel, intel, both, intel, both, both, both]


async def test_the_embedded_cluster_is_checked_and_what_it_does_not_serve_is_said(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = ApiServer(settings=ApiServerSettings())
    kubeconfig = folder / "kubeconfig"
    async with anyio.create_task_group() as group:
        await group.start(server.serve)
        kubeconfig.write_text(yaml.safe_dump(server.kubeconfig()))
        code = await anyio.to_thread.run_sync(main, ["check", "cluster", "--output=json", f"--kubeconfig={kubeconfig}"])
        node = await anyio.to_thread.run_sync(
            main, [*arguments(folder), "--node-name=no", "--output=json", f"--kubeconfig={kubeconfig}"]
        )
        group.cancel_scope.cancel()
    text = capsys.readouterr().out
    cluster, end = json.JSONDecoder().raw_decode(text)
    assert code == node == 0
    assert levels(cluster) == {
        "version": "ok",
        "dra-api": "ok",
        "taint-rules": "ok",
        "retired-attributes": "ok",
        "class-placements": "ok",
        "feature-gates": "warning",
        "definitions": "warning",
        "permissions": "warning",
        "reclaimer": "warning",
        "container-runtime": "warning",
        "other-drivers": "ok",
        "device-plugins": "ok",
        "double-allocation": "ok",
        "extended-resources": "ok",
        "clock": "ok",
    }
    about_node = levels(json.loads(text[end:]))
    assert {name: about_node[name] for name in ("api-server", "node", "other-drivers", "clock")} == {
        "api-server": "ok",
        "node": "warning",
        "other-drivers": "ok",
        "clock": "ok",
    }


def test_a_cluster_that_cannot_be_read_is_exit_code_3(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(folder / "nowhere"))
    assert main(["check", "cluster"]) == 3
    assert "no way to an API server" in capsys.readouterr().err


def test_the_page_names_every_check(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, document = run(capsys, *arguments(folder))
    page = PAGE.read_text(encoding="utf-8")
    assert not [name for name in levels(document) if f"| `{name}` |" not in page]


async def test_a_cluster_with_claims_of_kerfs_may_not_lose_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = ApiServer(settings=ApiServerSettings())
    kubeconfig = folder / "kubeconfig"
    ask = ["check", "uninstall", "--output=json", f"--kubeconfig={kubeconfig}"]
    results = DeviceAllocationResult(
        results=(DeviceRequestAllocationResult(request="r", driver=DriverName("gpu.kerf.dev"), pool="p", device="d"),)
    )
    status = ResourceClaimStatus(allocation=AllocationResult(devices=results))
    async with anyio.create_task_group() as group:
        await group.start(server.serve)
        kubeconfig.write_text(yaml.safe_dump(server.kubeconfig()))
        codes = [await anyio.to_thread.run_sync(main, ask)]
        async with Client(await load_access(kubeconfig), user_agent="kerf-test/1") as client:
            claims = (await discover(client)).resource.resource_claims
            created = await client.create(claims, claim("c", request("r", "small")))
            await client.update(claims, replace(created, status=status), subresource="status")
        codes.append(await anyio.to_thread.run_sync(main, ask))
        codes.append(await anyio.to_thread.run_sync(main, [*ask, "--driver=npu.acme.example"]))
        group.cancel_scope.cancel()
    assert codes == [0, 1, 0]
    text = capsys.readouterr().out
    assert "namespace default: 1 claim has devices: c (no pod uses it)" in text
    assert "no claim has devices of npu.acme.example" in text
