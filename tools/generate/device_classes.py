"""Generates the DeviceClasses of Kerf's own families in ``deploy/manifests``.

A test generates them into another folder and compares.
"""

from pathlib import Path
from typing import Final

from kerf_dra.api.resource.registry import VERSIONS
from kerf_dra.driver.cli.catalog.families import format_device_classes
from kerf_dra.driver.families.registry import BUILT_IN

ROOT: Final = Path(__file__).parents[2]
MANIFEST: Final = Path("deploy/manifests/30-device-classes.yaml")


def generate(target: Path) -> list[Path]:
    """Write the manifest below ``target`` and return its path relative to it."""
    path = target / MANIFEST
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(format_device_classes(BUILT_IN, VERSIONS[0]), encoding="utf-8")
    return [MANIFEST]
