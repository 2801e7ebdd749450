"""``kerf rbac``: the permissions of the kubelet plugin, for the drivers that it hosts."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kerf_dra.driver.cli import main
from kerf_dra.driver.cli.catalog.rbac import build_early_loading, build_permissions
from tests.local.apiserver.policy_server import PolicyServer, account
from tools.generate import rbac

Json = dict[str, Any]
PLUGIN = account("kerf-kubelet-plugin", node="n1")
NOWHERE = account("kerf-kubelet-plugin")
SOMEBODY = account("somebody", node="n1")
POLICIES = PolicyServer(yaml.safe_load_all(build_permissions()))


def of_kind(kind: str, text: str) -> list[Json]:
    return [document for document in yaml.safe_load_all(text) if document["kind"] == kind]


def rules(text: str) -> dict[tuple[str, str], list[str]]:
    """The verbs of the cluster role in ``text``, by group and resource."""
    (role,) = of_kind("ClusterRole", text)
    found = [
        (group, one, rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for one in rule["resources"]
    ]
    assert len(found) == len({(group, one) for group, one, _ in found}), "one rule for each resource"
    return {(group, one): verbs for group, one, verbs in found}


def slice_(node: str | None = "n1", driver: str = "gpu.kerf.dev", pool: str = "n1/gpu") -> Json:
    spec = {"driver": driver, "pool": {"name": pool}, **({"nodeName": node} if node else {"allNodes": True})}
    return {"metadata": {"name": "s"}, "spec": spec}


def entry(driver: str = "gpu.kerf.dev", pool: str = "n1/gpu", **more: Any) -> Json:
    return {"driver": driver, "pool": pool, "device": "d", **more}


def claim(*results: Json, devices: tuple[Json, ...] = (), **status: Any) -> Json:
    allocation = {"allocation": {"devices": {"results": list(results)}}} if results else {}
    own = {"devices": list(devices)} if devices else {}
    return {"metadata": {"name": "c"}, "spec": {}, "status": {**allocation, **own, **status}}


def test_the_manifests_are_what_the_command_prints_for_kerfs_own_families(tmp_path: Path) -> None:
    for path in rbac.generate(tmp_path):
        assert (rbac.ROOT / path).read_text() == (tmp_path / path).read_text(), "run `make generate`"


@pytest.mark.parametrize("option", ["--name", "--namespace"])
def test_what_is_no_name_gets_into_no_policy(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Names are written into CEL: one with a quote printed a policy about another account, without a word."""
    assert main(["rbac", option, 'kerf" || true || "']) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "is not a name of an object" in captured.err


def test_the_command_prints_the_permissions_of_the_chosen_families(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rbac", "--family", "fpga", "--name", "fpgas", "--namespace", "lab"]) == 0
    text = capsys.readouterr().out
    assert [one["metadata"] for one in of_kind("ServiceAccount", text)] == [{"name": "fpgas", "namespace": "lab"}]
    (role,) = of_kind("ClusterRole", text)
    (rule,) = (rule for rule in role["rules"] if rule["resources"] == ["resourceclaims/driver"])
    assert rule["resourceNames"] == ["fpga.kerf.dev"]
    (binding,) = of_kind("ClusterRoleBinding", text)
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "fpgas", "namespace": "lab"}]


def test_an_unknown_family_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rbac", "--family", "npu"]) == 1
    assert "no family 'npu'" in capsys.readouterr().err


def test_the_plugin_may_do_this_and_nothing_else() -> None:
    assert rules(build_permissions()) == {
        ("", "nodes"): ["get"],
        ("", "pods"): ["get"],
        ("", "events"): ["create", "patch"],
        ("kerf.dev", "resourceclasses"): ["list", "watch"],
        ("kerf.dev", "fpgashells"): ["get", "list", "watch"],
        ("kerf.dev", "fpgaimages"): ["get", "list", "watch"],
        ("kerf.dev", "cardmaintenances"): ["list", "watch"],
        ("kerf.dev", "cardmaintenances/status"): ["patch"],
        ("kerf.dev", "discoveryconfigurations"): ["get", "list", "watch"],
        ("kerf.dev", "discovereddevices"): ["get", "list", "watch", "create", "patch"],
        ("resource.k8s.io", "resourceclaims"): ["get"],
        ("resource.k8s.io", "resourceclaims/status"): ["patch"],
        ("resource.k8s.io", "resourceclaims/driver"): ["associated-node:patch"],
        ("resource.k8s.io", "resourceslices"): ["list", "watch", "create", "update", "delete"],
    }


