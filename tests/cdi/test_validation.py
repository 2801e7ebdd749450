"""Findings in a spec's content. Each case says where, and for which readers it matters."""

from typing import Any

import pytest
from hypothesis import given

from kerf_dra.cdi import (
    ContainerEdits,
    Device,
    DeviceNode,
    Hook,
    IntelRdt,
    Kind,
    Mount,
    NetDevice,
    Spec,
    validate,
)
from kerf_dra.cdi.document.rules import CONTENT, READING, severity
from tests.cdi.strategies import SPECS
from tests.conftest import COSTLY

KIND = Kind(vendor="acme.io", class_name="widget")
EDITS = "devices[0].containerEdits"


PLAIN = ContainerEdits(env=("A=b",))


def spec(edits: ContainerEdits = PLAIN, **fields: Any) -> Spec:
    return Spec(**{"kind": KIND, "devices": (Device(name="w", container_edits=edits),), **fields})


def kind(vendor: str, class_name: str) -> Spec:
    return spec(kind=Kind(vendor=vendor, class_name=class_name))


def named(*names: str) -> Spec:
    return spec(devices=tuple(Device(name=name, container_edits=PLAIN) for name in names))


def node(**fields: Any) -> Spec:
    return spec(ContainerEdits(device_nodes=(DeviceNode(**{"path": "/dev/w", **fields}),)))


def mount(**fields: Any) -> Spec:
    given = {"host_path": "/h", "container_path": "/c", "options": ("bind",), **fields}
    return spec(ContainerEdits(mounts=(Mount(**given),)))


def hook(**fields: Any) -> Spec:
    return spec(ContainerEdits(hooks=(Hook(**{"hook_name": "poststop", "path": "/h", **fields}),)))


def interfaces(*names: tuple[str, str]) -> Spec:
    devices = tuple(NetDevice(host_interface_name=host, name=name) for host, name in names)
    return spec(ContainerEdits(net_devices=devices))


HOST_PATHS = ContainerEdits(device_nodes=(DeviceNode(path="/dev/w", host_path="/dev/null"),))

EVERY_READER, OLD_READERS, NOBODY_BUT_US, ADVICE = "every reader", "old readers", "nobody but us", "advice"

