"""The DaemonSet for nodes with DFL cards: the usual one, but for its hardware and the rights in docs/fpga.md."""

from pathlib import Path
from typing import Final

import pytest

from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.kubeletplugin.backends.dfl.config import DflConfig
from kerf_dra.driver.kubeletplugin.backends.documents import read_config
from kerf_dra.driver.kubeletplugin.settings import Settings
from tests.kubeletplugin.plugin_manifest import CONTAINER, DEPLOY, OF_REAL_HARDWARE, POD, USUAL, PluginManifest

OURS: Final = PluginManifest(DEPLOY / "fpga" / "20-kubelet-plugin.yaml")
PAGES: Final = [(DEPLOY.parent / "docs" / name).read_text() for name in ("fpga.md", "security.md")]
EXPECTED: Final = {
    *OF_REAL_HARDWARE,
    f"{CONTAINER}/args/--profile=fpga",
    f"{POD}/nodeSelector/kerf.dev/dfl",
    "ConfigMap/data/dfl.yaml",
    f"{CONTAINER}/args/--backend=dfl=/etc/kerf/dfl.yaml",
    *(
        f"{CONTAINER}/volumeMounts/{name}/{field}"
        for name in ("plugin-gpu", "simulated")
        for field in ("name", "mountPath")
    ),
    *(f"{CONTAINER}/volumeMounts/images/{field}" for field in ("name", "mountPath", "readOnly")),
    *(f"{CONTAINER}/volumeMounts/image-cache/{field}" for field in ("name", "mountPath")),
    *(
        f"{POD}/volumes/{name}/{field}"
        for name in ("plugin-gpu", "simulated", "images", "image-cache", "dev")
        for field in ("name", "hostPath/path", "hostPath/type")
    ),
}


def test_it_differs_from_the_usual_one_in_its_hardware_its_nodes_and_its_rights_alone() -> None:
    nodes = f"{POD}/affinity"
    assert {path for path in OURS.differences(USUAL) if not path.startswith(nodes)} == EXPECTED


def test_the_backend_finds_what_its_configuration_names(tmp_path: Path) -> None:
    assert OURS.families == ["fpga"]
    config = read_config(OURS.write_config(tmp_path), DflConfig)
    assert config == DflConfig(), "the defaults are the places of the manifest"
    for folder in (config.description_folder, config.image_folder):
        assert Path(folder).is_relative_to(OURS.mounts["images"]["mountPath"])
    assert OURS.mounts["images"]["readOnly"]
    assert "readOnly" not in OURS.mounts["image-cache"]
    assert config.cache_folder == OURS.mounts["image-cache"]["mountPath"]
    assert OURS.volumes["dev"]["hostPath"]["path"] == OURS.mounts["dev"]["mountPath"] == "/dev"
    settings = Settings(node_name="node-1", family=FPGA, backends=())
    for path in (settings.dra_socket, settings.state):
        assert path.is_relative_to(OURS.mounts["plugin-fpga"]["mountPath"])


@pytest.mark.parametrize("right", ["`privileged: true`", "`hostPID: true`", "`/dev`", "`/var/lib/kerf/fpga`"])
def test_each_right_is_explained(right: str) -> None:
    assert all(right in page for page in PAGES)
