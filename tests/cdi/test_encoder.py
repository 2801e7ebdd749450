"""Written specs: complete, in one order, and read the same by every parser."""

import json
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.cdi import (
    ContainerEdits,
    Device,
    DeviceNode,
    IntelRdt,
    InvalidSpecError,
    Kind,
    Mount,
    Spec,
    encode_json,
    encode_yaml,
    load,
    minimum_version,
)
from kerf_dra.cdi.document.encoder import to_document, to_json, to_yaml
from tests.cdi.strategies import SPECS
from tests.conftest import COSTLY

KIND = Kind(vendor="acme.io", class_name="widget")
PLAIN = Device(name="w", container_edits=ContainerEdits(env=("A=b",)))
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("ab\x85é: -#'\"", max_size=5),
    lambda items: st.lists(items, max_size=3) | st.dictionaries(st.text("ab:-é ", max_size=3), items, max_size=3),
    max_leaves=8,
)


def env(*entries: str) -> Spec:
    return Spec(kind=KIND, devices=(Device(name="w", container_edits=ContainerEdits(env=entries)),))


@COSTLY
@given(spec=SPECS)
def test_json_and_yaml_read_back_as_they_were_meant(spec: Spec) -> None:
    declared = replace(spec, version=str(minimum_version(spec)))
    assert load(encode_json(spec)) == declared
    assert load(encode_yaml(spec)) == declared


@COSTLY
@given(spec=SPECS)
def test_other_parsers_read_the_same(spec: Spec) -> None:
    plain = to_document(spec)
    assert json.loads(encode_json(spec)) == plain
    assert yaml.load(encode_json(spec), yaml.CSafeLoader) == plain
    assert yaml.load(encode_yaml(spec), yaml.CSafeLoader) == plain
    assert yaml.safe_load(encode_yaml(spec)) == plain


@COSTLY
@given(spec=SPECS)
def test_equal_specs_give_equal_bytes_and_a_second_round_changes_nothing(spec: Spec) -> None:
    data = encode_json(spec)
    assert encode_json(load(data)) == data
    assert encode_yaml(load(data)) == encode_yaml(spec)
    shuffled = replace(spec, annotations=dict(reversed(list(spec.annotations.items()))))
    assert encode_json(shuffled) == data


@COSTLY
@given(spec=SPECS)
def test_there_is_never_a_null(spec: Spec) -> None:
    def nulls(value: Any) -> bool:
        items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return value is None or any(map(nulls, items))

    assert not nulls(to_document(spec))


@pytest.mark.parametrize(
    ("character", "written"),
    [
        ("\U0001f600", "\U0001f600"),
        ("\x7f", "\\u007f"),
        ("\x85", "\\u0085"),
        ("\u2028", "\\u2028"),
        ("\ufeff", "\\ufeff"),
        ("\uffff", "\\uffff"),
        ("\x01", "\\u0001"),
        ("/", "/"),
        ("é", "é"),
    ],
)
def test_characters_that_parsers_disagree_about_are_written_so_that_they_agree(character: str, written: str) -> None:
    for data in (encode_json(env(f"A={character}")), encode_yaml(env(f"A={character}"))):
        assert f'"A={written}"' in data.decode()


def test_a_document_for_people() -> None:
    node = DeviceNode(path="/dev/w0", type="c", major=195, minor=0, permissions="rw", uid=0)
    mount = Mount(host_path="/lib/w", container_path="/lib/w", options=("ro", "bind"))
    device = Device(
        name="w0",
        annotations={"b": "2", "a": "1"},
        container_edits=ContainerEdits(
            device_nodes=(node,), mounts=(mount,), intel_rdt=IntelRdt(), additional_gids=(5,)
        ),
    )
    assert encode_yaml(Spec(kind=KIND, devices=(device,))).decode() == (
        "---\n"
        'cdiVersion: "0.7.0"\n'
        'kind: "acme.io/widget"\n'
        "devices:\n"
        '  - name: "w0"\n'
        "    annotations:\n"
        '      "a": "1"\n'
        '      "b": "2"\n'
        "    containerEdits:\n"
        "      deviceNodes:\n"
        '        - path: "/dev/w0"\n'
        '          type: "c"\n'
        "          major: 195\n"
        '          permissions: "rw"\n'
        "          uid: 0\n"
        "      mounts:\n"
        '        - hostPath: "/lib/w"\n'
        '          containerPath: "/lib/w"\n'
        "          options:\n"
        '            - "ro"\n'
        '            - "bind"\n'
        "      intelRdt: {}\n"
        "      additionalGids:\n"
        "        - 5\n"
    )


def test_a_declared_version_is_kept_without_its_v() -> None:
    assert to_document(replace(env("A=b"), version="v0.6.0"))["cdiVersion"] == "0.6.0"
    assert to_document(env("A=b"))["cdiVersion"] == "0.3.0"


@pytest.mark.parametrize(
    "spec",
    [
        env("A"),
        Spec(kind=KIND, devices=()),
        Spec(kind=Kind(vendor="a", class_name="widget"), devices=(PLAIN,)),
        replace(env("A=b"), version="2.0.0"),
        env("A=\ud83d"),
    ],
)
def test_what_is_wrong_is_not_written(spec: Spec) -> None:
    for encode in (encode_json, encode_yaml):
        with pytest.raises(InvalidSpecError) as caught:
            encode(spec)
        assert any(finding.severity == "error" for finding in caught.value.findings)
        assert str(spec.kind) in str(caught.value)


@given(value=JSON_VALUES)
def test_any_json_value_can_be_shown(value: Any) -> None:
    assert json.loads(to_json(value)) == value
    assert yaml.safe_load(to_yaml(value)) == value