CASES: list[tuple[str, Spec, str, str]] = [
    ("unknown-version", spec(version="0.9.0"), "cdiVersion", EVERY_READER),
    ("unknown-version", spec(version=""), "cdiVersion", EVERY_READER),
    ("unknown-version", spec(version="vv1.0.0"), "cdiVersion", EVERY_READER),
    ("version-too-low", spec(version="0.2.0"), "cdiVersion", EVERY_READER),
    ("version-too-low", spec(HOST_PATHS, version="0.4.0"), "cdiVersion", EVERY_READER),
    (
        "version-understated",
        spec(devices=(Device(name="w", container_edits=HOST_PATHS), *named("v").devices), version="0.3.0"),
        "cdiVersion",
        NOBODY_BUT_US,
    ),
    ("version-too-high", spec(version="v1.1.0"), "cdiVersion", ADVICE),
    ("vendor-name", kind("acme.io-", "widget"), "kind", EVERY_READER),
    ("vendor-name", spec(kind=Kind.split("widget")), "kind", EVERY_READER),
    ("class-name", kind("acme.io", "9widget"), "kind", EVERY_READER),
    ("one-letter-name", kind("a", "widget"), "kind", OLD_READERS),
    ("one-letter-name", kind("acme.io", "w"), "kind", OLD_READERS),
    ("vendor-not-dns", kind("acme..io", "widget"), "kind", ADVICE),
    ("vendor-not-dns", kind("acme_x.io", "widget"), "kind", ADVICE),
    ("vendor-not-dns", kind("a" * 254, "widget"), "kind", ADVICE),
    ("class-too-long", kind("acme.io", "w" * 64), "kind", ADVICE),
    ("no-devices", spec(devices=()), "devices", EVERY_READER),
    ("device-name", named("-w"), "devices[0].name", EVERY_READER),
    ("device-name", named(""), "devices[0].name", EVERY_READER),
    ("duplicate-device", named("w", "v", "w"), "devices[2].name", EVERY_READER),
    ("device-empty-edits", spec(ContainerEdits(), container_edits=ContainerEdits(env=("A=b",))), EDITS, EVERY_READER),
    ("annotation-key", spec(annotations={"no key!": "x"}), "annotations[no key!]", NOBODY_BUT_US),
    ("annotation-key", spec(annotations={"No_Dns/key": "x"}), "annotations[No_Dns/key]", NOBODY_BUT_US),
    ("annotations-too-large", spec(annotations={"a": "x" * 262144}), "annotations", NOBODY_BUT_US),
    ("env-entry", spec(ContainerEdits(env=("A=b", "A"))), f"{EDITS}.env[1]", EVERY_READER),
    ("env-entry", spec(container_edits=ContainerEdits(env=("=b",))), "containerEdits.env[0]", EVERY_READER),
    ("env-entry", hook(env=("A",)), f"{EDITS}.hooks[0].env[0]", EVERY_READER),
    ("env-name", spec(ContainerEdits(env=("A B=c",))), f"{EDITS}.env[0]", NOBODY_BUT_US),
    ("env-name", spec(ContainerEdits(env=("A\n=c",))), f"{EDITS}.env[0]", NOBODY_BUT_US),
    ("duplicate-env", spec(ContainerEdits(env=("A=b", "A=c"))), f"{EDITS}.env[1]", ADVICE),
    ("device-path", node(path=""), f"{EDITS}.deviceNodes[0].path", EVERY_READER),
    ("device-type", node(type="d"), f"{EDITS}.deviceNodes[0].type", EVERY_READER),
    ("device-permissions", node(permissions="rx"), f"{EDITS}.deviceNodes[0].permissions", EVERY_READER),
    ("permissions-none", node(permissions="none"), f"{EDITS}.deviceNodes[0].permissions", OLD_READERS),
    (
        "duplicate-device-node",
        spec(ContainerEdits(device_nodes=(DeviceNode(path="/d"), DeviceNode(path="/d")))),
        f"{EDITS}.deviceNodes[1].path",
        ADVICE,
    ),
    ("net-device", interfaces(("", "net0")), f"{EDITS}.netDevices[0].hostInterfaceName", EVERY_READER),
    ("net-device", interfaces(("eth0", "")), f"{EDITS}.netDevices[0].name", EVERY_READER),
    (
        "net-device",
        interfaces(("eth0", "a"), ("eth0", "b")),
        f"{EDITS}.netDevices[1].hostInterfaceName",
        EVERY_READER,
    ),
    ("net-device", interfaces(("eth0", "a"), ("eth1", "a")), f"{EDITS}.netDevices[1].name", EVERY_READER),
    ("interface-name", interfaces(("eth0", "x" * 16)), f"{EDITS}.netDevices[0].name", NOBODY_BUT_US),
    ("interface-name", interfaces((".", "a")), f"{EDITS}.netDevices[0].hostInterfaceName", NOBODY_BUT_US),
    ("interface-name", interfaces(("a b", "a")), f"{EDITS}.netDevices[0].hostInterfaceName", NOBODY_BUT_US),
    ("mount", mount(host_path=""), f"{EDITS}.mounts[0].hostPath", EVERY_READER),
    ("mount", mount(container_path=""), f"{EDITS}.mounts[0].containerPath", EVERY_READER),
    ("mount-not-bind", mount(options=("ro",), type="bind"), f"{EDITS}.mounts[0].options", NOBODY_BUT_US),
    ("mount-not-bind", mount(options=()), f"{EDITS}.mounts[0].options", NOBODY_BUT_US),
    (
        "duplicate-mount",
        spec(ContainerEdits(mounts=(Mount(host_path="/h", container_path="/c", options=("bind",)),) * 2)),
        f"{EDITS}.mounts[1].containerPath",
        ADVICE,
    ),
    ("hook-name", hook(hook_name="Poststop"), f"{EDITS}.hooks[0].hookName", EVERY_READER),
    ("hook-path", hook(path=""), f"{EDITS}.hooks[0].path", EVERY_READER),
    ("hook-deprecated", hook(hook_name="prestart"), f"{EDITS}.hooks[0].hookName", ADVICE),
    ("hook-timeout", hook(timeout=0), f"{EDITS}.hooks[0].timeout", NOBODY_BUT_US),
    ("closid", spec(ContainerEdits(intel_rdt=IntelRdt(clos_id=".."))), f"{EDITS}.intelRdt.closID", EVERY_READER),
    ("closid", spec(ContainerEdits(intel_rdt=IntelRdt(clos_id="é" * 2048))), f"{EDITS}.intelRdt.closID", EVERY_READER),
    ("closid", spec(ContainerEdits(intel_rdt=IntelRdt(clos_id="\ud800/"))), f"{EDITS}.intelRdt.closID", EVERY_READER),
    ("relative-path", node(path="dev/w"), f"{EDITS}.deviceNodes[0].path", NOBODY_BUT_US),
    ("relative-path", node(host_path="w"), f"{EDITS}.deviceNodes[0].hostPath", NOBODY_BUT_US),
    ("relative-path", hook(path="bin/h"), f"{EDITS}.hooks[0].path", NOBODY_BUT_US),
    ("relative-path", mount(host_path="h"), f"{EDITS}.mounts[0].hostPath", NOBODY_BUT_US),
    ("not-text", spec(ContainerEdits(env=("A=\0",))), f"{EDITS}.env[0]", NOBODY_BUT_US),
    ("not-text", spec(annotations={"a": "\ud800"}), "annotations[a]", NOBODY_BUT_US),
    ("not-text", node(path="/\0"), f"{EDITS}.deviceNodes[0].path", NOBODY_BUT_US),
    ("out-of-range", node(uid=-1), f"{EDITS}.deviceNodes[0].uid", NOBODY_BUT_US),
    ("out-of-range", node(major=2**32), f"{EDITS}.deviceNodes[0].major", NOBODY_BUT_US),
    ("out-of-range", spec(ContainerEdits(additional_gids=(5, 2**32))), f"{EDITS}.additionalGids[1]", NOBODY_BUT_US),
]


