"""The backend ``discovered``: the contract of backends, and what containers get of a device's objects."""

from pathlib import Path
from typing import Any

import pytest

from kerf_dra.api.errors import InvalidDocumentError
from kerf_dra.api.kerf.discovery_objects import device_name
from kerf_dra.cdi import ContainerEdits, DeviceNode, Mount
from kerf_dra.driver.families.shared import SHARED
from kerf_dra.driver.kubeletplugin.backends.base import CardAbsentError, HardwareRefusedError
from kerf_dra.driver.kubeletplugin.backends.discovered import DiscoveredBackend, open_backend
from kerf_dra.driver.testing import BackendContract, MachineUnderTest
from kerf_dra.driver.testing.plugin import PluginStandIn

Json = dict[str, Any]


def configuration(**spec: Any) -> Json:
    handler = {"discoveryHandler": {"name": "debugEcho"}}
    return {"kind": "DiscoveryConfiguration", "metadata": {"name": "cameras"}, "spec": {**handler, **spec}}


def device(id_: str = "rtsp://10.0.0.7", **spec: Any) -> Json:
    """A device of node n1, or a shared one."""
    known = {"configurationName": "cameras", "deviceID": id_, "shared": False, "nodes": ["n1"], **spec}
    name = device_name("cameras", known["deviceID"], node=None if known["shared"] else "n1")
    return {"kind": "DiscoveredDevice", "metadata": {"name": name}, "spec": known}


def renamed(document: Json, name: str) -> Json:
    return {**document, "metadata": {"name": name}}


class DiscoveredMachine(MachineUnderTest):
    """A cluster with two devices."""

    lists_idle = False

    def __init__(self) -> None:
        self.devices = {one["metadata"]["name"]: one for one in (device("first"), device("second"))}
        self.gone: set[str] = set()
        self.backends: list[DiscoveredBackend] = []

    def open_backend(self) -> DiscoveredBackend:
        self.backends.append(open_backend(None))
        self._tell()
        return self.backends[-1]

    def take_away(self, card_uuid: str) -> None:
        self.gone.add(card_uuid)
        self._tell()

    def bring_back(self, card_uuid: str) -> None:
        self.gone.remove(card_uuid)
        self._tell()

    def _tell(self) -> None:
        there = [value for name, value in self.devices.items() if name not in self.gone]
        for backend in self.backends:
            backend.describe([configuration(), *there])


class TestDiscoveredBackend(BackendContract):
    family = SHARED

    test_cards_are_worked_on_in_threads_of_their_own: Any = None
    """Not for these devices, of which no two claims have parts side by side."""
    test_a_survey_of_a_card_that_is_not_there_says_so: Any = None
    """A claim whose prepare was interrupted is released, too, when the device's object is deleted."""
    test_a_card_that_went_while_no_process_ran_is_absent_to_the_next_one: Any = None
    """As above; the controller publishes these devices, and withdraws them."""

    def new_machine(self, folder: Path) -> MachineUnderTest:
        return DiscoveredMachine()

    def test_a_card_that_is_away_is_not_discovered_and_nothing_is_proven_about_it(self, plugin: PluginStandIn) -> None:
        """A device is released, too, when its object is deleted: nothing was done to it."""
        [first, _] = plugin.backend.discover()
        record = plugin.allocate(first.geometry.whole.of(first.uuid), "user")
        handle = plugin.prepare(record)
        plugin.machine.take_away(first.uuid)
        assert first.uuid not in {card.uuid for card in plugin.backend.discover()}
        plugin.backend.unprepare(handle)
        assert plugin.backend.survey(first.uuid).partitions == ()
        with pytest.raises(CardAbsentError, match=f"there is no DiscoveredDevice '{first.uuid}'"):
            plugin.prepare(plugin.allocate(first.geometry.whole.of(first.uuid), "another"))


def edits_of(*documents: Json) -> ContainerEdits:
    """What a container gets of the only device."""
    from kerf_dra.driver.kubeletplugin.backends.discovered.handles import build_edits, build_handle

    backend = open_backend(None)
    backend.describe(documents)
    [card] = backend.discover()
    return build_edits(build_handle(backend._find(card.uuid)))


def test_ak_26_properties_of_the_device_have_its_digest_and_go_before_those_of_its_configuration() -> None:
    edits = edits_of(
        configuration(brokerProperties={"URL": "none", "QUALITY": "high"}),
        device(shared=True, properties={"URL": "rtsp://10.0.0.7", "LENS": "wide"}),
    )
    assert edits.env == (
        "URL_3F850A=rtsp://10.0.0.7",
        "QUALITY_3F850A=high",
        "LENS_3F850A=wide",
        "URL=none",
        "QUALITY=high",
        "KERF_DEVICE_CAMERAS_3F850A=rtsp://10.0.0.7",
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [("URL", "URL_3F850A=administrator"), ("KERF_DEVICE_CAMERAS", "KERF_DEVICE_CAMERAS_3F850A=rtsp://10.0.0.7")],
)
def test_no_property_takes_the_place_of_a_name_of_the_configuration_or_of_the_id(name: str, expected: str) -> None:
    edits = edits_of(
        configuration(brokerProperties={"URL_3F850A": "administrator"}),
        device(shared=True, properties={name: "node"}),
    )
    assert [one for one in edits.env if one.startswith(f"{name}_3F850A=")] == [expected]


def test_ak_27_paths_of_configuration_and_device_are_mounted() -> None:
    edits = edits_of(
        configuration(mounts=[{"hostPath": "/srv", "containerPath": "/models", "readOnly": True}]),
        device(
            deviceNodes=[{"hostPath": "/dev/video1", "containerPath": "/dev/video0", "permissions": "rw"}],
            mounts=[{"hostPath": "/run/udev", "containerPath": "/run/udev"}],
        ),
    )
    assert edits.device_nodes == (DeviceNode(path="/dev/video0", host_path="/dev/video1", permissions="rw"),)
    bind = ("rbind", "rprivate", "nosuid", "nodev")
    assert edits.mounts == (
        Mount(host_path="/srv", container_path="/models", options=(*bind, "ro")),
        Mount(host_path="/run/udev", container_path="/run/udev", options=(*bind, "rw")),
    )


@pytest.mark.parametrize(
    "documents",
    [
        [device()],
        [configuration(capacity=0), device()],
        [configuration(), device("")],
        [configuration(), renamed(device(), "lab-3f850a")],
        [configuration(), renamed(device(shared=True), "cameras-000000")],
        [configuration(), renamed(device(), "cameras-3f850a")],
        [configuration(), renamed(device(nodes=[]), "cameras-preload")],
    ],
    ids=[
        "no configuration",
        "an invalid one",
        "an invalid device",
        "another configuration's name",
        "another digest",
        "a shared device's digest",
        "a word for a digest",
    ],
)
def test_what_is_not_valid_is_no_device(documents: list[Json]) -> None:
    backend = open_backend(None)
    backend.describe(documents)
    assert backend.discover() == []


def test_a_handle_of_another_backend_is_refused() -> None:
    with pytest.raises(HardwareRefusedError, match="not a handle of the backend discovered"):
        open_backend(None).edits({"kind": "intel"})


def test_the_configuration_file_of_a_profile_is_empty(tmp_path: Path) -> None:
    file = tmp_path / "discovered.yaml"
    file.write_text("{}\n")
    open_backend(file)
    file.write_text("state: there\n")
    with pytest.raises(InvalidDocumentError, match="unknown field `state`"):
        open_backend(file)
