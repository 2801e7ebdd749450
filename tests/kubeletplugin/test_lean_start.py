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


def test_the_plugin_imports_no_heavy_package() -> None:
    script = "import sys, driver.kubeletplugin.app\nprint('\\n'.join(sys.modules))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = {module.partition(".")[0] for module in result.stdout.splitlines()}
    assert loaded.isdisjoint(HEAVY), sorted(loaded.intersection(HEAVY))
    assert "grpc" in loaded, "the list is that of the process that was asked"
