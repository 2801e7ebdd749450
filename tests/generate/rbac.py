"""Generates the permissions of the kubelet plugin for Kerf's own families in ``deploy/manifests``.

A test generates them into another folder and compares.
"""

from pathlib import Path
from typing import Final

from driver.cli.rbac import build_permissions

ROOT: Final = Path(__file__).parents[2]
MANIFEST: Final = Path("deploy/manifests/15-permissions.yaml")


def generate(target: Path) -> list[Path]:
    """Write the manifest below ``target`` and return its path relative to it."""
    path = target / MANIFEST
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(build_permissions(), encoding="utf-8")
    return [MANIFEST]