def test_early_loading_adds_the_right_to_read_all_claims(capsys: pytest.CaptureFixture[str]) -> None:
    assert rules(build_early_loading()) == {("resource.k8s.io", "resourceclaims"): ["list", "watch"]}
    assert main(["rbac", "--early-loading", "--name", "fpgas"]) == 0
    text = capsys.readouterr().out
    assert [one["metadata"]["name"] for one in of_kind("ClusterRole", text)] == ["fpgas", "fpgas-early-loading"]
    assert "`kerf rbac --early-loading --name=fpgas`" in text


@pytest.mark.parametrize(
    ("user", "value", "refused"),
    [
        (PLUGIN, slice_(), ""),
        (PLUGIN, slice_(driver="fpga.kerf.dev", pool="n1/fpga"), ""),
        (PLUGIN, slice_("n2"), 'may not write a ResourceSlice of node "n2"'),
        (PLUGIN, slice_(None), 'may not write a ResourceSlice of node ""'),
        (PLUGIN, slice_(driver="nic.example.com"), 'may not write a ResourceSlice of driver "nic.example.com"'),
        (NOWHERE, slice_(), "this token names no node"),
        (SOMEBODY, slice_("n2", driver="nic.example.com", pool="p"), ""),
    ],
)
def test_a_plugin_writes_slices_of_its_own_node_and_drivers_only(user: Json, value: Json, refused: str) -> None:
    said = [
        POLICIES.refusal("resourceslices", new=value, user=user),
        POLICIES.refusal("resourceslices", new=value, old=value, user=user),
        POLICIES.refusal("resourceslices", old=value, user=user),
    ]
    assert [refused in one and bool(one) == bool(refused) for one in said] == [True] * 3, said


def device(nodes: tuple[str, ...], *, label: str | None = "Shared", **spec: Any) -> Json:
    """A device that n1 has made."""
    known = {"configurationName": "c", "deviceID": "d", "shared": True, "nodes": list(nodes), "foundBy": "n1", **spec}
    labels = {"kerf.dev/node": label} if label is not None else {}
    spec = {name: value for name, value in known.items() if value is not None}
    return {"metadata": {"name": "c-1", "labels": labels}, "spec": spec}


def local(nodes: tuple[str, ...], node: str = "n1", **more: Any) -> Json:
    """A device of one node that is not shared."""
    return device(nodes, **{"shared": False, "label": node, "foundBy": node, **more})


def with_metadata(value: Json, **metadata: Any) -> Json:
    return value | {"metadata": value["metadata"] | metadata}


DESCRIBED: Json = {"properties": {"A": "1"}}
LONG = "n" * 64
OTHER_NODE = "may not write a device of another node"
UNSEEN = "may not describe a device that it does not see"
FIRST = "what the node has said that found it first"
METADATA = "of the metadata of a device the kubelet plugin of Kerf may only write the label kerf.dev/node"
ANOTHER = "a device cannot become another one"


