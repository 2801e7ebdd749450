"""The DaemonSet for nodes with NVIDIA cards: the usual one, but for its hardware and the rights in docs/nvidia.md."""

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kubeletplugin.backends.documents import read_config
from kerf_dra.driver.kubeletplugin.backends.nvidia.config import NvidiaConfig
from kerf_dra.driver.kubeletplugin.settings import Settings
from tests.kubeletplugin.plugin_manifest import CONTAINER, DEPLOY, OF_REAL_HARDWARE, POD, USUAL, PluginManifest

OURS: Final = PluginManifest(DEPLOY / "nvidia" / "20-kubelet-plugin.yaml")
PAGES: Final = [(DEPLOY.parent / "docs" / name).read_text() for name in ("nvidia.md", "security.md")]


EXPECTED: Final = {
    *OF_REAL_HARDWARE,
    f"{CONTAINER}/args/--profile=nvidia",
    "ConfigMap/data/nvidia.yaml",
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
    *(
        f"{CONTAINER}/volumeMounts/driver-root/{field}"
        for field in ("name", "mountPath", "readOnly", "mountPropagation")
    ),
    *(
        f"{POD}/volumes/{name}/{field}"
        for name in ("driver-root", "dev")
        for field in ("name", "hostPath/path", "hostPath/type")
    ),
}


def test_it_differs_from_the_usual_one_in_its_hardware_its_nodes_and_its_rights_alone() -> None:
    nodes = f"{POD}/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution"
    assert {path for path in OURS.differences(USUAL) if not path.startswith(nodes)} == EXPECTED


def test_the_backend_finds_what_its_configuration_names(tmp_path: Path) -> None:
    assert OURS.families == ["gpu"]
    config = read_config(OURS.write_config(tmp_path), NvidiaConfig)
    assert config.driver_root == OURS.mounts["driver-root"]["mountPath"]
    assert config.host_driver_root == OURS.volumes["driver-root"]["hostPath"]["path"]
    assert config.mig_mode == NvidiaConfig().mig_mode
    assert config.system_root == "/", "device nodes are looked for in /dev"
    assert OURS.volumes["dev"]["hostPath"]["path"] == OURS.mounts["dev"]["mountPath"] == "/dev"

    settings = Settings(node_name="node-1", family=GPU, backends=())
    written = [Path(config.cdi_hook_folder), settings.dra_socket, settings.state, settings.registration_socket]
    for path in (*written, replace(settings, instance="uid").cdi_dir):
        (mount,) = (
            one for one in OURS.mounts.values() if one["mountPath"] != "/dev" and path.is_relative_to(one["mountPath"])
        )
        assert OURS.volumes[mount["name"]]["hostPath"]["path"] == mount["mountPath"], path
        assert not mount.get("readOnly"), path


@pytest.mark.parametrize("right", ["`privileged: true`", "`hostPID: true`", "`/dev`", "`/driver-root`"])
def test_each_right_is_explained(right: str) -> None:
    assert all(right in page for page in PAGES)
