"""The plugin runs on every node: it starts fast and stays small, because it imports little."""

import subprocess
import sys

HEAVY = (
    "kubernetes",
    "cel_expr_python",
    "jsonschema",
    "rich",
    "click",
    "numpy",
    "pydantic",
    "hypothesis",
)


OF_OLDER_CLUSTERS = {"api.resource.v1beta1", "api.resource.v1alpha3", "api.dra.v1alpha3", "api.dra.v1alpha2"}


def imported_by_the_plugin() -> list[str]:
    script = "import sys, driver.kubeletplugin.app\nprint('\\n'.join(sys.modules))"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()


def test_the_plugin_imports_no_wire_format_before_the_cluster_asks_for_it() -> None:
    assert OF_OLDER_CLUSTERS.isdisjoint(imported_by_the_plugin())


def test_the_plugin_imports_no_heavy_package() -> None:
    loaded = {module.partition(".")[0] for module in imported_by_the_plugin()}
    assert loaded.isdisjoint(HEAVY), sorted(loaded.intersection(HEAVY))
    assert "grpc" in loaded, "the list is that of the process that was asked"