@pytest.mark.parametrize(("code", "content", "path", "whom"), CASES)
def test_a_mistake_is_found_where_it_is(code: str, content: Spec, path: str, whom: str) -> None:
    written = {(one.code, one.path): one.severity for one in validate(content)}
    old = {(one.code, one.path): one.severity for one in validate(content, "1.1")}
    main = {(one.code, one.path): one.severity for one in validate(content, "main")}
    assert written.keys() == old.keys() == main.keys()
    assert (code, path) in written
    assert (written[code, path] == "error") is (whom is not ADVICE)
    assert (old[code, path] == "error") is (whom in (EVERY_READER, OLD_READERS))
    assert (main[code, path] == "error") is (whom is EVERY_READER)


def test_every_rule_has_a_case() -> None:
    assert {code for code, *_ in CASES} == set(CONTENT)


def test_what_a_reader_refuses_is_never_written() -> None:
    for code, rule in {**CONTENT, **READING}.items():
        assert not (rule.written and rule.refused_by), code
        assert severity(code, None) == "error" or severity(code, "1.1") == "warning"


@pytest.mark.parametrize(
    "content",
    [
        spec(),
        node(type="c", major=195, minor=0, permissions="rw", uid=0),
        mount(type="tmpfs", host_path="tmpfs", options=("size=1m",)),
        hook(timeout=1, args=("h", "-v"), env=("A=b",)),
        spec(ContainerEdits(intel_rdt=IntelRdt(clos_id="/"))),
        spec(annotations={"acme.io/a": "b" * 1000}),
        interfaces(("eth0", "eth1"), ("eth1", "eth0")),
        kind("ACME.io", "wid.get"),
    ],
)
def test_what_is_right_has_no_findings(content: Spec) -> None:
    assert validate(content) == ()


def test_all_mistakes_are_found_in_one_pass_and_in_order() -> None:
    wrong = spec(
        ContainerEdits(env=("A",), mounts=(Mount(host_path="", container_path="c"),)),
        kind=Kind(vendor="-", class_name="-"),
        version="5",
    )
    assert [finding.code for finding in validate(wrong) if finding.severity == "error"] == [
        "unknown-version",
        "vendor-name",
        "class-name",
        "env-entry",
        "mount",
        "relative-path",
        "mount-not-bind",
    ]


def test_a_finding_is_one_line_for_people() -> None:
    (finding,) = validate(spec(ContainerEdits(env=("A",))))
    assert str(finding) == f"error: {EDITS}.env[0]: 'A' is not NAME=VALUE [env-entry]"


def test_a_finding_cannot_move_the_cursor() -> None:
    (finding,) = (one for one in validate(spec(annotations={"\x1b[2J": "x"})) if one.code == "annotation-key")
    assert "\x1b" not in str(finding)
    assert "annotations[\\x1b[2J]" in str(finding)


@COSTLY
@given(spec=SPECS)
def test_what_may_be_written_is_right_to_every_reader(spec: Spec) -> None:
    for semantics in (None, "1.1", "main"):
        assert all(finding.severity == "warning" for finding in validate(spec, semantics))
