"""What edits do to an OCI spec, rule by rule: in words what ``test_go_verdicts.py`` has from the Go library."""

import copy
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kerf_dra.cdi import (
    ContainerEdits,
    DeviceNode,
    Hook,
    HostDeviceError,
    HostNode,
    IntelRdt,
    InvalidOCISpecError,
    Mount,
    NetDevice,
    Semantics,
    apply,
)
from kerf_dra.cdi.container_edits import complete_device_node
from tests.cdi.strategies import EDITS, OCI_SPECS


class FakeHost:
    """A host with the nodes it is told of."""

    def __init__(self, **nodes: HostNode) -> None:
        self._nodes = {f"/dev/{name}": node for name, node in nodes.items()}

    def node(self, path: str) -> HostNode:
        if path not in self._nodes:
            raise HostDeviceError(path, "host-missing", "the host has none to complete it from")
        return self._nodes[path]


HOST = FakeHost(
    gpu=HostNode(type="c", major=195, minor=7, file_mode=0o660),
    disk=HostNode(type="b", major=8, minor=1, file_mode=0o600),
    pipe=HostNode(type="p", major=0, minor=0, file_mode=0o622),
)
BARE = {"ociVersion": "1.2.0"}


def nodes(oci: dict[str, Any], *given: DeviceNode, semantics: Semantics = "1.1") -> dict[str, Any]:
    return apply(ContainerEdits(device_nodes=given), oci, semantics=semantics, host=HOST)


def mounts(oci: dict[str, Any], *given: Mount, semantics: Semantics = "1.1") -> list[Any]:
    found: list[Any] = apply(ContainerEdits(mounts=given), oci, semantics=semantics, host=HOST)["mounts"]
    return found


COMPLETED = [
    (DeviceNode(path="/dev/gpu"), ("c", 195, 7, 0o660)),
    (DeviceNode(path="/dev/x", host_path="/dev/gpu"), ("c", 195, 7, 0o660)),
    (DeviceNode(path="/dev/gpu", type="c"), ("c", 195, 7, 0o660)),
    (DeviceNode(path="/dev/gpu", minor=3), ("c", 195, 7, 0o660)),
    (DeviceNode(path="/dev/gpu", major=9, minor=3), ("c", 9, 3, 0o660)),
    (DeviceNode(path="/dev/gpu", file_mode=0o600), ("c", 195, 7, 0o600)),
    (DeviceNode(path="/dev/gpu", type="b", major=9), ("b", 9, 0, 0o660)),
    (DeviceNode(path="/dev/gpu", type="u", major=9), ("u", 9, 0, 0o660)),
    (DeviceNode(path="/dev/none", type="c", major=9), ("c", 9, 0, None)),
    (DeviceNode(path="/dev/none", type="p"), ("p", 0, 0, None)),
    (DeviceNode(path="/dev/pipe"), ("p", 0, 0, 0o622)),
    (DeviceNode(path="/dev/pipe", minor=4), ("p", 0, 4, 0o622)),
]


@pytest.mark.parametrize(("node", "found"), COMPLETED)
def test_a_node_is_completed_from_the_host(node: DeviceNode, found: tuple[Any, ...]) -> None:
    whole = complete_device_node(node, HOST)
    assert (whole.type, whole.major, whole.minor, whole.file_mode) == found
    assert whole.path == node.path


@pytest.mark.parametrize(
    ("node", "code"),
    [
        (DeviceNode(path="/dev/none"), "host-missing"),
        (DeviceNode(path="/dev/none", type="c"), "host-missing"),
        (DeviceNode(path="/dev/none", major=9), "host-missing"),
        (DeviceNode(path="/dev/gpu", type="b"), "host-type-mismatch"),
        (DeviceNode(path="/dev/gpu", type="u"), "host-type-mismatch"),
    ],
)
def test_a_node_that_cannot_be_completed_says_why(node: DeviceNode, code: str) -> None:
    with pytest.raises(HostDeviceError) as caught:
        complete_device_node(node, HOST)
    assert caught.value.code == code


def test_a_device_brings_the_cgroup_rule_that_lets_it_be_used() -> None:
    oci = nodes(BARE, DeviceNode(path="/dev/gpu", permissions="rw"), DeviceNode(path="/dev/disk"))
    assert oci["linux"]["resources"]["devices"] == [
        {"allow": True, "type": "c", "major": 195, "minor": 7, "access": "rw"},
        {"allow": True, "type": "b", "major": 8, "minor": 1, "access": "rwm"},
    ]


