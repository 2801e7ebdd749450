"""The DaemonSet for nodes with DFL cards: the usual one, but for its hardware and the rights in docs/fpga.md."""

from pathlib import Path
from typing import Final

import pytest

from driver.families.fpga import FPGA
from driver.kubeletplugin.backends.dfl.config import DflConfig
from driver.kubeletplugin.backends.documents import read_config
from driver.kubeletplugin.backends.registry import BackendChoice, choose_families
from driver.kubeletplugin.settings import Settings
from tests.kubeletplugin.test_nvidia_manifest import CONTAINER, POD, ROOT, USUAL, documents, flatten

OURS: Final = ROOT / "deploy" / "fpga" / "20-kubelet-plugin.yaml"
PAGES: Final = [(ROOT / "docs" / name).read_text() for name in ("fpga.md", "security.md")]
EXPECTED: Final = {
    # another profile
    *(f"{kind}/metadata/name" for kind in ("ConfigMap", "DaemonSet")),
    "DaemonSet/metadata/labels/kerf.dev/profile",
    "DaemonSet/spec/selector/matchLabels/kerf.dev/profile",
    "DaemonSet/spec/template/metadata/labels/kerf.dev/profile",
    "DaemonSet/spec/template/metadata/annotations/kerf.dev/hardware",
    f"{CONTAINER}/args/--profile=simulated",
    f"{CONTAINER}/args/--profile=fpga",
    f"{POD}/volumes/hardware/configMap/name",
    # other hardware, on other nodes
    f"{POD}/nodeSelector/kerf.dev/simulated",
    f"{POD}/nodeSelector/kerf.dev/dfl",
    "ConfigMap/data/simulated.yaml",
    "ConfigMap/data/dfl.yaml",
    f"{CONTAINER}/args/--backend=simulated=/etc/kerf/simulated.yaml",
    f"{CONTAINER}/args/--backend=dfl=/etc/kerf/dfl.yaml",
    *(
        f"{CONTAINER}/volumeMounts/{name}/{field}"
        for name in ("plugin-gpu", "simulated")
        for field in ("name", "mountPath")
    ),
    *(f"{CONTAINER}/volumeMounts/images/{field}" for field in ("name", "mountPath", "readOnly")),
    *(f"{CONTAINER}/volumeMounts/image-cache/{field}" for field in ("name", "mountPath")),
    # rights
    f"{POD}/hostPID",
    f"{POD}/securityContext/seccompProfile/type",
    f"{CONTAINER}/securityContext/privileged",
    f"{CONTAINER}/securityContext/allowPrivilegeEscalation",
    f"{CONTAINER}/securityContext/capabilities/drop/ALL",
    *(f"{CONTAINER}/volumeMounts/dev/{field}" for field in ("name", "mountPath")),
    *(
        f"{POD}/volumes/{name}/{field}"
        for name in ("plugin-gpu", "simulated", "images", "image-cache", "dev")
        for field in ("name", "hostPath/path", "hostPath/type")
    ),
}


def test_it_differs_from_the_usual_one_in_its_hardware_its_nodes_and_its_rights_alone() -> None:
    changed = {*flatten(documents(USUAL))} ^ {*flatten(documents(OURS))}
    assert {path for path, _ in changed if not path.startswith(f"{POD}/affinity")} == EXPECTED


def test_the_backend_finds_what_its_configuration_names(tmp_path: Path) -> None:
    found = documents(OURS)
    pod = found["DaemonSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (backend,) = (argument for argument in container["args"] if argument.startswith("--backend="))
    name, _, file = backend.removeprefix("--backend=").partition("=")
    assert [one.family.name for one in choose_families((), (BackendChoice(name=name, config=Path(file)),))] == ["fpga"]

    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert file.rpartition("/")[0] == mounts["hardware"]["mountPath"]
    (tmp_path / "dfl.yaml").write_text(found["ConfigMap"]["data"][file.rpartition("/")[2]])
    config = read_config(tmp_path / "dfl.yaml", DflConfig)
    assert config == DflConfig(), "the defaults are the places of the manifest"
    for folder in (config.description_folder, config.image_folder):
        assert Path(folder).is_relative_to(mounts["images"]["mountPath"])
    assert mounts["images"]["readOnly"]
    assert "readOnly" not in mounts["image-cache"]
    assert config.cache_folder == mounts["image-cache"]["mountPath"]
    assert volumes["dev"]["hostPath"]["path"] == mounts["dev"]["mountPath"] == "/dev"
    settings = Settings(node_name="node-1", family=FPGA, backends=())
    for path in (settings.dra_socket, settings.state):
        assert path.is_relative_to(mounts["plugin-fpga"]["mountPath"])


@pytest.mark.parametrize("right", ["`privileged: true`", "`hostPID: true`", "`/dev`", "`/var/lib/kerf/fpga`"])
def test_each_right_is_explained(right: str) -> None:
    assert all(right in page for page in PAGES)
