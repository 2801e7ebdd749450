"""The labels of a node by what its cards are (RM-16)."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from kerf_dra.driver.kubeletplugin.node_features import FeatureFile, build_node_features
from tests.kubeletplugin.harness import machine
from tests.kubeletplugin.wait import until
from tests.partitions.cards import gpu

H100 = gpu("h100-80gb-sxm")
LEGAL = re.compile(r"gpu\.kerf\.dev/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def test_rm_16_sixteen_cards_have_as_many_legal_labels_as_one_with_sums_of_all() -> None:
    cards = [
        replace(H100, uuid=f"GPU-{n}", index=n, numa_node=n // 8, pcie_root=f"pci0000:{n // 4:02x}") for n in range(16)
    ]
    one = build_node_features("gpu.kerf.dev", cards[:1])
    labels = build_node_features("gpu.kerf.dev", cards)
    assert labels.keys() - one.keys() == {"gpu.kerf.dev/numa-1.cards"}
    assert all(LEGAL.fullmatch(name) and LEGAL.fullmatch(f"gpu.kerf.dev/{value}") for name, value in labels.items())
    expected = {
        "cards": "16",
        "model.h100-80gb-sxm": "16",
        "partitions.1g.10gb": str(16 * 7),
        "partitions.3g.40gb": str(16 * 2),
        "numa-0.cards": "8",
        "numa-1.cards": "8",
        "pcie-roots": "4",
    }
    assert expected.items() <= {name.removeprefix("gpu.kerf.dev/"): value for name, value in labels.items()}.items()
    memory = int(labels["gpu.kerf.dev/memory-mib"])
    assert memory == 16 * int(one["gpu.kerf.dev/memory-mib"])
    assert 79 * 1024 <= memory // 16 <= 80 * 1024


def test_a_version_is_named_only_if_all_cards_have_it_and_what_is_no_label_is_left_out() -> None:
    odd = replace(H100, uuid="GPU-odd", index=1, driver_version="550.1 (with a patch)")
    assert "gpu.kerf.dev/driver-version" not in build_node_features("gpu.kerf.dev", [odd])
    plain = replace(odd, driver_version="550.1")
    assert build_node_features("gpu.kerf.dev", [plain])["gpu.kerf.dev/driver-version"] == "550.1"
    other = replace(plain, uuid="GPU-other", driver_version="560.1")
    assert "gpu.kerf.dev/driver-version" not in build_node_features("gpu.kerf.dev", [plain, other])


def test_the_file_is_written_whole_when_something_is_new(tmp_path: Path) -> None:
    file = FeatureFile(tmp_path, "gpu.kerf.dev")
    file.write({"gpu.kerf.dev/cards": "2"})
    path = tmp_path / "kerf-gpu.kerf.dev"
    assert path.read_text().splitlines()[1:] == ["gpu.kerf.dev/cards=2"]
    assert [*tmp_path.iterdir()] == [path]
    path.write_text("untouched")
    file.write({"gpu.kerf.dev/cards": "2"})
    assert path.read_text() == "untouched"
    file.write({})
    assert path.read_text().splitlines()[1:] == []


async def test_a_plugin_writes_what_its_cards_are(tmp_path: Path) -> None:
    with machine(features_dir=tmp_path) as node:
        path = tmp_path / f"kerf-{node.settings.driver_name}"
        async with node.plugin():
            await until(path.exists)
        assert f"{node.settings.driver_name}/cards=3" in path.read_text().splitlines()


def test_a_folder_that_is_not_there_is_told_once_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = FeatureFile(tmp_path / "features.d", "gpu.kerf.dev")
    for _ in range(2):
        file.write({"gpu.kerf.dev/cards": "2"})
    assert caplog.text.count("cannot be written") == 1
    (tmp_path / "features.d").mkdir()
    file.write({"gpu.kerf.dev/cards": "2"})
    assert (tmp_path / "features.d" / "kerf-gpu.kerf.dev").exists()
