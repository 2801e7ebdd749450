"""What manifests describe of hardware: it is checked like all manifests, and every node of the demo has it."""

from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from kerf_dra.api.kerf.discovery_objects import device_name
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.demo.hardware import (
    DemoHardware,
    FoundHardware,
    HardwareUnusableError,
    find_manifest_hardware,
    list_expected_devices,
)
from kerf_dra.driver.demo.manifests import BadManifestsError, find_ineffective_objects, load_manifests
from kerf_dra.driver.kubeletplugin.backends.registry import BackendChoice, load_backends
from kerf_dra.driver.runtime.documents.yaml_file import parse_manifests
from tests.demo.test_manifests import CLASS, TEMPLATE, write

SHELLS: Final = """
apiVersion: kerf.dev/v1alpha1
kind: FpgaShell
metadata: {name: lab}
spec: {interfaceUUID: 1d0b24b2-6a5f-5c0e-9b0e-6a0e7a1f3c55, slots: [{lut: 400000}, {lut: 400000}]}
---
apiVersion: kerf.dev/v1alpha1
kind: FpgaShell
metadata: {name: edge}
spec: {interfaceUUID: 1d0b24b2-6a5f-5c0e-9b0e-6a0e7a1f3c56, slots: [{lut: 60000}]}
"""
IMAGE: Final = """
apiVersion: kerf.dev/v1alpha1
kind: FpgaImage
metadata: {name: sort}
spec:
  function: sort
  interfaceUUID: 1d0b24b2-6a5f-5c0e-9b0e-6a0e7a1f3c55
  afuID: 9c1d7a30-51b4-5f0e-8d5e-2f64a1c0b701
  loadSeconds: 0.4
  files:
  - {file: sort.gbs, sha256: 5a1e0d9c8b7a69584736251403f2e1d0cfbeada98776655443322110ffeeddcc, slots: [[0], [1]]}
"""
CAMERAS: Final = """
apiVersion: kerf.dev/v1alpha1
kind: DiscoveryConfiguration
metadata: {name: cameras}
spec:
  discoveryHandler: {name: debugEcho, details: "{descriptions: [rtsp://10.0.0.7, rtsp://10.0.0.8], shared: true}"}
  capacity: 2
"""
LOCAL: Final = """
apiVersion: kerf.dev/v1alpha1
kind: DiscoveryConfiguration
metadata: {name: local}
spec: {discoveryHandler: {name: static, details: "devices: [{id: usb-1}]"}}
"""
NODES: Final = ("node-1", "node-2")


def documents(*texts: str) -> list[dict[str, Any]]:
    return [body for text in texts for body in parse_manifests(text)]


def lines_of(tmp_path: Path, *texts: str) -> tuple[str, ...]:
    with pytest.raises(BadManifestsError) as caught:
        load_manifests([write(tmp_path, *texts)])
    return caught.value.lines


def test_what_describes_hardware_is_applied_before_what_asks_for_it(tmp_path: Path) -> None:
    file = write(tmp_path, TEMPLATE.replace("Name: small", "Name: cameras.shared.kerf.dev"), CAMERAS, IMAGE, SHELLS)
    kinds = [manifest.kind for manifest in load_manifests([file])]
    assert kinds == ["FpgaShell", "FpgaShell", "FpgaImage", "DiscoveryConfiguration", "ResourceClaimTemplate"]


@pytest.mark.parametrize(
    ("document", "line"),
    [
        (SHELLS.replace("slots: [{lut: 400000}", "slotz: [{lut: 400000}"), "FpgaShell lab: spec.slotz: unknown field"),
        (IMAGE.replace("function: sort", "function: Sort"), "FpgaImage sort: spec.function: "),
        (CAMERAS.replace("capacity", "capacityy"), "DiscoveryConfiguration cameras: spec.capacityy: unknown field"),
        (CAMERAS.replace("shared", "share"), "spec.discoveryHandler.details: details.share unknown field"),
        (LOCAL.replace("static", "udev"), "spec.discoveryHandler.details: details.devices unknown field"),
    ],
)
def test_a_mistake_in_a_description_is_reported_with_its_path(tmp_path: Path, document: str, line: str) -> None:
    assert [found for found in lines_of(tmp_path, document) if line in found]