@pytest.mark.parametrize(
    ("user", "old", "new", "refused"),
    [
        # Its own node in the nodes of a device.
        (PLUGIN, None, device(("n1",)), ""),
        (PLUGIN, device(("n2",), foundBy="n2"), device(("n1", "n2"), foundBy="n2"), ""),
        (PLUGIN, device(("n1", "n2")), device(("n2",)), ""),
        (PLUGIN, None, device(("n2",)), "may not add or remove other nodes"),
        (PLUGIN, device(("n2",)), device(("n1",)), "may not add or remove other nodes"),
        (PLUGIN, device(("n2",)), device(()), "may not add or remove other nodes"),
        # What a device is: one of its own node, and a shared one when it makes its object.
        (PLUGIN, None, device(("n1",), **DESCRIBED), ""),
        (PLUGIN, None, device(()), UNSEEN),
        (PLUGIN, device(("n1",)), device(("n1",), **DESCRIBED), FIRST),
        (PLUGIN, device(("n1", "n2")), device(("n1", "n2"), **DESCRIBED), FIRST),
        (PLUGIN, device(("n2",)), device(("n1", "n2"), **DESCRIBED), FIRST),
        (PLUGIN, device(("n2",)), device(("n2",), **DESCRIBED), UNSEEN),
        (PLUGIN, None, local(("n1",), mounts=[{}]), ""),
        (PLUGIN, local(("n1",)), local(("n1",), mounts=[{}]), ""),
        (PLUGIN, local(()), local(("n1",), mounts=[{}]), ""),
        (PLUGIN, local(("n1",)), local((), mounts=[{}]), UNSEEN),
        (PLUGIN, local(("n1",), foundBy=None), local(("n1",), foundBy=None, **DESCRIBED), ""),
        # No device of another node.
        (PLUGIN, local(("n2",), "n2"), local(("n1", "n2"), "n2"), OTHER_NODE),
        (PLUGIN, local((), "n2"), local(("n1",), "n2"), OTHER_NODE),
        (PLUGIN, local((), "n2", foundBy=None), local(("n1",), "n1", foundBy=None), OTHER_NODE),
        (PLUGIN, local((), "n1", foundBy="n2"), local(("n1",), "n1", foundBy="n2"), OTHER_NODE),
        # Whose it is.
        (PLUGIN, None, local(("n1",), label="n2"), "must be that of node"),
        (PLUGIN, None, local(("n1",), label="Shared"), "must be that of node"),
        (PLUGIN, None, local(("n1",), label=None), "must be that of node"),
        (PLUGIN, None, device(("n1",), label="n1"), "must be Shared"),
        (PLUGIN, None, device(("n1",), label=None), "must be Shared"),
        (PLUGIN, local(("n1",)), local(("n1",), label="n2"), "must be that of node"),
        (PLUGIN, local(("n1",), label=None), local(("n1",)), ""),
        (account("kerf-kubelet-plugin", node=LONG), None, local((LONG,), LONG, label="sha256-1"), ""),
        (account("kerf-kubelet-plugin", node=LONG), None, local((LONG,), LONG, label="n1"), "must be that of node"),
        (PLUGIN, None, device(("n1",), foundBy="n2"), 'spec.foundBy must be "n1"'),
        (PLUGIN, None, device(("n1",), foundBy=None), 'spec.foundBy must be "n1"'),
        (PLUGIN, device(("n1",)), device(("n1",), deviceID="other"), ANOTHER),
        (PLUGIN, device(("n1",)), device(("n1",), shared=False), ANOTHER),
        (PLUGIN, local(("n1",)), local(("n1",), foundBy=None), ANOTHER),
        (PLUGIN, local(("n1",), foundBy=None), local(("n1",)), ANOTHER),
        # What is the administrator's.
        (PLUGIN, None, device(("n1",), capacity=1000), "is the administrator's to say"),
        (PLUGIN, local(("n1",)), local(("n1",), capacity=1), "is the administrator's to say"),
        (PLUGIN, device(("n2",), capacity=2), device(("n1", "n2"), capacity=2), ""),
        (PLUGIN, None, with_metadata(device(("n1",)), finalizers=["a/b"]), METADATA),
        (PLUGIN, None, with_metadata(device(("n1",)), annotations={"a": "x" * 9999}), METADATA),
        (PLUGIN, None, with_metadata(device(("n1",)), labels={"kerf.dev/node": "Shared", "a": "b"}), METADATA),
        (PLUGIN, None, with_metadata(device(("n1",)), ownerReferences=[{}]), ""),
        (PLUGIN, None, with_metadata(device(("n1",)), ownerReferences=[{}, {}]), METADATA),
        (PLUGIN, local(("n1",)), with_metadata(local(("n1",)), finalizers=["a/b"]), METADATA),
        (PLUGIN, local(("n1",)), with_metadata(local(("n1",)), ownerReferences=[{}]), METADATA),
        (NOWHERE, None, device(("n1",)), "this token names no node"),
        (SOMEBODY, device(("n2",)), device(("n3",), foundBy=None), ""),
    ],
)
def test_a_plugin_enters_its_own_node_into_devices_and_describes_what_it_sees(
    user: Json, old: Json | None, new: Json, refused: str
) -> None:
    said = POLICIES.refusal("discovereddevices", new=new, old=old, user=user, group="kerf.dev")
    assert refused in said
    assert bool(said) == bool(refused)