@pytest.mark.parametrize("node", [DeviceNode(path="/dev/pipe"), DeviceNode(path="/dev/x", type="u", major=1)])
def test_what_cgroups_do_not_know_brings_no_rule(node: DeviceNode) -> None:
    assert "resources" not in nodes(BARE, node)["linux"]


def test_no_permissions_make_a_rule_without_access() -> None:
    (rule,) = nodes(BARE, DeviceNode(path="/dev/gpu", permissions="none"))["linux"]["resources"]["devices"]
    assert rule == {"allow": True, "type": "c", "major": 195, "minor": 7}


USER = {"process": {"user": {"uid": 1000, "gid": 0}, "cwd": "/"}}


@pytest.mark.parametrize(
    ("oci", "node", "owner"),
    [
        (BARE, DeviceNode(path="/dev/gpu"), {}),
        (USER, DeviceNode(path="/dev/gpu"), {"uid": 1000}),
        (USER, DeviceNode(path="/dev/gpu", uid=0, gid=5), {"uid": 0, "gid": 5}),
        ({"process": {}}, DeviceNode(path="/dev/gpu"), {}),
        ({"process": {"user": {"uid": 5, "gid": 6}}}, DeviceNode(path="/dev/gpu", gid=0), {"uid": 5, "gid": 0}),
    ],
)
def test_a_node_belongs_to_the_process_unless_the_spec_says_otherwise(
    oci: dict[str, Any], node: DeviceNode, owner: dict[str, int]
) -> None:
    (device,) = nodes(oci, node)["linux"]["devices"]
    assert {key: device[key] for key in ("uid", "gid") if key in device} == owner


def test_a_node_takes_the_place_of_one_with_its_path() -> None:
    there = [{"path": path, "type": "c", "major": 1, "minor": 1} for path in ("/dev/gpu", "/dev/null")]
    oci = nodes({"linux": {"devices": there}}, DeviceNode(path="/dev/gpu", type="c", major=9, minor=9))
    assert [(device["path"], device["major"]) for device in oci["linux"]["devices"]] == [
        ("/dev/null", 1),
        ("/dev/gpu", 9),
    ]


def test_of_two_nodes_with_its_path_one_goes_and_one_is_replaced() -> None:
    there = [
        {"path": path, "major": number} for number, path in enumerate(("/dev/gpu", "/dev/a", "/dev/gpu", "/dev/b"))
    ]
    oci = nodes({"linux": {"devices": there}}, DeviceNode(path="/dev/gpu", type="c", major=9, minor=9))
    assert [(device["path"], device["major"]) for device in oci["linux"]["devices"]] == [
        ("/dev/a", 1),
        ("/dev/gpu", 9),
        ("/dev/b", 3),
    ]


@pytest.mark.parametrize(
    ("semantics", "env"),
    [("1.1", ["A=old", "B=1", "C=2", "A=new"]), ("main", ["A=new", "B=1", "C=2"])],
)
def test_a_variable_that_is_there_is_replaced_by_later_readers_only(semantics: Semantics, env: list[str]) -> None:
    oci = {"process": {"env": ["A=old", "B=1", "C"]}}
    assert apply(ContainerEdits(env=("C=2", "A=new")), oci, semantics=semantics)["process"]["env"] == env


def test_of_a_variable_given_twice_the_later_value_counts() -> None:
    for semantics in ("1.1", "main"):
        oci = apply(ContainerEdits(env=("A=1", "B=2", "A=3=4")), BARE, semantics=semantics)
        assert oci["process"] == {"user": {"uid": 0, "gid": 0}, "cwd": "", "env": ["A=3=4", "B=2"]}


def test_mounts_are_sorted_by_depth_all_of_them() -> None:
    there = [{"destination": path} for path in ("/proc", "/dev/pts", "/a/b/c", "/b")]
    found = mounts(
        {"mounts": there},
        Mount(host_path="/h", container_path="/z/y", options=("bind",)),
        Mount(host_path="/h", container_path="/a", options=("bind",)),
        Mount(host_path="/h", container_path="//x/../w/", options=("bind",)),
    )
    assert [mount["destination"] for mount in found] == ["/proc", "/b", "/a", "//x/../w/", "/dev/pts", "/z/y", "/a/b/c"]


