"""The plugin runs on every node: it starts fast and stays small, because it imports little."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kerf_dra.driver.families.registry import BUILT_IN
from tests.kube.certificates import HERE
from tools.image.description import IMITATIONS

HEAVY = (
    "kubernetes",
    "cel_expr_python",
    "jsonschema",
    "rich",
    "click",
    "numpy",
    "pydantic",
    "hypothesis",
    "zipfile",
)
"""Packages, and a module of the standard library that comes with ``importlib.resources``."""


OF_OLDER_CLUSTERS = {
    "kerf_dra.api.resource.v1beta1",
    "kerf_dra.api.resource.v1alpha3",
    "kerf_dra.api.dra.v1alpha3",
    "kerf_dra.api.dra.v1alpha2",
}


def imported_by_the_plugin() -> list[str]:
    script = "import sys, kerf_dra.driver.kubeletplugin.app\nprint('\\n'.join(sys.modules))"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()


def test_the_plugin_imports_no_wire_format_before_the_cluster_asks_for_it() -> None:
    assert OF_OLDER_CLUSTERS.isdisjoint(imported_by_the_plugin())


def test_the_plugin_imports_no_heavy_package() -> None:
    loaded = {module.partition(".")[0] for module in imported_by_the_plugin()}
    assert loaded.isdisjoint(HEAVY), sorted(loaded.intersection(HEAVY))
    assert "grpc" in loaded, "the list is that of the process that was asked"


REAL = [f"--backend={name}" for family in BUILT_IN for name in family.backends]
PROGRAMS = [
    ["kubelet-plugin", "--node-name=node-1", "--probes-address=127.0.0.1:0", *REAL],
    ["controller", "--probes-address=127.0.0.1:0"],
    ["mps-daemons", "--folder=/dev/null"],
]


def started(arguments: list[str], folder: Path) -> tuple[str, set[str]]:
    """What a program writes that ends at once, as it finds no cluster or folder, and what it has imported by then."""
    script = f"""
import sys
import kerf_dra.driver.cli
kerf_dra.driver.cli.main({arguments})
print(*sys.modules, sep="\\n")
"""
    alone = {name: value for name, value in os.environ.items() if not name.startswith(("KUBE", "KERF"))}
    ended = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env={**alone, "HOME": str(folder)},
    )
    return ended.stderr, {*ended.stdout.split()}


@pytest.mark.parametrize("arguments", PROGRAMS, ids=lambda arguments: arguments[0])
def test_no_program_imports_what_imitates_a_cluster_or_hardware(arguments: list[str], tmp_path: Path) -> None:
    written, loaded = started(arguments, tmp_path)
    assert "kerf_dra.driver.runtime.lifecycle" in loaded, written
    apart = tuple(folder.replace("/", ".") for folder in IMITATIONS)
    assert [name for name in loaded if name.startswith(apart)] == []


def test_a_plugin_with_the_backends_of_kerfs_families_reads_no_metadata_of_packages(tmp_path: Path) -> None:
    """That takes 0.7 MB and a tenth of its start."""
    written, loaded = started(PROGRAMS[0], tmp_path)
    assert "no way to an API server" in written, "it got as far as that"
    assert "importlib.metadata" not in loaded


@pytest.mark.parametrize("where", [where for family in BUILT_IN for where in family.backends.values()])
def test_no_backend_imports_what_imitates_hardware(where: str) -> None:
    script = f"import sys, pkgutil; pkgutil.resolve_name({where!r}); print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    apart = tuple(folder.replace("/", ".") for folder in IMITATIONS)
    assert [name for name in ended.stdout.split() if name.startswith(apart)] == []


def test_the_plugin_keeps_no_certificate_authorities_that_it_does_not_ask(tmp_path: Path) -> None:
    """It ends at once, as there is no such backend; what it has imported by then, it imports on every node."""
    arguments = ["kubelet-plugin", "--node-name=node-1", "--backend=none", f"--kubelet-root={tmp_path}"]
    script = f"""
import kerf_dra.driver.cli
kerf_dra.driver.cli.main({arguments})
from aiohttp import connector
for context in connector._SSL_CONTEXT_VERIFIED, connector._SSL_CONTEXT_UNVERIFIED:
    print(context.cert_store_stats()["x509_ca"])
"""
    environment = {**os.environ, "SSL_CERT_FILE": str(HERE / "ca-1.pem")}
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    assert "backend 'none'" in ended.stderr, "it got as far as that"
    assert ended.stdout.split() == ["0", "0"]
