"""Kerf without what imitates a cluster or hardware: every program and every command but ``demo`` runs as ever.

The image of Kerf is such an installation. Here it is made of the wheel by the same function as there.
"""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from uuid import uuid4

import anyio
import pytest

from kerf_dra.api.core.v1 import NAMESPACES
from kerf_dra.api.kerf.v1alpha1 import RESOURCE_CLASSES
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.driver.demo.processes import run_program
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.config import load_access
from kerf_dra.driver.local.cluster import ClusterSettings, LocalCluster
from kerf_dra.driver.runtime.documents.yaml_file import parse_manifests
from tests.fakes.intel import MAX_1100, IntelMachine
from tools.image.description import IMITATIONS
from tools.image.installed_wheel import finish_installation
from tools.sources import ROOT

CLUSTER: Final = ROOT / "docs/examples/full-card/cluster.json"
NODE: Final = "node-1"
LONGEST_S: Final = 240.0
"""Of the programs' test: it takes some seconds on an idle machine."""
NAMESPACE: Final = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kerf-system"}}
RESOURCE_CLASS: Final = {
    "apiVersion": "kerf.dev/v1alpha1",
    "kind": "ResourceClass",
    "metadata": {"name": "whole"},
    "spec": {"device": "gpu-intel", "cut": "Whole"},
}
LEFT_OUT: Final = (
    "is not in this installation, which was built without simulated hardware (there is no {package}): build the image "
    "with `make image ARGS=--with-simulated`, or install the whole package kerf-dra"
)


