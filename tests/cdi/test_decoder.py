"""Documents are decoded as readers in Go decode them, and every finding has its place.

What the Go library answers to hundreds of documents is in ``test_go_verdicts.py``; here is what it does not say: paths,
lines, and that nothing can harm who reads.
"""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kerf_dra.cdi import (
    ContainerEdits,
    Device,
    DeviceNode,
    Hook,
    IntelRdt,
    InvalidSpecError,
    Kind,
    Mount,
    NetDevice,
    Spec,
    encode_json,
    load,
    read,
)
from kerf_dra.cdi.document import document_tree, yaml_parser
from kerf_dra.cdi.document.rules import CONTENT, READING
from tests.cdi.strategies import SPECS
from tests.conftest import COSTLY

DATA = Path(__file__).parents[1] / "data" / "cdi"


def of(name: str) -> bytes:
    return (DATA / name).read_bytes()


GPU = Spec(
    version="0.5.0",
    kind=Kind(vendor="acme.io", class_name="gpu"),
    container_edits=ContainerEdits(
        hooks=(Hook(hook_name="createContainer", path="/usr/bin/acme-hook", args=("acme-hook", "link"), timeout=5),)
    ),
    devices=(
        Device(
            name="0",
            container_edits=ContainerEdits(
                env=("ACME_VISIBLE=0",),
                device_nodes=(
                    DeviceNode(path="/dev/acme0", host_path="/dev/acme/0", permissions="rw"),
                    DeviceNode(path="/dev/acmectl", type="c", major=195, minor=255, file_mode=0o660, uid=0, gid=44),
                ),
                mounts=(
                    Mount(host_path="/usr/lib/acme", container_path="/usr/lib/acme", options=("ro", "nosuid", "bind")),
                ),
            ),
        ),
    ),
)
EVERYTHING = Spec(
    version="1.1.0",
    kind=Kind(vendor="acme.io", class_name="card.v2"),
    annotations={"acme.io/made-by": "nobody"},
    container_edits=ContainerEdits(env=("ACME=all",)),
    devices=(
        Device(
            name="card:0",
            annotations={"acme.io/slot": "3"},
            container_edits=ContainerEdits(
                env=("ACME_CARD=0", "ACME_EMPTY="),
                device_nodes=(
                    DeviceNode(
                        path="/dev/card0",
                        host_path="/dev/cards/0",
                        type="b",
                        major=8,
                        minor=1,
                        file_mode=0o660,
                        permissions="rwm",
                        uid=1,
                        gid=2,
                    ),
                ),
                net_devices=(NetDevice(host_interface_name="ens1", name="net0"),),
                hooks=(
                    Hook(
                        hook_name="poststop",
                        path="/usr/bin/acme-clean",
                        args=("acme-clean", "--all"),
                        env=("LANG=C",),
                        timeout=30,
                    ),
                ),
                mounts=(Mount(host_path="tmpfs", container_path="/scratch", type="tmpfs", options=("size=1g",)),),
                intel_rdt=IntelRdt(
                    clos_id="gold",
                    l3_cache_schema="L3:0=f",
                    mem_bw_schema="MB:0=50",
                    schemata=("L2:0=3",),
                    enable_monitoring=True,
                ),
                additional_gids=(44, 109),
            ),
        ),
    ),
)


@pytest.mark.parametrize(("name", "spec"), [("gpu.json", GPU), ("everything.yaml", EVERYTHING)])
def test_a_document_without_findings_is_read_whole(name: str, spec: Spec) -> None:
    document = read(of(f"good/{name}"), semantics=None)
    assert document.spec == spec
    assert document.findings == ()
    assert load(of(f"good/{name}")) == spec


