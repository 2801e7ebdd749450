"""The chart's profile for nodes with Alveo cards: the places of the backend's defaults, and its rights."""

from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from kerf_dra.driver.kubeletplugin.backends.xrt.config import XrtConfig
from tests.kubeletplugin.plugin_manifest import DEPLOY

PROFILES: Final = DEPLOY / "chart/kerf/profiles"


def read(name: str) -> dict[str, Any]:
    (found,) = yaml.safe_load((PROFILES / f"{name}.yaml").read_text())["plugins"]
    assert isinstance(found, dict)
    return found


def test_the_backend_finds_what_its_configuration_names() -> None:
    ours = read("xrt")
    config = msgspec.convert(ours["backends"]["xrt"], type=XrtConfig)
    assert config == XrtConfig(), "the defaults are the places of the profile"
    mounts = {mount["name"]: mount for mount in ours["mounts"]}
    for folder in (config.description_folder, config.image_folder):
        assert Path(folder).is_relative_to(mounts["images"]["path"])
    assert mounts["images"]["readOnly"]
    assert mounts["image-cache"] == {"name": "image-cache", "path": config.cache_folder}


def test_it_has_the_rights_of_the_profile_for_other_fpga_cards_and_nodes_of_its_own() -> None:
    ours, other = read("xrt"), read("fpga")
    apart = {"name", "backends", "nodeSelector"}
    assert {key: value for key, value in ours.items() if key not in apart} == {
        key: value for key, value in other.items() if key not in apart
    }
    assert ours["nodeSelector"] == {"kerf.dev/xrt": "true"} != other["nodeSelector"]
