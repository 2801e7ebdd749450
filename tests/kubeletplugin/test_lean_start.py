"""The plugin runs on every node: it starts fast and stays small, because it imports little."""

import os
import subprocess
import sys
from pathlib import Path

from tests.kube.certificates import HERE

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