FINDINGS: dict[str, list[tuple[int | None, str, str]]] = {
    "good/smallest.yaml": [],
    "good/as-read-by-some.yaml": [
        (None, "ignored-rest", ""),
        (2, "key-case", "cdiversion"),
        (4, "bare-scalar", ""),
        (4, "bare-scalar", "annotations[true]"),
        (6, "bare-scalar", "devices[0].name"),
        (9, "converted-number", "devices[0].containerEdits.deviceNodes[0].major"),
        (9, "converted-number", "devices[0].containerEdits.deviceNodes[0].fileMode"),
        (9, "converted-number", "devices[1].containerEdits.deviceNodes[0].major"),
        (9, "converted-number", "devices[1].containerEdits.deviceNodes[0].fileMode"),
        (10, "explicit-tag", ""),
        (12, "merge-key", ""),
        (15, "null-text", "devices[1].containerEdits.mounts[0].options[1]"),
    ],
    "bad/wrong-everywhere.yaml": [
        (4, "device-name", "devices[0].name"),
        (6, "env-entry", "devices[0].containerEdits.env[0]"),
        (8, "device-path", "devices[0].containerEdits.deviceNodes[0].path"),
        (9, "wrong-type", "devices[0].containerEdits.deviceNodes[0].fileMode"),
        (11, "unknown-field", "devices[0].containerEdits.deviceNodes[1].permission"),
        (13, "null-item", "devices[0].containerEdits.mounts[0]"),
        (13, "mount", "devices[0].containerEdits.mounts[0].hostPath"),
        (13, "mount", "devices[0].containerEdits.mounts[0].containerPath"),
        (16, "wrong-type", "devices[0].containerEdits.mounts[1].options"),
        (18, "device-empty-edits", "devices[1].containerEdits"),
    ],
    "good/spellings.yaml": [
        (3, "key-case", "Kind"),
        (4, "two-spellings", "kind"),
        (6, "key-case", "Devices"),
        (11, "two-spellings", "devices"),
        (16, "key-case", "devices[0].containerEdits.ENV"),
        (17, "two-spellings", "devices[0].containerEdits.env"),
        (17, "null-text", "devices[0].containerEdits.env[0]"),
    ],
    "bad/twice.json": [(6, "duplicate-key", ""), (6, "duplicate-device", "devices[1].name")],
    "bad/unfinished.json": [(3, "syntax", "")],
    "bad/escaped-slash.json": [(2, "syntax", "")],
    "bad/empty.yaml": [(None, "empty-document", "")],
    "bad/list.yaml": [(1, "wrong-type", "")],
    "bad/old-monitoring.json": [(4, "unknown-field", "devices[0].containerEdits.intelRdt.enableCMT")],
    "bad/crashes-readers.json": [
        (3, "one-letter-name", "kind"),
        (4, "null-item", "devices[0].containerEdits.hooks[0]"),
        (4, "hook-name", "devices[0].containerEdits.hooks[0].hookName"),
        (4, "hook-path", "devices[0].containerEdits.hooks[0].path"),
    ],
}


@pytest.mark.parametrize("name", FINDINGS)
def test_every_mistake_of_a_document_is_found_on_its_line(name: str) -> None:
    document = read(of(name))
    # What is only advice about content has its own tests; of that, nothing here.
    found = [
        (finding.line, finding.code, finding.path)
        for finding in document.findings
        if finding.severity == "error" or finding.code in READING
    ]
    assert sorted(found, key=str) == sorted(FINDINGS[name], key=str)
    assert document.is_valid is name.startswith("good/")


def test_every_document_has_its_expectation() -> None:
    files = {str(file.relative_to(DATA)) for folder in ("good", "bad") for file in (DATA / folder).iterdir()}
    assert files == {*FINDINGS, "good/gpu.json", "good/everything.yaml"}


def test_findings_come_in_the_order_of_lines() -> None:
    lines = [finding.line or 0 for finding in read(of("bad/wrong-everywhere.yaml")).findings]
    assert lines == sorted(lines)


def test_readers_rewrite_what_is_not_quoted() -> None:
    document = read(of("good/as-read-by-some.yaml"))
    assert document.spec is not None
    assert [device.name for device in document.spec.devices] == ["1000", "b"]
    assert document.spec.annotations == {"true": "1"}
    assert document.spec.devices[1].container_edits.device_nodes[0].file_mode == 0o660
    assert document.spec.devices[1].container_edits.mounts[0].options == ("bind", "")


def test_two_spellings_of_a_key_are_one_value_on_top_of_the_other() -> None:
    document = read(of("good/spellings.yaml"))
    assert document.spec is not None
    assert str(document.spec.kind) == "acme.io/gpu"
    (device,) = document.spec.devices
    assert device.name == "b"
    assert device.annotations == {"x": "1", "y": "2"}
    assert device.container_edits.env == ("A=1", "B=2")
    assert device.container_edits.intel_rdt is None
    assert device.container_edits.device_nodes == (DeviceNode(path="/dev/a", type="c", uid=None),)


def test_a_refused_document_names_its_subject_and_every_error() -> None:
    with pytest.raises(InvalidSpecError) as caught:
        load(of("bad/wrong-everywhere.yaml"), subject="/etc/cdi/acme.yaml")
    message = str(caught.value)
    assert message.startswith("/etc/cdi/acme.yaml: error: line ")
    for finding in caught.value.findings:
        assert (str(finding) in message) is (finding.severity == "error")


def test_what_is_refused_can_still_be_looked_at() -> None:
    document = read(of("bad/old-monitoring.json"))
    assert not document.is_valid
    assert document.spec is not None
    assert document.spec.devices[0].name == "a"


def test_one_librarys_error_is_anothers_warning() -> None:
    data = of("good/gpu.json").replace(b'"rw"', b'"none"')
    assert not read(data, semantics="1.1").is_valid
    assert read(data, semantics="main").is_valid
    assert not read(data, semantics=None).is_valid