def used(*users: str, **status: Any) -> Json:
    """A device with users, by node and id (``n1/0``)."""
    entries = [
        {"node": user.partition("/")[0], "resource": "akri.sh/c", "id": user.partition("/")[2]} for user in users
    ]
    return device(("n1", "n2")) | {"status": {"users": entries, **status}}


@pytest.mark.parametrize(
    ("user", "old", "new", "refused"),
    [
        (PLUGIN, device(("n1", "n2")), used("n1/0"), ""),
        (PLUGIN, used("n2/0"), used("n2/0", "n1/0"), ""),
        (PLUGIN, used("n2/0", "n1/0", "n2/1"), used("n2/0", "n2/1"), ""),
        (PLUGIN, used("n1/0"), device(("n1", "n2")), ""),
        (PLUGIN, used("n1/0", offlineSince="t"), used("n1/1", offlineSince="t"), ""),
        (PLUGIN, used(), used("n2/0"), "may not write the users of other nodes"),
        (PLUGIN, used("n2/0"), used("n1/0"), "may not write the users of other nodes"),
        (PLUGIN, used("n2/0"), used(), "may not write the users of other nodes"),
        (PLUGIN, used("n2/0"), device(("n1", "n2")), "may not write the users of other nodes"),
        (PLUGIN, used("n2/0", "n2/1"), used("n2/1", "n1/0"), "may not write the users of other nodes"),
        (PLUGIN, used(), used("n1/0", offlineSince="t"), "may only write status.users of a device"),
        (PLUGIN, used(offlineSince="t"), used(), "may only write status.users of a device"),
        (PLUGIN, used(conditions=[]), used(conditions=[{"type": "Published"}]), "may only write status.users"),
        (NOWHERE, used(), used("n1/0"), "this token names no node"),
        (SOMEBODY, used("n2/0"), used("n3/0"), ""),
    ],
)
def test_a_plugin_enters_and_removes_users_of_its_own_node_only(user: Json, old: Json, new: Json, refused: str) -> None:
    said = POLICIES.refusal("discovereddevices", new=new, old=old, subresource="status", user=user, group="kerf.dev")
    assert refused in said
    assert bool(said) == bool(refused), said


def test_a_plugin_writes_no_slice_into_the_pool_of_another_node() -> None:
    for pool in ("n2/gpu", "n1", "n11/gpu"):
        said = POLICIES.refusal("resourceslices", new=slice_(pool=pool), user=PLUGIN)
        assert 'may only write pools whose names begin with "n1/"' in said
        assert not POLICIES.refusal("resourceslices", old=slice_(pool=pool), user=PLUGIN), "its own it may delete"


def test_a_plugin_of_one_family_may_not_write_the_other_familys_slices() -> None:
    policies = PolicyServer(yaml.safe_load_all(build_permissions(("fpga",))))
    assert "of driver" in policies.refusal("resourceslices", new=slice_(), user=PLUGIN)


OWN = entry()
OTHERS = (entry("nic.example.com", "n1/nic"), entry(pool="n2/gpu"))


