"""The generated modules are those that the protos beside them give, and only their adapters import them."""

import ast
from pathlib import Path

from tools.generate import protos
from tools.sources import GENERATED

ADAPTERS = {
    "deviceplugin_v1beta1": {"api/deviceplugin/v1beta1.py"},
    "discovery_v1alpha1": {"api/discovery/v1alpha1.py"},
    "dra_v1": {"api/dra/v1.py"},
    "dra_v1beta1": {"api/dra/v1beta1.py"},
    "dra_v1alpha2": {"api/dra/v1alpha2.py"},
    "dra_v1alpha3": {"api/dra/v1alpha3.py"},
    "health_v1": {"api/dra/health.py"},
    "health_v1alpha1": {"api/dra/health.py"},
    "podresources_v1": {"api/podresources/v1.py"},
    "registration_v1": {"api/registration/v1.py"},
}


def test_generating_again_changes_nothing(tmp_path: Path) -> None:
    generated = protos.generate(tmp_path)
    assert len(generated) == 2 * len(ADAPTERS)
    for path in generated:
        assert (tmp_path / path).read_text() == (protos.ROOT / path).read_text(), f"{path}: run `make generate`"


def test_generated_modules_are_imported_by_their_adapter_only() -> None:
    importers: dict[str, set[str]] = {name: set() for name in ADAPTERS}
    for package in ("api", "driver", "cdi"):
        for file in (protos.ROOT / package).rglob("*.py"):
            path = file.relative_to(protos.ROOT)
            if GENERATED in path.parts:
                continue
            for name in _generated_imports(file):
                importers[name].add(str(path))
    assert importers == ADAPTERS


def _generated_imports(file: Path) -> set[str]:
    text = file.read_text()
    if GENERATED not in text:
        return set()
    modules = {node.module or "" for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)}
    return {module.partition("._generated.")[2] for module in modules if "._generated." in module}
