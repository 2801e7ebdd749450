"""Each release of Kubernetes that can be built has its Go modules and its row among the releases that were tried."""

from pathlib import Path
from typing import Final

import pytest

from tests.structure.rules import check
from tools.realcluster.versions import VERSIONS, KubernetesVersion
from tools.sources import files, text

_PAGE: Final = Path("docs/compatibility.md")
_MODULES: Final = Path("tools/realcluster/kube")


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: str(version.release))
def test_a_release_has_its_go_modules_and_its_row(version: KubernetesVersion) -> None:
    modules = _MODULES / version.module_file
    missing = {f"write {path}" for path in (modules, modules.with_suffix(".sum")) if path not in files()}
    if f"\n| {version.release}" not in text(_PAGE):
        missing.add(f"add its row to the first table of {_PAGE}, with the tests that were run")
    check(f"Kubernetes {version.release} is incomplete", missing)
