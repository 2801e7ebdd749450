"""A node's token in foreign hands: what one node says of devices costs no other node its devices or its containers."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
import yaml

from kerf_dra.api.kerf.discovery_objects import (
    DiscoveredDeviceObject,
    DiscoveryConfigurationObject,
    device_name,
)
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.cli.catalog.rbac import build_permissions
from kerf_dra.driver.controller.discovered_devices import find_refused
from kerf_dra.driver.controller.structured.discovery.plan import DiscoveryPlan, DiscoverySnapshot, plan_discovery
from kerf_dra.driver.families.shared.objects import MAX_FOUND, join_objects
from kerf_dra.driver.kubeletplugin.backends.discovered.handles import build_edits, build_handle
from tests.attack.kinds import cases
from tests.local.apiserver.policy_server import PolicyServer, account

ID = "rtsp://10.0.0.7"
SHARED = device_name("cameras", ID, node=None)
OTHER = device_name("usb", "usb-1-1", node=None)
GOODS = device_name("usb", "usb-1-1", node="good")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
POLICIES = PolicyServer(yaml.safe_load_all(build_permissions()))
EVIL = account("kerf-kubelet-plugin", node="evil")


def configuration(name: str = "cameras", **spec: Any) -> DiscoveryConfigurationObject:
    handler = {"discoveryHandler": {"name": "static"}}
    return DiscoveryConfigurationObject(metadata=ObjectMeta(name=name, uid=name), spec={**handler, **spec})


def device(name: str = SHARED, *, labels: Mapping[str, str] | None = None, **spec: Any) -> DiscoveredDeviceObject:
    known = {"configurationName": "cameras", "deviceID": ID, "shared": True, "nodes": ["evil"]}
    return DiscoveredDeviceObject(
        metadata=ObjectMeta(name=name, uid=name, labels=dict(labels or {})), spec={**known, **spec}
    )


class Names(msgspec.Struct, frozen=True):
    """Names of environment variables."""

    names: Sequence[str]


@pytest.mark.parametrize(
    "case", cases("test_node_tokens.py::test_no_property_of_a_device_has_a_name_that_programs_read", Names)
)
def test_no_property_of_a_device_has_a_name_that_programs_read(case: Names) -> None:
    administrators = {"QUALITY": "high", case.names[0]: "administrator"}
    discovery = join_objects(
        [configuration(brokerProperties=administrators), configuration("usb")],
        [
            device(properties=dict.fromkeys(case.names, "evil")),
            device(OTHER, configurationName="usb", deviceID="usb-1-1", properties=dict.fromkeys(case.names, "evil")),
        ],
    )
    assert [*discovery.devices] == [SHARED, OTHER]
    for one in discovery.devices.values():
        variables = dict(each.split("=", 1) for each in build_edits(build_handle(one)).env)
        its = administrators if one.name == SHARED else {}
        assert {name: variables.get(name) for name in case.names} == {name: its.get(name) for name in case.names}
        assert [name for name, value in variables.items() if value == "evil"] == [
            f"{name}_{one.digest.upper()}" for name in case.names
        ]


def plan(*devices: DiscoveredDeviceObject) -> DiscoveryPlan:
    snapshot = DiscoverySnapshot(
        configurations=(configuration(), configuration("usb")),
        devices=devices,
        hostnames={"good": "good", "evil": "evil"},
    )
    return plan_discovery(snapshot, NOW)


class Renamed(msgspec.Struct, frozen=True):
    """An object whose name its maker has chosen."""

    name: str
    spec: Mapping[str, Any] = {}
    labels: Mapping[str, str] = {}


@pytest.mark.parametrize(
    "case", cases("test_node_tokens.py::test_no_node_takes_the_name_of_a_device_that_is_not_its_own", Renamed)
)
def test_no_node_takes_the_name_of_a_device_that_is_not_its_own(case: Renamed) -> None:
    name = case.name.format(shared=SHARED, goods=GOODS)
    taken = device(name, labels=case.labels, **case.spec)
    own = (
        device(foundBy="good", nodes=["good"])
        if name != SHARED
        else device(GOODS, configurationName="usb", deviceID="usb-1-1", shared=False, nodes=["good"], foundBy="good")
    )
    discovery = join_objects([configuration(), configuration("usb")], [taken, own])
    assert [*discovery.devices] == [own.metadata.name], "plugins prepare and offer the other one only"
    planned = plan(taken, own)
    assert [one.spec.pool.name for one in planned.slices.values()] == [own.metadata.name]
    assert [one.held.metadata.name for one in planned.devices if one.refused is not None] == [name]
    assert [*find_refused([taken, own])] == [name]


class Flood(msgspec.Struct, frozen=True):
    """What all of too many objects have."""

    spec: Mapping[str, Any] = {}


@pytest.mark.parametrize("case", cases("test_node_tokens.py::test_a_node_has_no_more_objects_than_it_may", Flood))
def test_a_node_has_no_more_objects_than_it_may(case: Flood) -> None:
    spec = {"foundBy": "evil", **case.spec}
    node = None if spec.get("shared", True) else "evil"
    names = {
        device_name(spec.get("configurationName", "cameras"), f"flood-{number}", node=node): f"flood-{number}"
        for number in range(MAX_FOUND + 50)
    }
    flood = [device(name, deviceID=id_, **spec) for name, id_ in names.items()]
    goods = device(GOODS, configurationName="usb", deviceID="usb-1-1", shared=False, nodes=["good"], foundBy="good")
    first = device(foundBy="evil")
    planned = plan(*flood, goods, first)
    refused = {one.held.metadata.name for one in planned.devices if one.refused is not None}
    assert refused <= names.keys(), "what it has found before stays, and what others have"
    assert len(refused) == len(names) + 1 - MAX_FOUND
    assert {one.node for one in find_refused([*flood, goods, first]).values()} == {"evil"}
    assert {SHARED, GOODS} <= {one.spec.pool.name for one in planned.slices.values()}


class Forged(msgspec.Struct, frozen=True):
    """What a token writes, over an object that a legal one has made; an object without ``before`` is new."""

    says: str
    after: Mapping[str, Any]
    before: Mapping[str, Any] | None = None


def document(changes: Mapping[str, Any]) -> dict[str, Any]:
    """A shared device that the node ``evil`` has made, but for ``changes``."""
    spec = {"configurationName": "cameras", "deviceID": ID, "shared": True, "nodes": ["evil"], "foundBy": "evil"}
    metadata = {"name": SHARED, "labels": {"kerf.dev/node": "Shared"}}
    return {
        "metadata": metadata | dict(changes.get("metadata", {})),
        "spec": spec | dict(changes.get("spec", {})),
    }


@pytest.mark.parametrize(
    "case", cases("test_node_tokens.py::test_the_policy_refuses_what_is_not_the_nodes_to_say", Forged)
)
def test_the_policy_refuses_what_is_not_the_nodes_to_say(case: Forged) -> None:
    old = None if case.before is None else document(case.before)
    new = document(case.after)
    said = POLICIES.refusal("discovereddevices", new=new, old=old, user=EVIL, group="kerf.dev")
    assert case.says in said
    assert said
    assert not POLICIES.refusal("discovereddevices", new=document({}), user=EVIL, group="kerf.dev")
