"""What nodes write of one object: whenever they see, read and write, no node is lost, and none writes for others."""

import json
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.api.discovery.v1alpha1 import FoundDevice
from kerf_dra.api.kerf.discovery_objects import (
    DISCOVERED_DEVICES,
    DiscoveredDeviceObject,
    DiscoveredDeviceSpec,
    DiscoveryConfigurationObject,
    device_name,
)
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.families.shared.node_labels import make_node_label, make_selector
from kerf_dra.driver.kubeletplugin.discovery_handlers.found_devices import check_devices
from kerf_dra.driver.kubeletplugin.discovery_handlers.node_entries import (
    MAX_NODES,
    DeviceEntryError,
    find_differences,
    plan_entry,
)
from tests.kube.memory_server import merged

CONFIGURATION = DiscoveryConfigurationObject(metadata=ObjectMeta(name="cams", uid="uid-of-cams"))
NODES = ("n1", "n2", "n3")
NAME = device_name("cams", "camera", node=None)
SAME_DIGEST = "x8519936"
"""Another id with the digest of "camera": one in 16 million has it."""
LOCAL = device_name("cams", "camera", node="n1")


def see(node: str, id_: str = "camera", *, shared: bool = True, **properties: str) -> DiscoveredDeviceSpec:
    [spec] = check_devices(
        "cams", [FoundDevice(id=id_, shared=shared, properties=properties)], node=node
    ).specs.values()
    return spec


@dataclass
class Server:
    """The object on the API server, with its resource version; each entry of ``writers`` is the node of a write."""

    object: dict[str, Any] | None = None
    version: int = 0
    made: int = 0
    writers: list[str] = field(default_factory=list)

    def read(self) -> DiscoveredDeviceObject | None:
        return None if self.object is None else DISCOVERED_DEVICES.decode(json.dumps(self.object).encode())

    def write(self, node: str, held: DiscoveredDeviceObject | None, seen: DiscoveredDeviceSpec | None) -> bool:
        """Do what ``node`` decides on what it has read; returns whether it had anything to write."""
        change = plan_entry(held, seen, name=NAME, node=node, configuration=CONFIGURATION)
        if change is None:
            return False
        self.writers.append(node)
        before = set(self.nodes)
        if change.create is not None:
            if self.object is None:
                self.made += 1
                self._keep(json.loads(msgspec.json.encode(DISCOVERED_DEVICES.encode(change.create))), f"{self.made}")
        elif change.patch is not None and self.object is not None:
            metadata = self.object["metadata"]
            given = change.patch["metadata"]
            if (given["uid"], given["resourceVersion"]) == (metadata["uid"], metadata["resourceVersion"]):
                self._keep(merged(self.object, change.patch), metadata["uid"])
        assert before - {node} == set(self.nodes) - {node}, "a node enters and removes itself only"
        return True

    def delete(self) -> None:
        if self.object is not None and not self.nodes:
            self.object = None

    @property
    def nodes(self) -> list[str]:
        return self.object["spec"].get("nodes", []) if self.object else []

    @property
    def described(self) -> tuple[str, dict[str, str]] | None:
        """The node that has made the object, and what it says."""
        return (self.object["spec"]["foundBy"], self.object["spec"]["properties"]) if self.object else None

    def _keep(self, value: dict[str, Any], uid: str) -> None:
        self.version += 1
        self.object = {**value, "metadata": {**value["metadata"], "uid": uid, "resourceVersion": str(self.version)}}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["see", "unsee", "read", "write", "delete"]), st.sampled_from(NODES), st.sampled_from("ab")
    ),
    max_size=40,
)


@given(STEPS)
def test_ak_03_after_any_history_of_stale_reads_exactly_the_nodes_that_see_a_device_are_entered(
    steps: list[tuple[str, str, str]],
) -> None:
    server = Server()
    seen: dict[str, DiscoveredDeviceSpec | None] = dict.fromkeys(NODES)
    read: dict[str, DiscoveredDeviceObject | None] = dict.fromkeys(NODES)
    for step, node, value in steps:
        match step:
            case "see":
                seen[node] = see(node, URL=value)
            case "unsee":
                seen[node] = None
            case "read":
                read[node] = server.read()
            case "write":
                server.write(node, read[node], seen[node])
            case _:
                server.delete()
    before, described = len(server.writers), server.described
    while sum(server.write(node, server.read(), seen[node]) for node in NODES):  # each has its turn
        assert len(server.writers) - before <= 3 * len(NODES), "they write over one another"
    expected = sorted(node for node in NODES if seen[node] is not None)
    assert server.nodes == expected
    if described is not None:
        assert server.described == described, "what the first node has said stays"
    elif expected:
        first = seen[expected[0]]
        assert first is not None
        assert server.described == (expected[0], first.properties)


def test_an_object_that_is_made_says_who_owns_it_and_who_may_follow_it() -> None:
    change = plan_entry(None, see("n1", A="1"), name=NAME, node="n1", configuration=CONFIGURATION)
    assert change is not None
    assert change.create is not None
    metadata = change.create.metadata
    assert metadata.name == NAME
    assert metadata.labels == {"kerf.dev/node": "Shared"}
    [owner] = metadata.owner_references
    assert (owner.kind, owner.name, owner.uid) == ("DiscoveryConfiguration", "cams", "uid-of-cams")


def hold(spec: DiscoveredDeviceSpec, **metadata: Any) -> DiscoveredDeviceObject:
    labels = {"kerf.dev/node": "Shared" if spec.shared else spec.nodes[0] if spec.nodes else ""}
    return DiscoveredDeviceObject(
        metadata=ObjectMeta(**{"name": NAME, "uid": "u", "resource_version": "7", "labels": labels, **metadata}),
        spec=msgspec.to_builtins(spec),
    )


