"""Whether a container runtime applies CDI devices: by its version, and for containerd by its configuration.

containerd has CDI since 1.7, off by default, and on by default since 2.0 (``enable_cdi`` of its CRI plugin); CRI-O has
it since 1.23, always on. Without it, a pod with a claim starts without its devices.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any, Final

from kerf_dra.driver.diagnostics.preflight.results import CheckResult, ok, problem, warning

CHECK: Final = "container-runtime"
_VERSION: Final = re.compile(r"(?P<name>[a-z-]+)://v?(?P<major>\d+)\.(?P<minor>\d+)")
_FIRST: Final[Mapping[str, tuple[int, int]]] = {"containerd": (1, 7), "cri-o": (1, 23)}
"""The first version with CDI."""
_CONTAINERD_DEFAULT_ON: Final = (2, 0)
"""The first containerd with ``enable_cdi`` on by default."""
_PLUGINS: Final = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri")
"""Containerd's CRI plugin, as configurations of version 3 and of version 2 call it."""
_SPEC_DIRS: Final = ("/etc/cdi", "/var/run/cdi")
"""Containerd's default of ``cdi_spec_dirs``."""


def check_runtime_version(where: str, version: str) -> CheckResult:
    """Check the version that a kubelet reports, such as ``containerd://2.1.4``; ``where`` names the nodes."""
    found = _VERSION.match(version)
    name = found["name"] if found else ""
    if found is None or name not in _FIRST:
        return warning(
            CHECK,
            f"{where}: it is not known whether {version or 'the container runtime'} applies CDI devices",
            "run one pod with a claim there, and check that its container sees the device",
        )
    number = (int(found["major"]), int(found["minor"]))
    if number < _FIRST[name]:
        first = ".".join(map(str, _FIRST[name]))
        return problem(
            CHECK,
            f"{where}: {version} has no CDI, so containers would start without their devices",
            f"update it to {first} or later",
        )
    if name == "containerd" and number < _CONTAINERD_DEFAULT_ON:
        return warning(
            CHECK,
            f"{where}: {version} has CDI, which is off unless its configuration has enable_cdi = true",
            "run `kerf check node` there, which reads the configuration; set it, and restart containerd",
        )
    return ok(CHECK, f"{where}: {version} applies CDI devices")


def check_containerd_config(document: Mapping[str, Any], *, path: str, cdi_dir: str, version: str) -> CheckResult:
    """Check containerd's configuration file; ``version`` is as above, empty where it is not known."""
    plugins = document.get("plugins", {})
    plugin: Mapping[str, Any] = next((plugins[name] for name in _PLUGINS if isinstance(plugins.get(name), Mapping)), {})
    found = _VERSION.match(version)
    is_default_on = found is not None and (int(found["major"]), int(found["minor"])) >= _CONTAINERD_DEFAULT_ON
    enabled = plugin.get("enable_cdi")
    imports = document.get("imports", ())
    if enabled is False:
        return problem(
            CHECK,
            f"{path} has enable_cdi = false, so containers would start without their devices",
            "set enable_cdi = true there, and restart containerd",
        )
    if enabled is None and not is_default_on:
        also = f" (the files that it imports were not read: {', '.join(imports)})" if imports else ""
        return warning(
            CHECK,
            f"{path} does not set enable_cdi{also}, which is off by default before containerd 2.0",
            "set enable_cdi = true there, unless this is containerd 2.0 or later",
        )
    folders = plugin.get("cdi_spec_dirs", _SPEC_DIRS)
    if _resolve(cdi_dir) not in {_resolve(folder) for folder in folders}:
        return problem(
            CHECK,
            f"{path} looks for CDI specs in {', '.join(folders) or 'no folder'}, and Kerf writes them to {cdi_dir}",
            f"add {cdi_dir} to cdi_spec_dirs, or start the plugin with --cdi-dir of a folder that is there",
        )
    return ok(CHECK, f"{path}: containerd applies CDI devices of {cdi_dir}")


def _resolve(folder: str) -> PurePath:
    """Return ``folder`` as one path: /var/run is a link to /run on today's systems (FHS 3.0, 5.13)."""
    path = PurePath(folder)
    return PurePath("/run", *path.parts[3:]) if path.parts[:3] == ("/", "var", "run") else path


def check_versions(nodes_by_version: Mapping[str, str]) -> Iterator[CheckResult]:
    """Check each version, with the words for its nodes."""
    for version, where in sorted(nodes_by_version.items()):
        yield check_runtime_version(where, version)