@pytest.mark.parametrize(
    ("old", "new", "refused"),
    [
        (claim(OWN), claim(OWN, devices=(OWN,)), ""),
        (claim(OWN, devices=(OWN,)), claim(OWN), ""),
        (claim(OWN, devices=(OWN,)), claim(OWN, devices=(entry(conditions=[{"type": "Ready"}]),)), ""),
        (claim(*OTHERS, OWN, devices=OTHERS), claim(*OTHERS, OWN, devices=(OWN, *OTHERS)), ""),
        (claim(OWN, reservedFor=[{"uid": "1"}]), claim(OWN, devices=(OWN,), reservedFor=[{"uid": "1"}]), ""),
        (claim(), claim(devices=(OWN,)), "has none of its devices"),
        (claim(), claim(OWN, devices=(OWN,)), "has none of its devices"),
        (claim(OTHERS[0]), claim(OTHERS[0], devices=(OTHERS[0],)), "has none of its devices"),
        (claim(OTHERS[1]), claim(OTHERS[1], devices=(OTHERS[1],)), "has none of its devices"),
        (claim(OWN), claim(OWN, OTHERS[1]), "may only write status.devices"),
        (claim(OWN), claim(), "may only write status.devices"),
        (claim(OWN), claim(OWN, reservedFor=[{"uid": "1"}]), "may only write status.devices"),
        (claim(OWN, reservedFor=[{"uid": "1"}]), claim(OWN), "may only write status.devices"),
        (claim(OWN), claim(OWN, somethingNew=True), "may only write status.devices"),
        (claim(OWN, *OTHERS), claim(OWN, *OTHERS, devices=OTHERS[:1]), "devices of other drivers or nodes"),
        (claim(OWN, *OTHERS, devices=OTHERS), claim(OWN, *OTHERS, devices=OTHERS[1:]), "devices of other drivers"),
        (claim(OWN, devices=OTHERS), claim(OWN, devices=(OTHERS[0], entry(pool="n2/gpu", data={}))), "other drivers"),
    ],
)
def test_a_plugin_writes_the_status_of_its_own_devices_only(old: Json, new: Json, refused: str) -> None:
    said = POLICIES.refusal("resourceclaims", new=new, old=old, subresource="status", user=PLUGIN)
    assert refused in said
    assert bool(said) == bool(refused), said
    assert not POLICIES.refusal("resourceclaims", new=new, old=old, subresource="status", user=SOMEBODY)
    assert "names no node" in POLICIES.refusal("resourceclaims", new=new, old=old, subresource="status", user=NOWHERE)


def maintenance(node: str = "n1", **status: Any) -> Json:
    return {"metadata": {"name": "m"}, "spec": {"nodeName": node, "card": "GPU-1"}, "status": status}


WORK: Json = {"state": "Done", "observedGeneration": 1}
OTHER_WORK: Json = {"state": "Acting", "observedGeneration": 1}
OF_ANOTHER_CARD: Json = {**maintenance(), "spec": {"nodeName": "n1", "card": "GPU-2"}}


@pytest.mark.parametrize(
    ("user", "old", "new", "refused"),
    [
        (PLUGIN, maintenance(), maintenance(work=WORK), ""),
        (PLUGIN, maintenance(phase="Free", work=OTHER_WORK), maintenance(phase="Free", work=WORK), ""),
        (PLUGIN, maintenance("n2"), maintenance("n2", work=WORK), 'of a card of node "n2"'),
        (PLUGIN, maintenance(), maintenance(phase="Free"), "may only write status.work"),
        (PLUGIN, maintenance(phase="Free"), maintenance(phase="Stuck", work=WORK), "may only write status.work"),
        (PLUGIN, maintenance(phase="Free"), maintenance(work=WORK), "may only write status.work"),
        (
            PLUGIN,
            maintenance(),
            {**maintenance(), "spec": {"nodeName": "n1", "card": "GPU-2"}},
            "only write status.work",
        ),
        (PLUGIN, None, maintenance(), "may only write status.work"),
        (PLUGIN, maintenance(), None, "may only write status.work"),
        (NOWHERE, maintenance(), maintenance(work=WORK), "this token names no node"),
        (SOMEBODY, maintenance("n2"), maintenance("n2", phase="Free"), ""),
    ],
)
def test_of_a_maintenance_a_plugin_writes_the_work_on_cards_of_its_own_node_only(
    user: Json, old: Json | None, new: Json | None, refused: str
) -> None:
    said = POLICIES.refusal(
        "cardmaintenances", old=old, new=new, user=user, group="kerf.dev", version="v1alpha1", subresource="status"
    )
    assert refused in said, said
    assert bool(said) == bool(refused), said