@dataclass(frozen=True, slots=True)
class Installation:
    """A folder of packages, which a Python started elsewhere takes before those of the checkout."""

    site: Path
    folder: Path

    @property
    def environment(self) -> Mapping[str, str]:
        return {**os.environ, "PYTHONPATH": str(self.site), "COLUMNS": "200"}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )

    def kerf(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run("-m", "kerf_dra.driver.cli", *arguments)


@pytest.fixture(scope="module")
def lean(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    root = tmp_path_factory.mktemp("lean")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(root / "dist")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [wheel] = (root / "dist").iterdir()
    zipfile.ZipFile(wheel).extractall(root / "site")
    finish_installation(root / "site")
    (root / "folder").mkdir()
    IntelMachine(root / "machine").add_card(0, "0000:03:00.0", MAX_1100)
    (root / "folder/intel.yaml").write_text(f"systemRoot: {root / 'machine'}\n")
    (root / "folder/cards.yaml").write_text("cards: []\n")
    return Installation(root / "site", root / "folder")


def test_it_has_none_of_the_folders(lean: Installation) -> None:
    assert not [folder for folder in IMITATIONS if (lean.site / folder).exists()]
    assert {"api", "cdi", "driver"} <= {path.name for path in (lean.site / "kerf_dra").iterdir()}


def test_every_module_can_be_imported_but_the_command_demo(lean: Installation) -> None:
    script = """
import json, pkgutil, sys
import kerf_dra
failed, names = [], [found.name for found in pkgutil.walk_packages(kerf_dra.__path__, "kerf_dra.")]
for name in names:
    try:
        name.endswith("__main__") or __import__(name)
    except ImportError:
        failed.append(name)
print(json.dumps([kerf_dra.__file__, len(names), failed]))
"""
    ended = lean.run("-c", script)
    file, modules, failed = json.loads(ended.stdout)
    assert Path(file).is_relative_to(lean.site)
    assert modules > 500
    assert failed == ["kerf_dra.driver.cli.demo"], ended.stderr


def test_every_command_and_subcommand_but_demo_explains_itself(lean: Installation) -> None:
    script = """
import click, json, sys
from kerf_dra.driver.cli import COMMANDS, kerf, main
def walk(command, path):
    yield path
    if isinstance(command, click.Group):
        for name in command.list_commands(context := click.Context(command)):
            yield from walk(command.get_command(context, name), [*path, name])
codes = {" ".join(path): main([*path, "--help"]) for path in walk(kerf, [])}
print(json.dumps([codes, list(COMMANDS)]), file=sys.stderr)
"""
    codes, commands = json.loads(lean.run("-c", script).stderr.splitlines()[-1])
    assert codes.keys() > {"", *commands, "check node", "fpga load"}
    assert {path: code for path, code in codes.items() if code} == {"demo": 2}


RUN: Final[Sequence[tuple[Sequence[str], int, str]]] = [
    # arguments, exit code, and a part of what is printed
    (["version"], 0, "kerf 0."),
    (["--help"], 0, "kubelet-plugin"),
    (["models"], 0, "h100-80gb-sxm"),
    (["families"], 0, "gpu-intel.kerf.dev"),
    (["families", "gpu", "--policies"], 0, "ValidatingAdmissionPolicy"),
    (["rbac"], 0, "ClusterRole"),
    (["claim", "gpu", "--memory", "18Gi"], 0, "ResourceClaimTemplate"),
    (["why", "pod/trainer", "--from", str(CLUSTER)], 1, "default/notebook on node-1 ends"),
    (["plan", "-f", str(ROOT / "deploy/examples/gpu-by-size"), "--from", str(CLUSTER)], 1, "would wait"),
    (["frag", "--from", str(CLUSTER)], 0, "1 of 8 units are free"),
    (["devices", "--backend", "intel=intel.yaml"], 0, "gpu-intel-0"),
    (["check", "node"], 0, "no --backend is named"),
    (["check", "cluster"], 3, "no way to an API server"),
    (["checkpoint", "show", "--state-dir", "state"], 1, "there is no checkpoint in"),
    (["migrate", "-f", str(ROOT / "deploy/examples/extended-resource")], 1, "by extendedResourceName of ResourceClass"),
    (
        ["fpga", "verify", str(ROOT / "driver/kubeletplugin/backends/simulated/examples/quad.json")],
        1,
        "kind: is required",
    ),
    (["cdi", "-d", ".", "specs"], 0, ""),
    (["completion", "bash"], 0, "_KERF_COMPLETE"),
]


@pytest.mark.parametrize(("arguments", "code", "printed"), RUN, ids=lambda value: str(value)[:30])
def test_commands_do_what_they_do(lean: Installation, arguments: Sequence[str], code: int, printed: str) -> None:
    ended = lean.kerf(*arguments)
    assert (ended.returncode, printed in ended.stdout + ended.stderr) == (code, True), ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
    assert "simulated hardware" not in ended.stderr


@pytest.mark.parametrize(
    "arguments", [[], ["--help"], ["--nodes", "3", "-f", "pods.yaml"], ["--backend", "acme=/tmp", "nonsense"]]
)
def test_the_demo_says_what_is_missing_and_what_to_do(lean: Installation, arguments: Sequence[str]) -> None:
    ended = lean.kerf("demo", *arguments)
    package = "kerf_dra.driver.demo"
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"kerf: kerf demo {LEFT_OUT.format(package=package)}\n"


def test_the_demo_is_not_completed(lean: Installation) -> None:
    script = "from kerf_dra.driver.cli.completion import complete; complete(['d'])"
    ended = lean.run("-c", script)
    assert [line.partition("\t")[0] for line in ended.stdout.splitlines()] == ["drain", "devices", ":4"]


@pytest.mark.parametrize(
    ("backend", "family", "package", "factory"),
    [
        ("simulated", "gpu", "kerf_dra.driver.kubeletplugin.backends.simulated", "open_gpus"),
        ("simulated", "fpga", "kerf_dra.driver.kubeletplugin.backends.simulated", "open_fpgas"),
        ("nvidia-fake", "gpu", "kerf_dra.driver.testing", "open_backend"),
    ],
)
def test_a_backend_without_hardware_is_named_with_what_to_do(
    lean: Installation, backend: str, family: str, package: str, factory: str
) -> None:
    options = ["--family", family, "--backend", f"{backend}=cards.yaml"]
    devices, check = lean.kerf("devices", *options), lean.kerf("check", "node", *options)
    assert (devices.returncode, check.returncode) == (1, 1)
    for printed in (devices.stderr, " ".join(check.stdout.split())):
        assert f"backend '{backend}' of family '{family}'" in printed
        assert f":{factory}) {LEFT_OUT.format(package=package)}" in printed


def test_a_backend_without_hardware_is_listed_nowhere(lean: Installation) -> None:
    listed = lean.kerf("families", "-o", "json").stdout
    assert [[*one["backends"]] for one in json.loads(listed)][:2] == [["nvidia"], ["dfl", "xrt", "slots"]]
    unknown = lean.kerf("devices", "--backend", "nvidai")
    assert unknown.stderr.endswith(
        "installed are: dfl, discovered, intel, nvidia, slots, xrt; did you mean 'nvidia'?\n"
    )


@asynccontextmanager
async def running_programs(lean: Installation, root: Path, *backends: str) -> AsyncIterator[Client]:
    """Run the controller and a node's plugin of the installation on an embedded cluster of this process."""
    crds = [one for file in sorted((ROOT / "deploy/crds").glob("*.yaml")) for one in parse_manifests(file.read_text())]
    settings = ClusterSettings(root=root / "c", nodes=(NODE,), crds=crds)
    (root / "c").mkdir()
    cluster = LocalCluster(settings, share_id=lambda: str(uuid4()), boot_id=lambda: "boot-1")
    async with anyio.create_task_group() as group, AsyncExitStack() as stack:
        await group.start(cluster.run)
        client = await stack.enter_async_context(
            Client(await load_access(cluster.kubeconfig), user_agent="kerf-test/1")
        )
        await client.apply(NAMESPACES, NAMESPACE, field_manager="test")
        common = ["--kubeconfig", str(cluster.kubeconfig), "--probes-address", "127.0.0.1:0"]
        plugin = [
            *("kubelet-plugin", *common, "--node-name", NODE, "--kubelet-root", str(cluster.kubelet_root(NODE))),
            *("--device-plugins-dir", str(cluster.device_plugins_dir(NODE)), "--cdi-dir", str(cluster.cdi_dir(NODE))),
            *(f"--backend={backend}" for backend in backends),
        ]
        for name, arguments in (("controller", ["controller", *common]), ("plugin", plugin)):
            await stack.enter_async_context(run_program(name, arguments, root / f"{name}.log", lean.environment))
        try:
            yield client
        finally:
            for log in sorted(root.glob("*.log")):
                print(log.name, log.read_text())  # pytest shows it where the test fails
        group.cancel_scope.cancel()


async def test_controller_and_plugin_work(lean: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lean.folder)  # else ``python -m`` would find the checkout first
    with TemporaryDirectory(prefix="kl-", dir="/tmp") as name, anyio.fail_after(LONGEST_S):
        root = Path(name)
        async with running_programs(lean, root, "intel=intel.yaml") as client:
            await client.apply(RESOURCE_CLASSES, RESOURCE_CLASS, field_manager="test")
            while not (await client.list(KINDS.resource_slices)).items:  # noqa: ASYNC110
                await anyio.sleep(0.1)
            while not (await client.list(KINDS.device_classes)).items:  # noqa: ASYNC110
                await anyio.sleep(0.1)


async def test_a_plugin_with_simulated_hardware_ends_with_what_to_do(
    lean: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(lean.folder)
    with TemporaryDirectory(prefix="kl-", dir="/tmp") as name, anyio.fail_after(LONGEST_S):
        root = Path(name)
        async with running_programs(lean, root, "simulated=cards.yaml"):
            log = root / "plugin.log"
            while LEFT_OUT.format(package="kerf_dra.driver.kubeletplugin.backends.simulated") not in log.read_text():  # noqa: ASYNC110
                await anyio.sleep(0.1)
