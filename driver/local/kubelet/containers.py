"""The bundles that stand in for containers: the OCI runtime spec that a runtime would get, on disk."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from kerf_dra.api.core.v1 import Container, Pod
from kerf_dra.api.model.base import JsonObject
from kerf_dra.cdi import Cache, inject

_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The PATH that container runtimes give to images without one."""
_NONE: Final[Mapping[str, str]] = MappingProxyType({})
"""What a container without devices of device plugins gets of them."""


def oci_spec(pod: Pod, container: Container) -> JsonObject:
    """Return the runtime spec of a container before any device is added (opencontainers/runtime-spec ``config.md``)."""
    environment = [f"PATH={_PATH}", f"HOSTNAME={pod.metadata.name}"]
    return {
        "ociVersion": "1.2.0",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": [*container.command, *container.args] or ["/bin/sh"],
            "cwd": "/",
            "env": environment + [f"{variable.name}={variable.value}" for variable in container.env],
        },
        "root": {"path": "rootfs", "readonly": True},
        "hostname": pod.metadata.name,
        "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
        "linux": {"namespaces": [{"type": "pid"}, {"type": "mount"}, {"type": "network"}]},
    }


class ContainerBundles:
    """The bundles below ``root``, as ``<pod uid>/<container>/config.json``."""

    def __init__(self, root: Path, cdi_dirs: Sequence[Path]) -> None:
        self._root = root
        self._cache = Cache(cdi_dirs)

    def start(
        self,
        pod: Pod,
        container: Container,
        cdi_ids: Sequence[str],
        *,
        environment: Mapping[str, str] = _NONE,
        annotations: Mapping[str, str] = _NONE,
    ) -> None:
        """Write the bundle with the devices in it; one that exists is a running container and stays.

        ``environment`` and ``annotations`` are those that device plugins add.

        Raises cdi.CDIError when a device cannot be resolved; nothing is written then.
        """
        bundle = self._bundle(pod) / container.name
        if (bundle / "config.json").exists():
            return
        self._cache.refresh()
        bare = oci_spec(pod, container)
        bare["process"]["env"] += [f"{name}={value}" for name, value in environment.items()]
        if annotations:
            bare["annotations"] = dict(annotations)
        spec = inject(self._cache, bare, cdi_ids)
        bundle.mkdir(parents=True, exist_ok=True)
        unfinished = bundle / "config.json.tmp"
        unfinished.write_text(json.dumps(spec, indent=2))
        unfinished.rename(bundle / "config.json")

    def describe(self, pod_uid: str, container: str) -> str:
        """Return in words what a container would have got, one text; also for one that has not started."""
        file = self._root / pod_uid / container / "config.json"
        if not file.exists():
            return f"The container {container} has not started.\n"
        spec = json.loads(file.read_text())
        nodes = [node["path"] for node in spec["linux"].get("devices", ())]
        lines = [
            f"The container {container} would run:  {' '.join(spec['process']['args'])}",
            *(f"with in its environment:  {variable}" for variable in spec["process"]["env"]),
            *(f"with the device node:  {node}" for node in nodes),
            f"Its OCI runtime spec:  {file}",
        ]
        return "".join(f"{line}\n" for line in lines)

    def stop(self, pod: Pod) -> None:
        shutil.rmtree(self._bundle(pod), ignore_errors=True)

    def _bundle(self, pod: Pod) -> Path:
        return self._root / pod.metadata.uid
