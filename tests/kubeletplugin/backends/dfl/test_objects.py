"""The backend ``dfl`` with shells and images that objects of the cluster describe, and what it says of refused ones."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from kerf_dra.driver.kubeletplugin.backends.base import DiscoveryChange, HardwareRefusedError
from kerf_dra.driver.kubeletplugin.backends.dfl import DflBackend, open_backend
from kerf_dra.driver.partitions.geometry import Card
from tests.fakes.dfl import NEEDS_COMPILER, DflMachine, build_gbs
from tests.fakes.dfl.machine import AES_ID, FFT_ID, INTERFACE, build_document
from tests.fakes.image_server import CERTIFICATE, image_server
from tests.kube.certificates import HERE
from tests.kubeletplugin.backends.dfl.machine import DflNode

pytestmark = NEEDS_COMPILER

KEY: Final = """-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAzfKO4nul3qPPnhV8pw+VSfrrEywXUYLsGA0JcMUTeuY=
-----END PUBLIC KEY-----
"""
OTHER_ID: Final = "44444444-4444-4444-8444-444444444444"


@pytest.fixture
def node(tmp_path: Path) -> DflNode:
    return DflNode(tmp_path)


def test_a_card_is_published_once_the_cluster_describes_its_shell_and_a_function_once_it_describes_its_image(
    tmp_path: Path,
) -> None:
    hardware = DflMachine.create(tmp_path)
    shell, image = describe_in_cluster(hardware)
    backend = open_backend(write_config(hardware))
    assert list(backend.discover()) == []
    backend.describe([shell])
    assert find_functions(backend.discover()[0]) == set()
    backend.describe([image, shell])
    [first, _] = backend.discover()
    assert find_functions(first) == {"aes"}
    digest = image["spec"]["files"][0]["sha256"]
    found = {dict(spec.attributes)["imageDigest"].string for spec in first.geometry.specs if spec.function == "aes"}
    assert found == {digest}
    backend.describe([])
    assert list(backend.discover()) == []


def test_what_a_file_of_the_node_describes_counts_before_an_object_of_the_cluster(
    node: DflNode, caplog: pytest.LogCaptureFixture
) -> None:
    _, image = describe_in_cluster(node.hardware)
    image["spec"]["version"] = "9"
    node.describe(image)
    node.backend.discover()
    assert "FpgaImage aes: spec.function: another image is described of aes" in caplog.text
    record = node.prepare(node.part(function="aes"))
    assert record.handle is not None
    assert record.handle["version"] == "1.2.0"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda hardware: (hardware.images / "aes.gbs").unlink(), "Missing"),
        (lambda hardware: hardware.add_image("aes.gbs", FFT_ID), "WrongDigest"),
        (lambda hardware: hardware.describe_function("aes", OTHER_ID, [0], afuID=AES_ID), "WrongFunction"),
        (lambda hardware: hardware.add_image("blank.gbs", FFT_ID), "WrongDigest"),
    ],
)
def test_a_node_publishes_which_images_it_cannot_load_and_why(
    change: Callable[[DflMachine], object], reason: str, node: DflNode
) -> None:
    change(node.hardware)
    for card in node.backend.discover():
        text = card.attributes["refusedImages"].string
        assert text in {f"aes={reason}", f"(blank)={reason}"}


def describe_in_cluster(hardware: DflMachine) -> tuple[dict[str, Any], dict[str, Any]]:
    """The shell and the function ``aes`` as objects of the cluster, with image files on the node."""
    image = hardware.build_image("aes", AES_ID, [0, 1, 2, 3])
    shell = build_document("FpgaShell", "lab", interfaceUUID=INTERFACE, slots=[{"lut": 1}] * 4)
    return shell, image


def write_config(hardware: DflMachine, more: str = "") -> Path:
    file = hardware.folder / "dfl.yaml"
    file.write_text(
        f"descriptionFolder: {hardware.descriptions}\nimageFolder: {hardware.images}\nsystemRoot: {hardware.folder}\n"
        f"cacheFolder: {hardware.folder}/cache\ncaFile: {CERTIFICATE}\nhealthPollSeconds: 0.01\n{more}"
    )
    return file


def find_functions(card: Card) -> set[str]:
    return {spec.function for spec in card.geometry.specs if spec.function is not None}


# Fetched images


def test_an_image_is_fetched_ahead_of_use_and_loaded_from_the_cache(tmp_path: Path) -> None:
    with image_server() as server:
        hardware = DflMachine.create(tmp_path)
        shell, image = describe_fetched(hardware, server.url("/aes.gbs"))
        server.files["/aes.gbs"] = (hardware.images / "aes.gbs").read_bytes()
        (hardware.images / "aes.gbs").unlink()
        backend = open_backend(write_config(hardware))
        backend.open()
        backend.describe([shell, image])
        [first, _] = backend.discover()
        assert first.attributes["refusedImages"].string == "aes=NotFetched"
        assert server.asked == [], "whoever only looks fetches nothing"
        wait_for_discovery(backend)
        [first, _] = backend.discover()
        assert find_functions(first) == {"aes"}
        assert first.attributes["refusedImages"].string == ""
        backend.close()
    again = open_backend(write_config(hardware))
    again.describe([shell, image])
    assert find_functions(again.discover()[0]) == {"aes"}, "the file outlives the process"


@pytest.mark.parametrize(
    ("authorities", "refused"), [(CERTIFICATE, ""), (HERE / "ca-2.pem", "aes=FetchFailed")], ids=["added", "another"]
)
def test_without_ca_file_an_image_server_needs_an_authority_that_was_added_to_the_systems(
    authorities: Path, refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``certificateAuthorities`` of the chart are in the file that ``SSL_CERT_FILE`` names."""
    monkeypatch.setenv("SSL_CERT_FILE", str(authorities))
    with image_server() as server:
        hardware = DflMachine.create(tmp_path)
        shell, image = describe_fetched(hardware, server.url("/aes.gbs"))
        server.files["/aes.gbs"] = (hardware.images / "aes.gbs").read_bytes()
        (hardware.images / "aes.gbs").unlink()
        file = write_config(hardware)
        file.write_text(file.read_text().replace(f"caFile: {CERTIFICATE}\n", ""))
        backend = open_backend(file)
        backend.describe([shell, image])
        backend.discover()
        wait_for_discovery(backend)
        assert backend.discover()[0].attributes["refusedImages"].string == refused
        backend.close()
        assert server.asked == ([] if refused else ["/aes.gbs"])


