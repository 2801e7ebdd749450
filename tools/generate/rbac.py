"""Generates the permissions of the kubelet plugin for Kerf's own families in ``deploy``.

A test generates them into another folder and compares.
"""

from pathlib import Path
from typing import Final

from kerf_dra.driver.cli.catalog.rbac import build_early_loading, build_permissions

ROOT: Final = Path(__file__).parents[2]
MANIFESTS: Final = {
    Path("deploy/manifests/15-permissions.yaml"): build_permissions,
    Path("deploy/early-loading/permissions.yaml"): build_early_loading,
}


def generate(target: Path) -> list[Path]:
    """Write the manifests below ``target`` and return their paths relative to it."""
    for path, build in MANIFESTS.items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).write_text(build(), encoding="utf-8")
    return [*MANIFESTS]