@pytest.mark.parametrize(
    "held",
    [
        see("n1", "other"),
        see("n1", shared=False),
        msgspec.structs.replace(see("n1"), configuration_name="others"),
    ],
    ids=["another id", "one that is not shared", "another configuration"],
)
def test_an_object_with_a_wrong_name_is_an_error_and_is_not_written(held: DiscoveredDeviceSpec) -> None:
    with pytest.raises(DeviceEntryError, match=r"is another device's: metadata\.name must be"):
        plan_entry(hold(held), see("n1"), name=NAME, node="n1", configuration=CONFIGURATION)


def test_an_object_of_another_device_with_the_same_name_is_an_error_and_is_not_written() -> None:
    held = hold(see("n2", SAME_DIGEST))
    with pytest.raises(DeviceEntryError, match=f"is already that of device '{SAME_DIGEST}'"):
        plan_entry(held, see("n1"), name=NAME, node="n1", configuration=CONFIGURATION)


@pytest.mark.parametrize(("nodes", "found_by"), [(("n2",), None), (("n2",), "n2"), ((), "n2")])
def test_an_object_that_another_node_has_made_is_not_taken(nodes: tuple[str, ...], found_by: str | None) -> None:
    seen = see("n1", shared=False)
    held = hold(msgspec.structs.replace(seen, nodes=nodes, found_by=found_by), name=LOCAL)
    with pytest.raises(DeviceEntryError, match=r"is another device's: .* the device is one of node n2"):
        plan_entry(held, seen, name=LOCAL, node="n1", configuration=CONFIGURATION)


def test_an_object_that_its_node_has_left_is_entered_again() -> None:
    seen = see("n1", shared=False)
    left = hold(msgspec.structs.replace(seen, nodes=(), found_by="n1"), name=LOCAL, labels={"kerf.dev/node": "n1"})
    change = plan_entry(left, seen, name=LOCAL, node="n1", configuration=CONFIGURATION)
    assert change is not None
    assert change.patch is not None
    assert change.patch["spec"] == {"nodes": ["n1"]}


def test_a_device_that_all_nodes_share_ends_with_the_last_place() -> None:
    many = msgspec.structs.replace(see("n1"), nodes=tuple(f"m{number:03}" for number in range(MAX_NODES)))
    with pytest.raises(DeviceEntryError, match="nodes already"):
        plan_entry(hold(many), see("n1"), name=NAME, node="n1", configuration=CONFIGURATION)


def test_an_object_that_is_being_deleted_is_left_alone() -> None:
    held = hold(see("n1"), deletion_timestamp="2026-01-01T00:00:00Z")
    assert plan_entry(held, None, name=NAME, node="n1", configuration=CONFIGURATION) is None
    assert plan_entry(held, see("n2"), name=NAME, node="n2", configuration=CONFIGURATION) is None


def test_an_object_that_cannot_be_read_is_an_error_for_who_sees_the_device_only() -> None:
    held = DiscoveredDeviceObject(metadata=ObjectMeta(name=NAME), spec={"nodes": 7})
    assert plan_entry(held, None, name=NAME, node="n1", configuration=CONFIGURATION) is None
    with pytest.raises(DeviceEntryError, match="cannot be read"):
        plan_entry(held, see("n1"), name=NAME, node="n1", configuration=CONFIGURATION)


def test_a_label_that_somebody_removes_comes_back() -> None:
    """Of a device of one node: that of a shared one is the controller's to mend."""
    own = see("n1", shared=False)
    held = hold(own, name=LOCAL, labels={"kept": "yes"})
    change = plan_entry(held, own, name=LOCAL, node="n1", configuration=CONFIGURATION)
    assert change is not None
    assert change.patch == {"metadata": {"uid": "u", "resourceVersion": "7", "labels": {"kerf.dev/node": "n1"}}}
    held = hold(see("n1"), labels={"kept": "yes"})
    assert plan_entry(held, see("n1"), name=NAME, node="n1", configuration=CONFIGURATION) is None


def test_what_an_administrator_has_set_of_a_device_stays() -> None:
    held = hold(msgspec.structs.replace(see("n1", A="1", B="1"), capacity=7))
    for seen in (see("n1", A="1", B="1"), see("n1", A="2", C="1"), see("n0")):
        change = plan_entry(held, seen, name=NAME, node=seen.nodes[0], configuration=CONFIGURATION)
        assert change is None or set((change.patch or {})["spec"]) == {"nodes"}
    assert find_differences(held, see("n1", A="1", B="1")) == []
    assert find_differences(held, see("n1", A="2", C="1")) == ["A", "B", "C"]


def test_what_an_administrator_has_set_of_a_device_of_one_node_stays_but_for_what_the_node_sees() -> None:
    held = hold(msgspec.structs.replace(see("n1", shared=False, A="1"), capacity=7), name=LOCAL)
    change = plan_entry(held, see("n1", shared=False, A="2"), name=LOCAL, node="n1", configuration=CONFIGURATION)
    assert change is not None
    assert change.patch is not None
    assert change.patch["spec"] == {"properties": {"A": "2"}}
    assert find_differences(held, see("n1", shared=False, A="2")) == ()


def test_the_name_of_a_node_may_be_longer_than_a_label() -> None:
    long, other = "n" * 200, "n" * 199 + "m"
    assert len(make_node_label(long)) <= 63
    assert make_node_label(long) != make_node_label(other)
    assert make_selector("n1") == "kerf.dev/node in (Shared,n1)"
