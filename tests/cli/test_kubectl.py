"""Kerf as a kubectl plugin: its name, its completion, and kubectl's habits."""

import tomllib
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
import yaml

from kerf_dra.api.core.v1 import NODES, PODS, Container, Node, Pod, PodSpec
from kerf_dra.api.model.metadata import Condition, ObjectMeta
from kerf_dra.driver import DISTRIBUTION, VERSION
from kerf_dra.driver.cli import main
from kerf_dra.driver.cli.completion import complete
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.dump import encode_dump
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.config import load_access
from kerf_dra.driver.local.apiserver import ApiServer, ApiServerSettings
from tests.fakes.cluster_states import allocate_claims, claim, gpu_cluster, pod, replace, request

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:click")

ROOT = Path(__file__).parents[2]

Complete = Callable[..., list[str]]


@pytest.fixture
def completions(capsys: pytest.CaptureFixture[str]) -> Complete:
    def run(*words: str) -> list[str]:
        assert complete([*words]) == 0
        return [line.partition("\t")[0] for line in capsys.readouterr().out.splitlines()]

    return run


def test_kubectl_finds_the_plugin_and_its_completion() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {
        "kerf": "kerf_dra.driver.cli:main",
        "kubectl-kerf": "kerf_dra.driver.cli:main",
        "kubectl_complete-kerf": "kerf_dra.driver.cli.completion:complete",
    }
    assert (project["name"], project["version"]) == (DISTRIBUTION, VERSION)


def test_usage_has_the_words_that_were_typed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["/usr/local/bin/kubectl-kerf", "why", "--help"])
    assert main(["why", "--help"]) == 0
    assert capsys.readouterr().out.startswith("Usage: kubectl kerf why ")


def test_the_version_is_an_option_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"kerf {VERSION}\n"


def test_a_mistyped_command_is_answered_with_the_right_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["wyh"]) == 2
    assert "there is no command 'wyh'; did you mean 'why'?" in capsys.readouterr().err


def test_commands_kinds_models_and_files_are_completed(completions: Complete) -> None:
    assert completions("ch") == ["check", "checkpoint", ":4"]
    kinds = ["deployment", "deployments", "deploy", "deployments.apps", "deployment.apps"]
    assert completions("why", "deploy") == [*kinds, ":4"]
    assert completions("models", "h200") == ["h200-141gb", ":4"]
    assert completions("demo", "--gpu-model", "a30") == ["a30-24gb", ":4"]
    assert completions("demo", "--fpga-shell", "qu") == ["quad", ":4"]
    assert completions("plan", "-f", "") == [":0"], "the shell offers files"


def test_a_shell_gets_no_error_and_no_name_where_there_is_no_cluster(
    completions: Complete, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert completions("why", "pod", "") == [":4"]
    assert completions("frag", "--context", "") == [":4"]


async def test_names_of_a_cluster_are_completed(
    completions: Complete, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ApiServer(settings=ApiServerSettings())
    kubeconfig = tmp_path / "kubeconfig"
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    found: list[list[str]] = []
    lines = [
        ("why", "pod/w"),
        ("why", "po", ""),
        ("why", "-n", "other", "po", ""),
        ("frag", "--nodes", "gpu"),
        ("plan", "-n", "def"),
        ("plan", "--context", ""),
    ]
    async with anyio.create_task_group() as group:
        await group.start(server.serve)
        kubeconfig.write_text(yaml.safe_dump(server.kubeconfig()))
        async with Client(await load_access(kubeconfig), user_agent="kerf-test/1") as client:
            spec = PodSpec(containers=(Container(name="main", image="busybox"),))
            for name in ("web-1", "batch"):
                await client.create(PODS, Pod(metadata=ObjectMeta(name=name, namespace="default"), spec=spec))
            for name in ("gpu-1", "cpu-1"):
                await client.create(NODES, Node(metadata=ObjectMeta(name=name)))
            for words in lines:
                found.append(await anyio.to_thread.run_sync(completions, *words))
        group.cancel_scope.cancel()
    (context,) = yaml.safe_load(kubeconfig.read_text())["contexts"]
    assert found == [
        ["pod/web-1", ":4"],
        ["batch", "web-1", ":4"],
        [":4"],
        ["gpu-1", ":4"],
        ["default", ":4"],
        [context["name"], ":4"],
    ]


@pytest.fixture
def dump(tmp_path: Path) -> str:
    """A full node, a pod of each of two namespaces that waits for it, and claims that hold it."""
    now = allocate_claims(gpu_cluster(), *(claim(f"c{index}", "1g-10gb") for index in range(7)))
    big = claim("big", request("gpu", "3g-40gb"))
    waiting = pod("p", "big")
    elsewhere = replace(waiting, metadata=replace(waiting.metadata, namespace="other", uid="other"))
    far = replace(big, metadata=replace(big.metadata, namespace="other", uid="far"))
    runs = pod("runs", "c0")
    runs = replace(runs, spec=replace(runs.spec, node_name="node-1"), status=replace(runs.status, phase="Running"))
    ready = Condition(type="PodReadyToStartContainers", status="True")
    runs = replace(runs, status=replace(runs.status, conditions=(ready,)))
    state: ClusterState = replace(now, claims=(*now.claims, big, far), pods=(waiting, elsewhere, runs))
    file = tmp_path / "dump.json"
    file.write_bytes(encode_dump(state, compress=False))
    return str(file)


def test_pods_of_all_namespaces_are_asked_for_as_in_kubectl(dump: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", "pods", "-A", "--from", dump]) == 1
    out = capsys.readouterr().out
    assert out.startswith("all namespaces: 2 of 3 pods with devices wait\n"), "the name was empty, the total 2"
    assert "pod other/p: " in out
    assert main(["why", "pods", "--from", dump]) == 1
    assert capsys.readouterr().out.startswith("namespace default: 1 of 2 pods with devices wait\n")


@pytest.mark.parametrize("words", [["pod/p", "-A"], ["pods", "-A", "-n", "default"]])
def test_all_namespaces_have_no_meaning_beside_one_object(
    words: list[str], dump: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["why", *words, "--from", dump]) == 2
    assert "-A is for `kerf why pods`" in capsys.readouterr().err


def test_names_are_printed_for_kubectl(dump: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", "pods", "-o", "name", "--from", dump]) == 1
    assert capsys.readouterr().out == "pod/p\n"
    assert main(["models", "h200-141gb", "-o", "name"]) == 0
    assert capsys.readouterr().out == "h200-141gb\n"
    assert main(["families", "-o", "name"]) == 0
    assert capsys.readouterr().out.split() == ["gpu", "fpga", "gpu-intel", "shared"]


def test_wide_text_cuts_no_list_short(dump: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["why", "pod/p", "--from", dump])
    short = capsys.readouterr().out
    main(["why", "pod/p", "--from", dump, "-o", "wide"])
    wide = capsys.readouterr().out
    assert "more" in short
    assert "default/c6" not in short[: short.index("[ ")], "but in the drawing of the card"
    assert "default/c6" in wide
    main(["models", "-o", "wide"])
    assert "1g.10gb, 1g.10gb+me, 1g.20gb" in capsys.readouterr().out