def test_a_mount_takes_the_place_of_one_with_the_very_same_destination() -> None:
    there = [{"destination": "/b", "source": "old"}, {"destination": "/b/", "source": "other"}]
    found = mounts({"mounts": there}, Mount(host_path="/h", container_path="/b", options=("bind",), type="none"))
    assert found == [
        {"destination": "/b/", "source": "other"},
        {"destination": "/b", "source": "/h", "type": "none", "options": ["bind"]},
    ]


def test_without_mounts_nothing_is_sorted() -> None:
    there = [{"destination": "/a/b"}, {"destination": "/a"}]
    assert apply(ContainerEdits(env=("A=b",)), {"mounts": there})["mounts"] == there


USER_NAMESPACE = {"linux": {"namespaces": [{"type": "mount"}, {"type": "user"}]}}


@pytest.mark.parametrize(
    ("type_", "options", "mapped"),
    [
        ("", ("bind",), ["bind", "idmap"]),
        ("", ("ro", "rbind"), ["ro", "rbind", "ridmap"]),
        ("bind", ("ro",), ["ro", "idmap"]),
        ("", ("rbind", "bind"), ["rbind", "bind", "idmap"]),
        ("", ("bind", "ridmap"), ["bind", "ridmap"]),
        ("tmpfs", ("ro",), ["ro"]),
    ],
)
def test_later_readers_map_owners_of_bind_mounts_into_a_user_namespace(
    type_: str, options: tuple[str, ...], mapped: list[str]
) -> None:
    mount = Mount(host_path="/h", container_path="/c", type=type_, options=options)
    (found,) = mounts(USER_NAMESPACE, mount, semantics="main")
    assert found["options"] == mapped
    (found,) = mounts(USER_NAMESPACE, mount)
    assert found["options"] == list(options)
    (found,) = mounts({"linux": {"namespaces": [{"type": "mount"}]}}, mount, semantics="main")
    assert found["options"] == list(options)


def test_hooks_are_added_at_the_end_of_their_stage() -> None:
    hooks = (
        Hook(hook_name="poststop", path="/b", args=("b", "-v"), env=("A=b",), timeout=5),
        Hook(hook_name="createRuntime", path="/c"),
    )
    oci = apply(ContainerEdits(hooks=hooks), {"hooks": {"poststop": [{"path": "/a"}]}})
    assert oci["hooks"] == {
        "poststop": [{"path": "/a"}, {"path": "/b", "args": ["b", "-v"], "env": ["A=b"], "timeout": 5}],
        "createRuntime": [{"path": "/c"}],
    }


def test_network_devices_are_set_by_the_hosts_name() -> None:
    given = (NetDevice(host_interface_name="ens1", name="net0"), NetDevice(host_interface_name="ens2", name="net1"))
    oci = apply(ContainerEdits(net_devices=given), {"linux": {"netDevices": {"ens1": {"name": "old"}, "ens9": {}}}})
    assert oci["linux"]["netDevices"] == {"ens1": {"name": "net0"}, "ens2": {"name": "net1"}, "ens9": {}}


def test_rdt_is_replaced_whole() -> None:
    before = {"linux": {"intelRdt": {"closID": "old", "memBwSchema": "MB:0=50"}}}
    given = IntelRdt(clos_id="new", schemata=("a",), enable_monitoring=True)
    assert apply(ContainerEdits(intel_rdt=given), before)["linux"]["intelRdt"] == {
        "closID": "new",
        "schemata": ["a"],
        "enableMonitoring": True,
    }
    assert apply(ContainerEdits(intel_rdt=IntelRdt()), before)["linux"]["intelRdt"] == {}


def test_groups_are_added_once_and_never_root() -> None:
    before = {"process": {"user": {"uid": 1, "gid": 1, "additionalGids": [7]}}}
    edits = ContainerEdits(additional_gids=(0, 7, 8, 8))
    assert apply(edits, before)["process"]["user"]["additionalGids"] == [7, 8]
    assert apply(edits, {"process": {"cwd": "/"}})["process"] == {"cwd": "/", "user": {"additionalGids": [7, 8]}}
    assert apply(ContainerEdits(additional_gids=(0,)), BARE) == BARE