@pytest.mark.parametrize(
    ("name", "is_there"),
    [
        ("cameras.shared.kerf.dev", True),
        ("cameras-3f850a.shared.kerf.dev", True),
        ("local-0a0b0c.shared.kerf.dev", True),
        ("cameras-3f850.shared.kerf.dev", False),
        ("cameras-3F850A.shared.kerf.dev", False),
        ("camera.shared.kerf.dev", False),
        ("camerasxshared.kerf.dev", False),
    ],
)
def test_the_classes_of_discovered_devices_need_no_manifest(tmp_path: Path, name: str, is_there: bool) -> None:
    file = write(tmp_path, CAMERAS, LOCAL, TEMPLATE.replace("Name: small", f"Name: {name}"))
    if is_there:
        assert len(load_manifests([file])) == 3
    else:
        assert f"no ResourceClass or DeviceClass {name} is given" in lines_of(tmp_path, file.read_text())[0]


def test_a_configuration_whose_handler_is_a_program_of_its_own_is_a_warning(tmp_path: Path) -> None:
    onvif = CAMERAS.replace("debugEcho", "onvif").replace("name: cameras", "name: onvif")
    [warning] = find_ineffective_objects(load_manifests([write(tmp_path, CAMERAS, onvif)]))
    assert "DiscoveryConfiguration onvif: spec.discoveryHandler.name: no program registers here as onvif" in warning


ANY: Final = TEMPLATE.replace("Name: small", "Name: cameras.shared.kerf.dev")
TWO: Final = ANY.replace("kerf.dev}}", "kerf.dev, count: 2}}")
ALL: Final = ANY.replace("kerf.dev}}", "kerf.dev, allocationMode: All}}")
PAIR: Final = ANY.replace("[{name", "[{name: other, exactly: {deviceClassName: cameras.shared.kerf.dev}}, {name")
DISTINCT: Final = "constraints: [{distinctAttribute: shared.kerf.dev/uuid}], requests"
AKRI: Final = CAMERAS + "  extendedResourceDomain: akri.sh\n"
VIEWER: Final = """
apiVersion: v1
kind: Pod
metadata: {name: viewer}
spec: {containers: [{name: main, image: busybox, resources: {limits: {akri.sh/cameras: 2}}}]}
"""
CLAIM_PATH: Final = "spec.spec.devices.requests: several devices of cameras must be different (uniqueDevices): add the"


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        ((CAMERAS, ANY), ""),
        ((CAMERAS, TWO), CLAIM_PATH),
        ((CAMERAS, ALL), CLAIM_PATH),
        ((CAMERAS, PAIR), CLAIM_PATH),
        ((CAMERAS, TWO.replace("requests", DISTINCT)), ""),
        ((CAMERAS + "  uniqueDevices: false\n", TWO), ""),
        ((CAMERAS, LOCAL, TWO.replace("cameras", "local")), CLAIM_PATH.replace("cameras", "local")),
        ((AKRI, VIEWER), "spec.containers[0].resources.limits[akri.sh/cameras]: several devices of cameras must be"),
        ((AKRI, VIEWER.replace(": 2", ": 1")), ""),
        ((AKRI + "  uniqueDevices: false\n", VIEWER), ""),
        ((AKRI, VIEWER.replace("akri.sh", "other.sh")), ""),
    ],
)
def test_what_could_get_one_device_twice_is_refused_as_by_the_policy_of_a_cluster(
    tmp_path: Path, texts: tuple[str, ...], says: str
) -> None:
    """A pod with two cameras in its limits ran in the demo, with one camera twice; a cluster leaves it Pending."""
    if says:
        [line] = lines_of(tmp_path, *texts)
        assert says in line
    else:
        assert len(load_manifests([write(tmp_path, *texts)])) == len(texts)


def check(tmp_path: Path, hardware: DemoHardware) -> tuple[FoundHardware, tuple[BackendChoice, ...]]:
    backends = hardware.write(tmp_path / "node-1", "node-1")
    return hardware.check(backends), backends


def test_every_node_has_a_card_with_each_shell_and_the_functions_of_its_images(tmp_path: Path) -> None:
    found = find_manifest_hardware(documents(SHELLS, IMAGE))
    assert found.shells == ("lab", "edge")
    cards = tuple({"kind": "fpga", "shell": shell, "count": 1} for shell in found.shells)
    _, [simulated] = check(tmp_path, hardware := DemoHardware(cards=cards, of_manifests=found))
    [fpga] = [family for family in hardware.find_families() if family.name == "fpga"]
    [backend] = load_backends(fpga, [simulated])
    models = {card.geometry.model: card.geometry for card in backend.discover()}
    functions = {name: {spec.function for spec in models[name].specs} - {None} for name in models}
    assert functions == {"lab": {"sort"}, "edge": set()}


