"""The devices of a node as udev knows them: the kernel's ``/sys``, and udev's own notes in ``/run/udev/data``.

Both are read as files below a root, because libudev (and pyudev, its binding) has these paths compiled in and takes no
root: a plugin in a container, and a test, have the node's folders elsewhere. The plugin also needs no library of the
system for it. What libudev makes of the files is documented by their writers: sysfs-rules.rst of the kernel, and
``sd-device`` of systemd (the letters of the notes: E property, G tag, S link in ``/dev``).

What cannot be read, or is gone meanwhile, is as if it were not there.
"""

import os
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Final

ATTRIBUTE_BYTES: Final = 4096
"""The most bytes of an attribute: a page, as the kernel gives them."""
NOTES_BYTES: Final = 256 * 1024
"""The most bytes of udev's notes of a device: real ones have a few thousand."""

_LINK_ATTRIBUTES: Final = frozenset({"driver", "module", "subsystem"})
"""Attributes that are links, of which libudev gives the last part."""


class UdevTree:
    """The folders of a node, below ``root``."""

    def __init__(self, root: Path) -> None:
        self._sys = f"{root}".rstrip("/") + "/sys"
        self._notes = f"{root}".rstrip("/") + "/run/udev/data"

    def list_devices(self, subsystems: Collection[str] = ()) -> "Iterator[SysfsDevice]":
        """Yield each device once, of these subsystems or of all."""
        seen = set()
        for folder in self._list_folders(subsystems):
            for entry in _list(folder):
                path = self._resolve(folder, entry)
                if path is not None and path not in seen:
                    seen.add(path)
                    yield SysfsDevice(self, path)

    def find_parent(self, path: str) -> "SysfsDevice | None":
        """Return the device that the one at ``path`` is behind: the nearest folder above that is a device."""
        while (path := path.rpartition("/")[0]).startswith(f"{self._sys}/devices/"):
            if os.path.lexists(f"{path}/uevent"):
                return SysfsDevice(self, path)
        return None

    def make_devpath(self, path: str) -> str:
        return path.removeprefix(self._sys)

    def read_notes(self, name: str) -> str:
        return "" if "/" in name else _read(f"{self._notes}/{name}", NOTES_BYTES)

    def _list_folders(self, subsystems: Collection[str]) -> Iterator[str]:
        names = [name for name in subsystems if name and "/" not in name and name not in {".", ".."}]
        if subsystems:
            yield from (f"{self._sys}/class/{name}" for name in names)
            yield from (f"{self._sys}/bus/{name}/devices" for name in names)
            return
        yield from (f"{self._sys}/class/{name}" for name in _list(f"{self._sys}/class"))
        yield from (f"{self._sys}/bus/{name}/devices" for name in _list(f"{self._sys}/bus"))

    def _resolve(self, folder: str, entry: str) -> str | None:
        """Return the folder of a device, by its entry in a class or bus, which is a link to it; None: it is none."""
        with suppress(OSError):
            path = os.path.normpath(f"{folder}/{_follow(f'{folder}/{entry}')}")
            if path.startswith(f"{self._sys}/devices/"):
                return path
        return None


class SysfsDevice:
    """One device; its files are read when they are asked for, each once."""

    def __init__(self, tree: UdevTree, path: str) -> None:
        self._tree = tree
        self._path = path

    @property
    def devpath(self) -> str:
        """The path below ``/sys``."""
        return self._tree.make_devpath(self._path)

    @property
    def name(self) -> str:
        """The kernel's name, in which it writes ``!`` for slashes in folders."""
        return self._path.rpartition("/")[2].replace("!", "/")

    @cached_property
    def subsystem(self) -> str:
        return _read_link(f"{self._path}/subsystem")

    @cached_property
    def driver(self) -> str:
        return _read_link(f"{self._path}/driver")

    @cached_property
    def parent(self) -> "SysfsDevice | None":
        return self._tree.find_parent(self._path)

    @property
    def node(self) -> str:
        """The path of its device node on the host; empty: it has none."""
        return self.get_property("DEVNAME")

    @property
    def tags(self) -> frozenset[str]:
        return frozenset(value for letter, value in self._notes if letter == "G")

    def get_property(self, name: str) -> str:
        """Return a property; empty: there is none."""
        return self._properties.get(name, "")

    def read_attribute(self, name: str) -> str | None:
        """Return an attribute, without the end of its last line; None: there is none that can be read."""
        path = f"{self._path}/{name}"
        with suppress(OSError):
            mode = os.lstat(path).st_mode
            if stat.S_ISLNK(mode):
                return _read_link(path) if name in _LINK_ATTRIBUTES else None
            if stat.S_ISREG(mode):
                return _read_file(path, ATTRIBUTE_BYTES).removesuffix("\n")
        return None

    @cached_property
    def _properties(self) -> Mapping[str, str]:
        properties = {"DEVPATH": self.devpath, "SUBSYSTEM": self.subsystem} | self._kernel_properties
        if name := properties.get("DEVNAME"):
            properties["DEVNAME"] = f"/dev/{name}"
        properties |= dict(value.split("=", 1) for letter, value in self._notes if letter == "E" and "=" in value)
        if self.tags:
            properties["TAGS"] = f":{':'.join(sorted(self.tags))}:"
        if links := [value for letter, value in self._notes if letter == "S"]:
            properties["DEVLINKS"] = " ".join(f"/dev/{link}" for link in sorted(links))
        return MappingProxyType(properties)

    @cached_property
    def _kernel_properties(self) -> dict[str, str]:
        lines = _read(f"{self._path}/uevent", ATTRIBUTE_BYTES).splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    @cached_property
    def _notes(self) -> tuple[tuple[str, str], ...]:
        """The lines of udev's notes: a letter and a value."""
        lines = self._tree.read_notes(self._notes_name).splitlines()
        return tuple((line[0], line[2:]) for line in lines if line[1:2] == ":")

    @property
    def _notes_name(self) -> str:
        """The name of udev's notes: by device number, by network interface, else by name."""
        properties = self._kernel_properties
        if "MAJOR" in properties and properties["MAJOR"] != "0":
            letter = "b" if self.subsystem == "block" else "c"
            return f"{letter}{properties['MAJOR']}:{properties.get('MINOR', '')}"
        if self.subsystem == "net" and "IFINDEX" in properties:
            return f"n{properties['IFINDEX']}"
        return f"+{self.subsystem}:{self._path.rpartition('/')[2]}"


def _list(folder: str) -> list[str]:
    with suppress(OSError):
        return sorted(os.listdir(folder))  # noqa: PTH208  (strings: a node has thousands of entries)
    return []


def _read_link(path: str) -> str:
    with suppress(OSError):
        return _follow(path).rpartition("/")[2]
    return ""


def _follow(link: str) -> str:
    return os.readlink(link)  # noqa: PTH115  (as above)


def _read(path: str, limit: int) -> str:
    with suppress(OSError):
        return _read_file(path, limit)
    return ""


def _read_file(path: str, limit: int) -> str:
    """Read at most ``limit`` bytes. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, limit).decode(errors="replace")
    finally:
        os.close(descriptor)