@pytest.mark.parametrize("damage", ["changed", "replaced by a link"])
def test_a_file_that_was_changed_in_the_cache_is_not_loaded_and_fetched_again(damage: str, tmp_path: Path) -> None:
    with image_server() as server:
        hardware = DflMachine.create(tmp_path)
        shell, image = describe_fetched(hardware, server.url("/aes.gbs"))
        content = server.files["/aes.gbs"] = (hardware.images / "aes.gbs").read_bytes()
        cached = hardware.folder / "cache" / image["spec"]["files"][0]["sha256"]
        backend = open_backend(write_config(hardware))
        backend.describe([shell, image])
        backend.discover()
        wait_for_discovery(backend)
        assert find_functions(backend.discover()[0]) == {"aes"}
        cached.unlink()
        if damage == "changed":
            cached.write_bytes(build_gbs(FFT_ID))
        else:
            cached.symlink_to(hardware.images / "aes.gbs")
        [first, _] = backend.discover()
        assert find_functions(first) == set()
        wait_for_discovery(backend)
        assert find_functions(backend.discover()[0]) == {"aes"}
        assert (cached.read_bytes(), cached.is_symlink()) == (content, False)
        backend.close()


def test_messages_about_the_load_of_a_fetched_image_name_its_url(
    node: DflNode, caplog: pytest.LogCaptureFixture
) -> None:
    """They named nothing: a fetched image has no path."""
    url = "https://images.example/aes.gbs"
    _, image = describe_fetched(node.hardware, url)
    node.hardware.write_description("aes.yaml", image)
    cached = node.hardware.folder / "cache" / image["spec"]["files"][0]["sha256"]
    cached.parent.mkdir(exist_ok=True)
    cached.write_bytes((node.hardware.images / "aes.gbs").read_bytes())
    node.backend.discover()
    with caplog.at_level(logging.INFO):
        node.prepare(node.part(0, function="aes"))
    assert f"{url} was loaded into slot 0 of 0000:3b:00.0 in " in caplog.text
    node.hardware.add_fault("pr", "wrong-id", "f" * 32)
    with pytest.raises(HardwareRefusedError, match=f"reports no function after the load of {url}"):
        node.prepare(node.part(1, function="aes"))


def test_a_node_without_a_cache_fetches_nothing(tmp_path: Path) -> None:
    hardware = DflMachine.create(tmp_path)
    shell, image = describe_fetched(hardware, "https://127.0.0.1:1/aes.gbs")
    backend = open_backend(write_config(hardware, "cacheBytes: 0\n"))
    backend.describe([shell, image])
    assert find_functions(backend.discover()[0]) == set()
    assert backend.wait_for_events(0) == []
    assert find_functions(backend.discover()[0]) == set()


def test_with_keys_a_node_offers_what_was_signed_alone(tmp_path: Path) -> None:
    """FP-06 (the signature)."""
    pytest.importorskip("cryptography")
    hardware = DflMachine.create(tmp_path)
    shell, image = describe_in_cluster(hardware)
    keys = "keys: {release: " + json.dumps(KEY) + "}\n"
    backend = open_backend(write_config(hardware, keys))
    backend.describe([shell, image])
    [first, _] = backend.discover()
    assert find_functions(first) == set()
    assert first.attributes["refusedImages"].string == "aes=Unsigned"


def describe_fetched(hardware: DflMachine, url: str) -> tuple[dict[str, Any], dict[str, Any]]:
    shell, image = describe_in_cluster(hardware)
    [file] = image["spec"]["files"]
    image["spec"]["files"] = [{"url": url, "sha256": file["sha256"], "slots": file["slots"]}]
    return shell, image


def wait_for_discovery(backend: DflBackend) -> None:
    while DiscoveryChange() not in backend.wait_for_events(5):
        pass