def with_options(options: str) -> bytes:
    return (
        "cdiVersion: 0.6.0\nkind: acme.io/gpu\ndevices:\n- name: a\n  containerEdits:\n    mounts:\n"
        f"    - {{hostPath: /h, containerPath: /c, options: {options}}}\n"
    ).encode()


HARMFUL = {
    "deep and long": b"{" * 240 + b"a: b, " * 20_000,
    "deep": b"[" * 100_000,
    "deep and closed": b'{"devices": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    "deep maps": b"{a: " * 3000,
    "deep blocks": b"".join(b" " * depth + b"a:\n" for depth in range(500)),
    "itself": b"a: &a {b: *a}\n",
    "merge of itself": b"a: &a\n  <<: *a\n",
    "not utf-8": b"\xff",
    "half utf-16": b"\xff\xfe\x00",
    "nothing but a mark": b"\xef\xbb\xbf",
    "nul": b"\0",
    "python object": b"!!python/object/apply:os.system ['exit 1']",
    "python name in a field": with_options("[!!python/name:os.system x]"),
    "huge integer": b"cdiVersion: " + b"9" * 10_000,
    "huge key": b"? " + b"k" * 100_000 + b"\n: v\n",
    "directive": b"%YAML 3.0\n--- a\n",
    "unknown tag handle": b"!x!y a\n",
}


@pytest.mark.parametrize("name", HARMFUL)
def test_harmful_documents_are_findings(name: str) -> None:
    document = read(HARMFUL[name])
    assert document.is_valid is (name == "python name in a field")


def test_a_document_of_aliases_that_multiply_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kerf_dra.cdi.document.decoder.MAX_VALUES", 1000)
    many = ", ".join(["&o {hostPath: /h, containerPath: /c, options: [a, b, c, d]}", *["*o"] * 200])
    data = f"cdiVersion: 0.6.0\nkind: acme.io/gpu\ndevices: [{{name: a, containerEdits: {{mounts: [{many}]}}}}]\n"
    (finding,) = read(data.encode()).findings
    assert finding.code == "too-large"


def test_a_document_of_merges_that_multiply_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kerf_dra.cdi.document.yaml_parser.MAX_VALUES", 100)
    data = "base: &b {" + ", ".join(f"k{i}: v" for i in range(60)) + "}\nlist:\n" + "- <<: *b\n" * 2
    assert [finding.code for finding in read(data.encode()).findings] == ["too-large"]


def test_a_very_large_file_is_refused_unread() -> None:
    for data in (b" " * (document_tree.MAX_BYTES + 1), of("good/gpu.json") + b" " * document_tree.MAX_BYTES):
        (finding,) = read(data).findings
        assert finding.code == "too-large"
    assert document_tree.MAX_VALUES < document_tree.MAX_BYTES


@given(data=st.binary(max_size=200))
@example(data=b"")
def test_any_bytes_give_findings_and_no_exception(data: bytes) -> None:
    document = read(data)
    assert not document.is_valid
    assert document.findings


@COSTLY
@given(spec=SPECS, start=st.integers(0), length=st.integers(0, 8), noise=st.binary(max_size=8))
def test_any_damage_gives_findings_and_no_exception(spec: Spec, start: int, length: int, noise: bytes) -> None:
    data = encode_json(spec)
    at = start % len(data)
    document = read(data[:at] + noise + data[at + length :])
    assert document.is_valid or any(finding.severity == "error" for finding in document.findings)
    assert all(finding.code in {*CONTENT, *READING} for finding in document.findings)


def test_a_text_with_tabs_needs_libyaml(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where PyYAML was built without it, such a document is refused, never misread."""
    tabs = of("good/gpu.json").replace(b"  ", b"\t")
    assert read(tabs).spec == GPU
    import yaml

    monkeypatch.setattr(yaml_parser, "_LOADER", yaml.SafeLoader)
    assert [finding.code for finding in read(tabs).findings] == ["syntax"]
    assert read(of("good/gpu.json")).spec == GPU
    assert read(b"\xef\xbb\xbf" + of("good/everything.yaml")).spec == EVERYTHING


def test_wrong_types_are_named() -> None:
    document = read(b"cdiVersion: [a]\nkind: {a: b}\ndevices: x\ncontainerEdits: yes\nannotations: 5\n")
    messages = {finding.path: finding.message for finding in document.findings if finding.code == "wrong-type"}
    assert messages == {
        "cdiVersion": "a text is needed, not a list",
        "kind": "a text is needed, not an object",
        "devices": "a list is needed, not a text",
        "containerEdits": "an object is needed, not true or false",
        "annotations": "an object is needed, not a number",
    }
