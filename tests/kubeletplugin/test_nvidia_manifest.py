"""The DaemonSet for nodes with NVIDIA cards: the usual one, but for its hardware and the rights in docs/nvidia.md."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from driver.families.gpu import GPU
from driver.kubeletplugin.backends.documents import read_config
from driver.kubeletplugin.backends.nvidia.config import NvidiaConfig
from driver.kubeletplugin.backends.registry import BackendChoice, choose_families
from driver.kubeletplugin.settings import Settings

ROOT = Path(__file__).parents[2]
USUAL = ROOT / "deploy" / "manifests" / "20-kubelet-plugin.yaml"
OURS = ROOT / "deploy" / "nvidia" / "20-kubelet-plugin.yaml"
PAGES = [(ROOT / "docs" / name).read_text() for name in ("nvidia.md", "security.md")]

POD = "DaemonSet/spec/template/spec"
CONTAINER = f"{POD}/containers/plugin"


def documents(path: Path) -> dict[str, Any]:
    return {document["kind"]: document for document in yaml.safe_load_all(path.read_text())}


def flatten(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Yield each value with its path; members of lists are named by their names, plain ones by themselves."""
    if isinstance(value, dict):
        for key, member in value.items():
            yield from flatten(member, f"{path}/{key}" if path else key)
    elif isinstance(value, list):
        for member in value:
            name = member.get("name", "?") if isinstance(member, dict) else member
            yield from flatten(member, f"{path}/{name}")
    else:
        yield path, value


def differences() -> set[str]:
    """The paths at which one of the manifests has what the other has not."""
    changed = {*flatten(documents(USUAL))} ^ {*flatten(documents(OURS))}
    return {path for path, _ in changed}


EXPECTED = {
    # another profile
    *(f"{kind}/metadata/name" for kind in ("ConfigMap", "DaemonSet")),
    "DaemonSet/metadata/labels/kerf.dev/profile",
    "DaemonSet/spec/selector/matchLabels/kerf.dev/profile",
    "DaemonSet/spec/template/metadata/labels/kerf.dev/profile",
    "DaemonSet/spec/template/metadata/annotations/kerf.dev/hardware",
    f"{CONTAINER}/args/--profile=simulated",
    f"{CONTAINER}/args/--profile=nvidia",
    f"{POD}/volumes/hardware/configMap/name",
    # other hardware, on other nodes
    f"{POD}/nodeSelector/kerf.dev/simulated",
    "ConfigMap/data/simulated.yaml",
    "ConfigMap/data/nvidia.yaml",
    f"{CONTAINER}/args/--backend=simulated=/etc/kerf/simulated.yaml",
    f"{CONTAINER}/args/--backend=nvidia=/etc/kerf/nvidia.yaml",
    f"{CONTAINER}/env/NVIDIA_VISIBLE_DEVICES/name",
    f"{CONTAINER}/env/NVIDIA_VISIBLE_DEVICES/value",
    *(
        f"{CONTAINER}/volumeMounts/{name}/{field}"
        for name in ("plugin-fpga", "simulated")
        for field in ("name", "mountPath")
    ),
    *(
        f"{POD}/volumes/{name}/{field}"
        for name in ("plugin-fpga", "simulated")
        for field in ("name", "hostPath/path", "hostPath/type")
    ),
    # rights
    f"{POD}/hostPID",
    f"{POD}/securityContext/seccompProfile/type",
    f"{CONTAINER}/securityContext/privileged",
    f"{CONTAINER}/securityContext/allowPrivilegeEscalation",
    f"{CONTAINER}/securityContext/capabilities/drop/ALL",
    *(
        f"{CONTAINER}/volumeMounts/driver-root/{field}"
        for field in ("name", "mountPath", "readOnly", "mountPropagation")
    ),
    *(f"{CONTAINER}/volumeMounts/dev/{field}" for field in ("name", "mountPath")),
    *(
        f"{POD}/volumes/{name}/{field}"
        for name in ("driver-root", "dev")
        for field in ("name", "hostPath/path", "hostPath/type")
    ),
}


def test_it_differs_from_the_usual_one_in_its_hardware_its_nodes_and_its_rights_alone() -> None:
    nodes = f"{POD}/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution"
    assert {path for path in differences() if not path.startswith(nodes)} == EXPECTED


def test_the_backend_finds_what_its_configuration_names(tmp_path: Path) -> None:
    found = documents(OURS)
    pod = found["DaemonSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (backend,) = (argument for argument in container["args"] if argument.startswith("--backend="))
    name, _, file = backend.removeprefix("--backend=").partition("=")
    assert [one.family.name for one in choose_families((), (BackendChoice(name=name, config=Path(file)),))] == ["gpu"]

    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert file.rpartition("/")[0] == mounts["hardware"]["mountPath"]
    (tmp_path / "nvidia.yaml").write_text(found["ConfigMap"]["data"][file.rpartition("/")[2]])
    config = read_config(tmp_path / "nvidia.yaml", NvidiaConfig)
    assert config.driver_root == mounts["driver-root"]["mountPath"]
    assert config.host_driver_root == volumes["driver-root"]["hostPath"]["path"]
    assert config.mig_mode == NvidiaConfig().mig_mode
    assert config.system_root == "/", "device nodes are looked for in /dev"
    assert volumes["dev"]["hostPath"]["path"] == mounts["dev"]["mountPath"] == "/dev"

    settings = Settings(node_name="node-1", family=GPU, backends=())
    written = [Path(config.cdi_hook_folder), settings.dra_socket, settings.state, settings.registration_socket]
    for path in (*written, replace(settings, instance="uid").cdi_dir):
        (mount,) = (
            one for one in mounts.values() if one["mountPath"] != "/dev" and path.is_relative_to(one["mountPath"])
        )
        assert volumes[mount["name"]]["hostPath"]["path"] == mount["mountPath"], path
        assert not mount.get("readOnly"), path


@pytest.mark.parametrize("right", ["`privileged: true`", "`hostPID: true`", "`/dev`", "`/driver-root`"])
def test_each_right_is_explained(right: str) -> None:
    assert all(right in page for page in PAGES)
