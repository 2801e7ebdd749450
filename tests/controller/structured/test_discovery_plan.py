"""What follows from the objects of discovered devices: slices, classes, conditions, expiry."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from kerf_dra.api.kerf.discovery_objects import DiscoveredDeviceObject, DiscoveryConfigurationObject, device_name
from kerf_dra.api.model.claims import DeviceClass
from kerf_dra.api.model.metadata import NodeSelectorRequirement, ObjectMeta, OwnerReference
from kerf_dra.driver.controller.structured.discovery.plan import (
    HOSTNAME,
    DiscoveryPlan,
    DiscoverySnapshot,
    is_owned,
    plan_discovery,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOSTS = {"n1": "host-1", "n2": "host-2"}
NAMES = [device_name("cameras", str(number), node=None) for number in range(4)]
SLICE = f"{NAMES[1]}-shared.kerf.dev"


def configuration(**spec: Any) -> DiscoveryConfigurationObject:
    handler = {"discoveryHandler": {"name": "debugEcho"}}
    return DiscoveryConfigurationObject(metadata=ObjectMeta(name="cameras", uid="c"), spec={**handler, **spec})


def device(number: int = 1, *nodes: str, **spec: Any) -> DiscoveredDeviceObject:
    known = {"configurationName": "cameras", "deviceID": str(number), "shared": True, "nodes": [*nodes] or ["n1"]}
    spec = {**known, **spec}
    node = None if spec["shared"] else spec["nodes"][0]
    metadata = ObjectMeta(name=device_name("cameras", str(number), node=node), uid=f"d{number}", generation=1)
    return DiscoveredDeviceObject(metadata=metadata, spec=spec)


def plan(
    *devices: DiscoveredDeviceObject,
    of: DiscoveryConfigurationObject | None = None,
    hosts: Mapping[str, str] = HOSTS,
    now: datetime = NOW,
    **more: Any,
) -> DiscoveryPlan:
    snapshot = DiscoverySnapshot(
        configurations=(of or configuration(capacity=3),), devices=devices, hostnames=hosts, **more
    )
    return plan_discovery(snapshot, now)


def reasons(found: DiscoveryPlan) -> list[str]:
    return [condition.reason for one in found.devices for condition in one.status.conditions]


def users(found: DiscoveryPlan) -> list[int]:
    return [int(one.spec.devices[0].capacity["users"].value) for one in found.slices.values()]


def test_four_devices_of_capacity_three_have_twelve_users() -> None:
    found = plan(*(device(number) for number in range(4)))
    assert users(found) == [3] * 4
    [(_, status)] = found.configurations
    assert status.devices is not None
    assert (status.devices.total, status.devices.online) == (4, 4)


def test_a_devices_own_capacity_goes_before_that_of_its_configuration() -> None:
    assert users(plan(device(capacity=1))) == [1]


def test_without_shares_a_device_has_one_user_and_says_why() -> None:
    found = plan(device(), keeps_shares=False)
    [published] = found.slices[SLICE].spec.devices
    assert (users(found), published.allow_multiple_allocations) == ([1], None)
    assert published.capacity["users"].request_policy is None
    assert reasons(found) == ["NotShareable"]
    assert reasons(plan(device(), of=configuration(), keeps_shares=False)) == ["Published"]


@pytest.mark.parametrize(
    ("shared", "nodes", "label"),
    [(True, ("n1", "n2"), "Shared"), (False, ("n1",), "n1"), (False, ("n" * 64,), None), (True, (), None)],
    ids=["shared", "of one node", "of a node whose name is no label", "seen by none"],
)
def test_a_device_lacks_the_label_by_which_its_nodes_follow_it_until_it_has_it(
    shared: bool, nodes: Sequence[str], label: str | None
) -> None:
    one = device(shared=shared, nodes=nodes)
    [lacking] = plan(one).devices
    if lacking.correction is None:
        assert not nodes
        return
    labels = lacking.correction["metadata"]["labels"]
    assert [*labels] == ["kerf.dev/node"]
    assert label is None or labels["kerf.dev/node"] == label
    [complete] = plan(replace(one, metadata=replace(one.metadata, labels={"a": "b", **labels}))).devices
    assert "labels" not in (complete.correction or {"metadata": {}})["metadata"]


@pytest.mark.parametrize(
    ("nodes", "hosts", "by"),
    [
        (("n1",), HOSTS, ("metadata.name", ("n1",))),
        (("n1", "gone"), HOSTS, ("metadata.name", ("n1",))),
        (("n2", "n1"), HOSTS, (HOSTNAME, ("host-1", "host-2"))),
        (("n1", "n2"), {"n1": "host-1", "n2": ""}, (HOSTNAME, ("host-1",))),
        (("n1", "n2"), {"n1": "host-1", "n2": "same", "n3": "same"}, (HOSTNAME, ("host-1",))),
    ],
)
def test_a_device_is_for_the_nodes_that_see_it_and_are_there(
    nodes: Sequence[str], hosts: Mapping[str, str], by: tuple[str, tuple[str, ...]]
) -> None:
    """A label that another node has, too, would select a node that does not see the device."""
    selector = plan(device(1, *nodes), hosts=hosts).slices[SLICE].spec.node_selector
    assert selector is not None
    [term] = selector.node_selector_terms
    key, values = by
    assert term.match_expressions + term.match_fields == (
        NodeSelectorRequirement(key=key, operator="In", values=values),
    )


def test_a_device_whose_nodes_have_no_label_of_their_own_is_not_published_and_says_why() -> None:
    found = plan(device(1, "n1", "n2"), hosts={"n1": "", "n2": ""})
    assert (dict(found.slices), reasons(found)) == ({}, ["NodesNotSelectable"])


def test_a_device_that_nobody_sees_expires_after_its_grace() -> None:
    seen_by_none = device(nodes=[])
    first = plan(seen_by_none)
    assert (dict(first.slices), reasons(first)) == ({}, ["Offline"])
    assert first.next_expiry == NOW + timedelta(seconds=300)
    [one] = first.devices
    held = replace(seen_by_none, status=one.status)
    for seconds, is_expired in ((299, False), (300, True)):
        [later] = plan(held, now=NOW + timedelta(seconds=seconds)).devices
        assert later.is_expired is is_expired
        assert later.status.offline_since == one.status.offline_since
    back = plan(replace(held, spec={**held.spec, "nodes": ["n1"]}), now=NOW + timedelta(seconds=299))
    assert back.devices[0].status.offline_since is None
    assert set(back.slices) == {SLICE}


def test_a_device_whose_offline_time_is_no_time_is_offline_for_long() -> None:
    seen_by_none = device(nodes=[])
    [one] = plan(seen_by_none).devices
    [later] = plan(replace(seen_by_none, status=replace(one.status, offline_since="yesterday"))).devices
    assert later.is_expired


def test_a_device_that_is_being_deleted_is_withdrawn_and_not_written() -> None:
    ending = device()
    ending = replace(ending, metadata=replace(ending.metadata, deletion_timestamp="2026-01-01T00:00:00Z"))
    found = plan(ending, device(2))
    assert set(found.slices) == {f"{NAMES[2]}-shared.kerf.dev"}
    assert [one.held.metadata.name for one in found.devices] == [NAMES[2]]


def test_a_report_that_says_the_same_is_the_same_later() -> None:
    [one] = plan(device()).devices
    [again] = plan(replace(device(), status=one.status), now=NOW + timedelta(hours=1)).devices
    assert again.status == one.status


def test_a_class_of_somebody_else_is_left_alone() -> None:
    found = plan(device(), taken_classes=frozenset({"cameras.shared.kerf.dev"}))
    assert set(found.classes) == {f"{NAMES[1]}.shared.kerf.dev"}
    [(_, status)] = found.configurations
    assert [(one.type, one.reason) for one in status.conditions] == [("Accepted", "Valid"), ("Ready", "NameTaken")]
    assert status.device_class_name is None


@pytest.mark.parametrize(
    ("kind", "api_version", "name", "owned"),
    [
        ("DiscoveryConfiguration", "kerf.dev/v1alpha1", "cameras", True),
        ("DiscoveredDevice", "kerf.dev/v1", "cameras", True),
        ("ResourceClass", "kerf.dev/v1alpha1", "cameras", False),
        ("DiscoveredDevice", "acme.example.com/v1", "cameras", False),
        ("DiscoveredDevice", "kerf.dev/v1alpha1", "others", False),
    ],
)
def test_a_class_is_ours_by_its_owner(kind: str, api_version: str, name: str, owned: bool) -> None:
    owner = OwnerReference(api_version=api_version, kind=kind, name=name, uid="1")
    metadata = ObjectMeta(name="cameras.shared.kerf.dev", owner_references=(owner,))
    assert is_owned(DeviceClass(metadata=metadata)) is owned


def test_an_invalid_configuration_has_no_devices_and_says_why() -> None:
    found = plan(device(), of=configuration(capacity=0))
    [(_, status)] = found.configurations
    assert [(one.type, one.status) for one in status.conditions] == [("Accepted", "False"), ("Ready", "False")]
    assert "spec.capacity: 0 is not between 1 and 1000" in status.conditions[0].message
    assert (dict(found.slices), dict(found.classes), reasons(found)) == ({}, {}, ["Invalid"])
