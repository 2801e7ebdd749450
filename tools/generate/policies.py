"""Generates the policies on the parameters of Kerf's own families in ``deploy/manifests``.

A test generates them into another folder and compares.
"""

from pathlib import Path
from typing import Final

from kerf_dra.driver.cli.catalog.families import format_policies
from kerf_dra.driver.families.registry import BUILT_IN

ROOT: Final = Path(__file__).parents[2]
MANIFEST: Final = Path("deploy/manifests/16-parameters.yaml")


def generate(target: Path) -> list[Path]:
    """Write the manifest below ``target`` and return its path relative to it."""
    path = target / MANIFEST
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(format_policies(BUILT_IN), encoding="utf-8")
    return [MANIFEST]
