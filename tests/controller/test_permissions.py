"""What the controller's account may do: its roles and policies in ``deploy/manifests/10-controller.yaml``."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.local.apiserver.policy_server import PolicyServer, account

Json = dict[str, Any]
MANIFEST = Path(__file__).parents[2] / "deploy" / "manifests" / "10-controller.yaml"
DOCUMENTS = list(yaml.safe_load_all(MANIFEST.read_text()))
POLICIES = PolicyServer(DOCUMENTS)
CONTROLLER = account("kerf-controller")
SOMEBODY = account("somebody")
NODE = {"apiVersion": "v1", "kind": "Node", "name": "n1"}


def owned_by(kind: str = "ResourceClass", version: str = "kerf.dev/v1alpha1", name: str = "c") -> Json:
    owner = {"apiVersion": version, "kind": kind, "name": name}
    return {"metadata": {"name": "c", "ownerReferences": [owner]}, "spec": {}}


OURS = owned_by()
FOREIGN: tuple[Json, ...] = (
    {"metadata": {"name": "c"}, "spec": {}},
    owned_by(name="another"),
    owned_by(kind="Deployment"),
    owned_by(version="acme.example.com/v1"),
)


NO_CLASS = "the controller of Kerf may only write a DeviceClass that the object owns which it is named after"
NO_SLICE = (
    "the controller of Kerf may only delete a ResourceSlice that has lost its node, and write those of shared.kerf.dev"
)


def test_the_controller_may_do_this_and_nothing_else() -> None:
    rules = [(document["kind"], rule) for document in DOCUMENTS for rule in document.get("rules", ())]
    assert {
        (kind, group, one, *rule["verbs"])
        for kind, rule in rules
        for group in rule["apiGroups"]
        for one in rule["resources"]
    } == {
        ("ClusterRole", "", "nodes", "get", "list", "watch"),
        ("ClusterRole", "admissionregistration.k8s.io", "mutatingadmissionpolicybindings", "get"),
        ("ClusterRole", "kerf.dev", "resourceclasses", "list", "watch"),
        ("ClusterRole", "kerf.dev", "resourceclasses/status", "patch"),
        ("ClusterRole", "kerf.dev", "fpgashells", "list", "watch"),
        ("ClusterRole", "kerf.dev", "fpgashells/status", "patch"),
        ("ClusterRole", "kerf.dev", "fpgaimages", "list", "watch"),
        ("ClusterRole", "kerf.dev", "fpgaimages/status", "patch"),
        ("ClusterRole", "kerf.dev", "discoveryconfigurations", "list", "watch"),
        ("ClusterRole", "kerf.dev", "discoveryconfigurations/status", "patch"),
        ("ClusterRole", "kerf.dev", "discovereddevices", "list", "watch", "patch", "delete"),
        ("ClusterRole", "kerf.dev", "discovereddevices/status", "patch"),
        ("ClusterRole", "resource.k8s.io", "deviceclasses", "list", "watch", "create", "patch"),
        ("ClusterRole", "resource.k8s.io", "resourceslices", "list", "watch", "create", "patch", "delete"),
        ("Role", "", "events", "create", "patch"),
        ("Role", "coordination.k8s.io", "leases", "create"),
        ("Role", "coordination.k8s.io", "leases", "get", "update"),
    }


def test_the_controller_writes_device_classes_that_it_has_compiled() -> None:
    assert not POLICIES.refusal("deviceclasses", new=OURS, user=CONTROLLER)
    assert not POLICIES.refusal("deviceclasses", new=OURS, old=OURS, user=CONTROLLER)


@pytest.mark.parametrize("foreign", FOREIGN)
def test_the_controller_writes_no_other_device_class(foreign: Json) -> None:
    for new, old in ((foreign, None), (foreign, foreign), (OURS, foreign), (foreign, OURS), (None, foreign)):
        said = POLICIES.refusal("deviceclasses", new=new, old=old, user=CONTROLLER)
        assert said == NO_CLASS
        assert not POLICIES.refusal("deviceclasses", new=new, old=old, user=SOMEBODY)


@pytest.mark.parametrize(
    ("spec", "owners", "allowed"),
    [
        ({"driver": "gpu.kerf.dev", "nodeName": "n1"}, [], True),
        ({"driver": "gpu.kerf.dev", "nodeName": "n1"}, [NODE], False),
        ({"driver": "gpu.kerf.dev", "allNodes": True}, [], False),
    ],
)
def test_the_controller_deletes_slices_that_have_lost_their_node(spec: Json, owners: list[Json], allowed: bool) -> None:
    value = {"metadata": {"name": "s", **({"ownerReferences": owners} if owners else {})}, "spec": spec}
    said = POLICIES.refusal("resourceslices", old=value, user=CONTROLLER)
    assert said == ("" if allowed else NO_SLICE)
    assert POLICIES.refusal("resourceslices", new=value, old=value, user=CONTROLLER)


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        ({"driver": "shared.kerf.dev", "nodeSelector": {}}, True),
        ({"driver": "shared.kerf.dev", "nodeName": "n1"}, False),
        ({"driver": "gpu.kerf.dev", "nodeSelector": {}}, False),
    ],
)
def test_the_controller_writes_slices_of_discovered_devices(spec: Json, allowed: bool) -> None:
    value = {"metadata": {"name": "s", "ownerReferences": [NODE]}, "spec": spec}
    for new, old in ((value, None), (value, value), (None, value)):
        said = POLICIES.refusal("resourceslices", new=new, old=old, user=CONTROLLER)
        assert said == ("" if allowed else NO_SLICE)


@pytest.mark.parametrize("kind", ["DiscoveryConfiguration", "DiscoveredDevice"])
def test_the_controller_writes_the_device_classes_of_discovered_devices(kind: str) -> None:
    value = owned_by(kind=kind, name="cameras")
    assert POLICIES.refusal("deviceclasses", new=value, user=CONTROLLER)
    value["metadata"]["name"] = "cameras.shared.kerf.dev"
    assert not POLICIES.refusal("deviceclasses", new=value, old=value, user=CONTROLLER)