def test_null_is_nothing() -> None:
    oci = {"process": None, "mounts": None, "linux": {"devices": None, "namespaces": None}, "hooks": None}
    edits = ContainerEdits(
        env=("A=b",),
        device_nodes=(DeviceNode(path="/dev/gpu"),),
        mounts=(Mount(host_path="/h", container_path="/c", options=("bind",)),),
        hooks=(Hook(hook_name="poststop", path="/h"),),
    )
    found = apply(edits, oci, semantics="main", host=HOST)
    assert found["process"]["env"] == ["A=b"]
    assert len(found["mounts"]) == len(found["linux"]["devices"]) == len(found["hooks"]["poststop"]) == 1


@pytest.mark.parametrize(
    ("oci", "path"),
    [
        ({"process": []}, "process"),
        ({"process": {"env": {}}}, "process.env"),
        ({"process": {"user": "root"}}, "process.user"),
        ({"linux": {"devices": [5]}}, "linux.devices[0]"),
        ({"linux": "x"}, "linux"),
        ({"mounts": {}}, "mounts"),
        ({"hooks": {"poststop": 1}}, "hooks.poststop"),
        ({"linux": {"resources": []}}, "linux.resources"),
    ],
)
def test_an_oci_spec_of_the_wrong_shape_is_refused(oci: dict[str, Any], path: str) -> None:
    edits = ContainerEdits(
        env=("A=b",),
        device_nodes=(DeviceNode(path="/dev/gpu"),),
        mounts=(Mount(host_path="/h", container_path="/c", options=("bind",)),),
        hooks=(Hook(hook_name="poststop", path="/h"),),
        additional_gids=(5,),
    )
    before = copy.deepcopy(oci)
    with pytest.raises(InvalidOCISpecError) as caught:
        apply(edits, oci, host=HOST)
    assert caught.value.path == path
    assert oci == before


class CompleteHost:
    """A host with every node, of the type that is requested."""

    def node(self, path: str) -> HostNode:
        raise HostDeviceError(path, "host-missing", "there is none")


PLACES = (
    *("process", "process.user", "process.user.uid", "process.user.additionalGids", "process.env", "mounts", "hooks"),
    *("hooks.poststop", "linux", "linux.devices", "linux.resources", "linux.resources.devices", "linux.namespaces"),
    *("linux.netDevices", "linux.intelRdt"),
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 1) | st.just(0.5) | st.sampled_from(["", "A=b", "user"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["type", "path", "destination", "uid"]), inner, max_size=2)
    ),
    max_leaves=3,
)


@given(edits=EDITS, wrong=st.dictionaries(st.sampled_from(PLACES), ANYTHING, min_size=1, max_size=3))
@example(edits=ContainerEdits(env=("A=b",)), wrong={"process.env": [{}]})
@example(
    edits=ContainerEdits(mounts=(Mount(host_path="/a", container_path="/b", options=("bind",)),)),
    wrong={"linux.namespaces": True},
)
def test_whatever_an_oci_spec_holds_only_our_errors_come_of_it(edits: ContainerEdits, wrong: dict[str, Any]) -> None:
    oci: dict[str, Any] = {}
    for place, value in sorted(wrong.items()):
        *path, last = place.split(".")
        inside = oci
        for key in path:
            inside = inside.setdefault(key, {}) if isinstance(inside.setdefault(key, {}), dict) else {}
        inside[last] = copy.deepcopy(value)
    before = json.dumps(oci)
    for semantics in ("1.1", "main"):
        try:
            json.dumps(apply(edits, oci, semantics=semantics, host=CompleteHost()))
        except (HostDeviceError, InvalidOCISpecError):
            pass
        assert json.dumps(oci) == before


@given(edits=EDITS, oci=OCI_SPECS)
def test_the_input_is_never_touched_whatever_happens(edits: ContainerEdits, oci: dict[str, Any]) -> None:
    before = json.dumps(oci)
    for semantics in ("1.1", "main"):
        try:
            found = apply(edits, oci, semantics=semantics, host=CompleteHost())
        except HostDeviceError:
            continue
        finally:
            assert json.dumps(oci) == before
        json.dumps(found)
        # Nothing in the copy is shared with the input: to empty it does not reach there.
        for value in found.values():
            if isinstance(value, dict | list):
                value.clear()
        assert json.dumps(oci) == before


@given(oci=OCI_SPECS)
def test_no_edits_change_nothing(oci: dict[str, Any]) -> None:
    assert apply(ContainerEdits(), oci) == oci