def test_an_image_for_a_shell_that_is_not_described_is_refused_before_anything_starts(tmp_path: Path) -> None:
    other = IMAGE.replace("3c55", "3c57")
    with pytest.raises(HardwareUnusableError, match=r"^FpgaImage sort: spec.interfaceUUID: no shell is described"):
        check(tmp_path, DemoHardware(of_manifests=find_manifest_hardware(documents(SHELLS, other))))


@pytest.mark.parametrize(
    ("own", "families", "names", "hosted"),
    [
        ((), (), ["simulated", "discovered"], {"gpu", "fpga", "shared"}),
        (("simulated",), ("gpu",), ["simulated", "discovered"], {"gpu", "shared"}),
        (("simulated", "discovered"), (), ["simulated", "discovered"], {"gpu", "fpga", "shared"}),
    ],
)
def test_nodes_look_for_the_devices_of_a_configuration(
    tmp_path: Path, own: tuple[str, ...], families: tuple[str, ...], names: list[str], hosted: set[str]
) -> None:
    config = tmp_path / "cards.yaml"
    config.write_text(yaml.safe_dump({"state": ".", "cards": [{"kind": "gpu", "model": "a30-24gb"}]}))
    choices = tuple(BackendChoice(name=name, config=config if name == "simulated" else None) for name in own)
    hardware = DemoHardware(
        backends=choices, families=families, of_manifests=find_manifest_hardware(documents(CAMERAS, LOCAL))
    )
    found, backends = check(tmp_path, hardware)
    assert [choice.name for choice in backends] == names
    assert {family.name for family in hardware.find_families()} == hosted
    assert "shared.kerf.dev" not in found.drivers | found.lacking.keys()


INTEL: Final = (
    "apiVersion: kerf.dev/v1alpha1\nkind: ResourceClass\nmetadata: {name: t}\nspec: {device: gpu-intel, profile: 1t}\n",
    TEMPLATE.replace("Name: small", "Name: gpu-intel.kerf.dev"),
    """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: own}
spec: {selectors: [{cel: {expression: 'device.driver == "gpu-intel.kerf.dev"'}}]}
""",
)


@pytest.mark.parametrize("document", INTEL)
def test_nodes_have_intels_gpus_where_a_manifest_names_their_family_or_driver(tmp_path: Path, document: str) -> None:
    hardware = DemoHardware(of_manifests=find_manifest_hardware(documents(CLASS, document)))
    found, backends = check(tmp_path, hardware)
    assert [choice.name for choice in backends] == ["simulated", "intel"]
    assert hardware.count_cards() == 2
    assert "gpu-intel.kerf.dev" in found.drivers
    [family] = [family for family in hardware.find_families() if family.name == "gpu-intel"]
    [backend] = load_backends(family, [backends[1]])
    backend.open()
    cards = backend.discover()
    assert [(card.geometry.model, card.geometry.units, card.numa_node) for card in cards] == [
        ("max-1550", 2, 0),
        ("max-1550", 2, 1),
    ]
    whole = [dict(spec.capacity)["memory"] for spec in cards[0].geometry.specs if spec.profile is None]
    assert whole == [Quantity("128Gi")]
    backend.close()


@pytest.mark.parametrize("own", [(), ("simulated",)])
def test_nodes_have_none_of_them_for_other_manifests_and_beside_a_users_own_backends(
    tmp_path: Path, own: tuple[str, ...]
) -> None:
    config = tmp_path / "cards.yaml"
    config.write_text(yaml.safe_dump({"state": ".", "cards": [{"kind": "gpu", "model": "a30-24gb"}]}))
    names = CLASS if not own else INTEL[0]
    hardware = DemoHardware(
        backends=tuple(BackendChoice(name=name, config=config) for name in own),
        of_manifests=find_manifest_hardware(documents(names)),
    )
    assert [choice.name for choice in hardware.write(tmp_path / "node-1", "node-1")] == ["simulated"]


async def test_the_devices_that_nodes_are_to_find_are_those_that_the_handlers_find(tmp_path: Path) -> None:
    onvif = CAMERAS.replace("debugEcho", "onvif").replace("name: cameras", "name: onvif")
    found = await list_expected_devices(documents(CAMERAS, LOCAL, onvif), NODES, root=tmp_path)
    own = {device_name("local", "usb-1", node=node): {node} for node in NODES}
    assert found == {"cameras-3f850a": {*NODES}, "cameras-aeaaf6": {*NODES}} | own
