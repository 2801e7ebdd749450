"""The folders of a node, as its kernel and udev write them, in any folder."""

import os
from pathlib import Path

from kerf_dra.driver.kubeletplugin.discovery_handlers.built_in_handlers import find_nodes
from kerf_dra.driver.kubeletplugin.discovery_handlers.udev_devices import UdevTree
from kerf_dra.driver.kubeletplugin.discovery_handlers.udev_rules import parse_udev_rule


class UdevNode:
    """The folders of a node."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sys = root / "sys"

    def add(self, path: str, *, link: str, uevent: str = "", notes: dict[str, str] | None = None, **files: str) -> Path:
        """A device at ``path``, found by ``link``, whose first folder but one is its subsystem."""
        device = self.sys / path
        device.mkdir(parents=True, exist_ok=True)
        (device / "uevent").write_text(uevent)
        for name, text in files.items():
            (device / name).write_text(text)
        entry = self.sys / link
        entry.parent.mkdir(parents=True, exist_ok=True)
        entry.symlink_to(os.path.relpath(device, entry.parent))
        subsystem = self.sys / "/".join(link.split("/")[:2])
        (device / "subsystem").symlink_to(os.path.relpath(subsystem, device))
        for name, text in (notes or {}).items():
            place = self.root / "run/udev/data" / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        return device

    def find(self, rule: str) -> dict[str, str]:
        return dict(find_nodes(UdevTree(self.root), [parse_udev_rule(rule)]))
