"""The lowest version of the format that a spec needs, with the reasons.

A reader silently ignores a file of a version that it does not know, so a writer declares the lowest version that the
content needs (``specs-go/version.go`` of container-device-interface). Each row of ``_FEATURES`` is a feature and the
version that introduced it; 0.8.0 and 1.0.0 introduced none.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from kerf_dra.cdi.spec import ContainerEdits, Spec

VERSIONS = ("0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
"""Every version that readers accept, oldest first. Versions are compared by their index here."""

WITHDRAWN = ("0.1.0", "0.2.0")
"""The versions that readers know and reject as too low."""

_Finder = Callable[[Spec], Iterator[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """A reason why a spec needs at least ``version``: the feature used at ``path``."""

    version: str
    path: str
    feature: str

    def __str__(self) -> str:
        return f"{self.version} because of {self.path} ({self.feature})"


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimumVersion:
    """The lowest version that a spec may declare, with the reasons; the lowest version of all has no reasons."""

    version: str
    reasons: tuple[Reason, ...]

    def __str__(self) -> str:
        return self.version


def minimum_version(spec: Spec) -> MinimumVersion:
    """Return the lowest version that the content of ``spec`` needs, whatever it declares."""
    reasons = [
        Reason(version=version, path=path, feature=feature)
        for version, feature, find in _FEATURES
        for path in find(spec)
    ]
    lowest = max((reason.version for reason in reasons), key=VERSIONS.index, default=VERSIONS[0])
    return MinimumVersion(version=lowest, reasons=tuple(r for r in reasons if r.version == lowest))


def version_that_readers_enforce(spec: Spec) -> str:
    """Return the version below which readers refuse ``spec``, which may be lower than what its content needs.

    Two checks in Go, ``requiresV040`` and ``requiresV050`` up to release 1.1.1, keep a pointer to a loop variable and
    so see the last device only.
    """
    last_device = replace(spec, devices=spec.devices[-1:])
    needed = [
        version
        for version, _, find in _FEATURES
        if any(find(last_device if find in (_mount_types, _host_paths) else spec))
    ]
    return max(needed, key=VERSIONS.index, default=VERSIONS[0])


def iter_edits(spec: Spec) -> Iterator[tuple[str, ContainerEdits]]:
    """Yield each ContainerEdits with its path: those of the spec first, then those of each device."""
    yield "containerEdits", spec.container_edits
    for index, device in enumerate(spec.devices):
        yield f"devices[{index}].containerEdits", device.container_edits


def _mount_types(spec: Spec) -> Iterator[str]:
    for path, edits in iter_edits(spec):
        yield from (f"{path}.mounts[{i}].type" for i, mount in enumerate(edits.mounts) if mount.type)


def _host_paths(spec: Spec) -> Iterator[str]:
    for path, edits in iter_edits(spec):
        yield from (f"{path}.deviceNodes[{i}].hostPath" for i, node in enumerate(edits.device_nodes) if node.host_path)


def _digit_names(spec: Spec) -> Iterator[str]:
    for index, device in enumerate(spec.devices):
        if device.name[:1] in tuple("0123456789"):
            yield f"devices[{index}].name"


def _annotations(spec: Spec) -> Iterator[str]:
    if spec.annotations:
        yield "annotations"
    yield from (f"devices[{i}].annotations" for i, device in enumerate(spec.devices) if device.annotations)


def _dotted_class(spec: Spec) -> Iterator[str]:
    if spec.kind.vendor and "." in spec.kind.class_name:
        yield "kind"


def _intel_rdt(spec: Spec) -> Iterator[str]:
    yield from (f"{path}.intelRdt" for path, edits in iter_edits(spec) if edits.intel_rdt is not None)


def _additional_gids(spec: Spec) -> Iterator[str]:
    yield from (f"{path}.additionalGids" for path, edits in iter_edits(spec) if edits.additional_gids)


def _net_devices(spec: Spec) -> Iterator[str]:
    yield from (f"{path}.netDevices" for path, edits in iter_edits(spec) if edits.net_devices)


def _schemata(spec: Spec) -> Iterator[str]:
    for path, edits in iter_edits(spec):
        if edits.intel_rdt is not None and edits.intel_rdt.schemata is not None:
            yield f"{path}.intelRdt.schemata"


def _monitoring(spec: Spec) -> Iterator[str]:
    for path, edits in iter_edits(spec):
        if edits.intel_rdt is not None and edits.intel_rdt.enable_monitoring:
            yield f"{path}.intelRdt.enableMonitoring"


_FEATURES: tuple[tuple[str, str, _Finder], ...] = (
    ("0.4.0", "a mount's type", _mount_types),
    ("0.5.0", "a device node's host path", _host_paths),
    ("0.5.0", "a device name that starts with a digit", _digit_names),
    ("0.6.0", "annotations", _annotations),
    ("0.6.0", "a dot in the class", _dotted_class),
    ("0.7.0", "Intel RDT", _intel_rdt),
    ("0.7.0", "additional groups", _additional_gids),
    ("1.1.0", "network devices", _net_devices),
    ("1.1.0", "Intel RDT schemata", _schemata),
    ("1.1.0", "Intel RDT monitoring", _monitoring),
)
