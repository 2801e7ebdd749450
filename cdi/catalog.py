"""The devices that a set of spec files defines, and the conflicts between files. This module does no I/O.

A directory later in the list has the higher priority, and its definition of a device silently overrides others. Two
definitions of equal priority conflict: the device is then not available at all, not even from other directories
(``refresh`` in pkg/cdi of container-device-interface). Other devices of these files stay available.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kerf_dra.cdi.document.decoder import Document
from kerf_dra.cdi.errors import InvalidNameError
from kerf_dra.cdi.names import QualifiedName, Semantics
from kerf_dra.cdi.spec import Device, Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecFile:
    """One file of a spec directory as it was read."""

    path: Path
    priority: int
    """The index of the file's directory in the list; the highest has priority."""
    document: Document

    @property
    def spec(self) -> Spec | None:
        """The file's spec; None: the file cannot be used."""
        return self.document.spec if self.document.is_valid else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """The definition of one device in one file."""

    name: QualifiedName
    device: Device
    spec: Spec
    file: SpecFile


@dataclass(frozen=True, kw_only=True)
class Catalog:
    """The devices that all files together define. ``files`` are in the order of the scan."""

    files: tuple[SpecFile, ...]
    directory_errors: Mapping[Path, str]
    """The reasons why directories could not be read; a missing directory is no error."""

    @cached_property
    def definitions(self) -> Mapping[str, tuple[Definition, ...]]:
        """Every definition of every device by qualified name, also of devices that are not available."""
        found: defaultdict[str, list[Definition]] = defaultdict(list)
        for file in self.files:
            for definition in _definitions(file, file.spec):
                found[str(definition.name)].append(definition)
        return {name: tuple(found[name]) for name in sorted(found)}

    @cached_property
    def conflicts(self) -> Mapping[str, tuple[Path, ...]]:
        """The files with conflicting definitions of a device, by its qualified name."""
        return {name: paths for name, found in self.definitions.items() if (paths := _conflicting_paths(found))}

    @cached_property
    def devices(self) -> Mapping[str, Definition]:
        """The definition in force of each available device, by qualified name, sorted."""
        return {
            name: max(every, key=lambda one: one.file.priority)
            for name, every in self.definitions.items()
            if name not in self.conflicts
        }

    @cached_property
    def errors(self) -> Mapping[Path, tuple[str, ...]]:
        """The reasons why files or directories cannot be used, or not in full, by path."""
        errors: defaultdict[Path, list[str]] = defaultdict(list)
        for path, message in self.directory_errors.items():
            errors[path].append(message)
        for file in self.files:
            errors[file.path] += [str(one) for one in file.document.findings if one.severity == "error"]
        for name, paths in self.conflicts.items():
            for path in paths:
                others = ", ".join(str(other) for other in paths if other != path)
                errors[path].append(f"device {name} is also defined in {others}; it is not available")
        return {path: tuple(errors[path]) for path in sorted(errors) if errors[path]}

    @property
    def vendors(self) -> tuple[str, ...]:
        """The vendors of all usable files, sorted."""
        return tuple(sorted({file.spec.kind.vendor for file in self.files if file.spec}))

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes of all usable files, sorted."""
        return tuple(sorted({file.spec.kind.class_name for file in self.files if file.spec}))

    def specs(self, vendor: str | None = None) -> tuple[SpecFile, ...]:
        """Return the usable files of ``vendor``, or of all vendors."""
        return tuple(file for file in self.files if file.spec and vendor in (None, file.spec.kind.vendor))

    def why_missing(self, name: str, semantics: Semantics = "1.1") -> str:
        """Return the reason why ``name`` is not in ``devices``; runtimes only call it unresolvable."""
        try:
            qualified = QualifiedName.parse(name, semantics)
        except InvalidNameError as error:
            return str(error)
        if name in self.conflicts:
            return f"defined with equal priority in {_listed(self.conflicts[name])}; keep one of them"
        broken = [file for file in self.files if file.spec is None]
        for file in broken:
            if any(str(definition.name) == name for definition in _definitions(file, file.document.spec)):
                return f"{file.path} defines it but cannot be used: {self.errors[file.path][0]}"
        same_kind = [file for file in self.files if file.spec and file.spec.kind == qualified.kind]
        if same_kind:
            known = _listed(device for device in self.devices if device.startswith(f"{qualified.kind}="))
            return f"{_listed(file.path for file in same_kind)} has {known or 'no such device'}"
        hint = f"; {_listed(file.path for file in broken)} cannot be used" if broken else ""
        return f"no file defines devices of kind {qualified.kind}{hint}"


def _definitions(file: SpecFile, spec: Spec | None) -> Iterable[Definition]:
    if spec is not None:
        for device in spec.devices:
            name = QualifiedName(kind=spec.kind, device=device.name)
            yield Definition(name=name, device=device, spec=spec, file=file)


def _conflicting_paths(found: Iterable[Definition]) -> tuple[Path, ...]:
    by_priority: defaultdict[int, list[Path]] = defaultdict(list)
    for definition in found:
        by_priority[definition.file.priority].append(definition.file.path)
    return tuple(path for paths in by_priority.values() if len(paths) > 1 for path in paths)


def _listed(things: Iterable[object]) -> str:
    return ", ".join(str(thing) for thing in things)
