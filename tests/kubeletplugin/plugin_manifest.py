"""A manifest of ``deploy`` that runs the plugin, as values that tests compare."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from kerf_dra.driver.kubeletplugin.backends.registry import BackendChoice, choose_families

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
POD: Final = "DaemonSet/spec/template/spec"
CONTAINER: Final = f"{POD}/containers/plugin"


class PluginManifest:
    """The documents of a file by their kinds, and what the DaemonSet's one container has."""

    def __init__(self, path: Path) -> None:
        self.documents: dict[str, Any] = {
            document["kind"]: document for document in yaml.safe_load_all(path.read_text())
        }
        pod = self.documents["DaemonSet"]["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        self.mounts: dict[str, Any] = {mount["name"]: mount for mount in container["volumeMounts"]}
        self.volumes: dict[str, Any] = {volume["name"]: volume for volume in pod["volumes"]}
        arguments: list[str] = container["args"]
        (backend,) = (each for each in arguments if each.startswith("--backend="))
        self.backend, _, self.config_file = backend.removeprefix("--backend=").partition("=")

    @property
    def families(self) -> list[str]:
        """The families that the plugin serves with these arguments."""
        choices = (BackendChoice(name=self.backend, config=Path(self.config_file)),)
        return [one.family.name for one in choose_families((), choices)]

    def write_config(self, folder: Path) -> Path:
        """Write the backend's configuration where the container finds it, below ``folder`` instead."""
        mounted_at, _, name = self.config_file.rpartition("/")
        assert self.mounts["hardware"]["mountPath"] == mounted_at
        path = folder / name
        path.write_text(self.documents["ConfigMap"]["data"][name])
        return path

    def differences(self, other: "PluginManifest") -> set[str]:
        """The paths of the values that the two do not have in common."""
        return {path for path, _ in {*_flatten(self.documents)} ^ {*_flatten(other.documents)}}


USUAL: Final = PluginManifest(DEPLOY / "manifests" / "20-kubelet-plugin.yaml")

OF_REAL_HARDWARE: Final = frozenset(
    {
        # another profile
        *(f"{kind}/metadata/name" for kind in ("ConfigMap", "DaemonSet")),
        "DaemonSet/metadata/labels/kerf.dev/profile",
        "DaemonSet/spec/selector/matchLabels/kerf.dev/profile",
        "DaemonSet/spec/template/metadata/labels/kerf.dev/profile",
        "DaemonSet/spec/template/metadata/annotations/kerf.dev/hardware",
        f"{CONTAINER}/args/--profile=simulated",
        f"{POD}/volumes/hardware/configMap/name",
        f"{POD}/nodeSelector/kerf.dev/simulated",
        "ConfigMap/data/simulated.yaml",
        f"{CONTAINER}/args/--backend=simulated=/etc/kerf/simulated.yaml",
        # rights
        f"{POD}/hostPID",
        f"{POD}/securityContext/seccompProfile/type",
        f"{CONTAINER}/securityContext/privileged",
        f"{CONTAINER}/securityContext/allowPrivilegeEscalation",
        f"{CONTAINER}/securityContext/capabilities/drop/ALL",
        *(f"{CONTAINER}/volumeMounts/dev/{field}" for field in ("name", "mountPath")),
    }
)
"""Where each manifest for real hardware differs from the usual one."""


def _flatten(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Yield each value with its path; members of lists are named by their names, plain ones by themselves."""
    if isinstance(value, dict):
        for key, member in value.items():
            yield from _flatten(member, f"{path}/{key}" if path else key)
    elif isinstance(value, list):
        for member in value:
            name = member.get("name", "?") if isinstance(member, dict) else member
            yield from _flatten(member, f"{path}/{name}")
    else:
        yield path, value
