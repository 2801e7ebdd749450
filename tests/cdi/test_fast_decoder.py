"""The fast decoder comes to the same spec as the full decoder, or leaves the document to it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.cdi import Spec, encode_json, encode_yaml, validate
from kerf_dra.cdi.document.decoder import read_fully
from kerf_dra.cdi.document.fast_decoder import decode_fast
from kerf_dra.cdi.document.rules import READING
from kerf_dra.cdi.document.validation import has_no_findings
from tests.cdi.strategies import SPECS
from tests.conftest import COSTLY
from tests.oracle.cdi.documents import generate_document
from tests.oracle.cdi.mutations import generate_mutated_document

PLAIN = b"""---
# One card
cdiVersion: "0.6.0"
kind: acme.io/widget
annotations:
  note: 'it is'
devices:
- name: w1
  containerEdits:
    env:
      - A=b
      - "C=d e"

    deviceNodes:
      - path: /dev/w1
        type: c
        major: 195
        uid: 0
    intelRdt:
      enableMonitoring: true
"""
JSON = (
    b'{"cdiVersion":"0.7.0","kind":"acme.io/widget","devices":[{"name":"w1","containerEdits":'
    b'{"env":["A=b"],"additionalGids":[5],"intelRdt":{"enableMonitoring":false}}}]}'
)


def assert_alike(data: bytes) -> None:
    spec = decode_fast(data)
    if spec is not None:
        document_ = read_fully(data, None)
        assert document_.spec == spec
        assert not {finding.code for finding in document_.findings} & READING.keys()
        assert has_no_findings(spec) is (document_.findings == ())


@pytest.mark.parametrize("data", [PLAIN, JSON])
def test_a_plain_document_is_skimmed(data: bytes) -> None:
    assert decode_fast(data) is not None
    assert_alike(data)


@pytest.mark.parametrize(
    ("there", "instead"),
    [
        (b"w1", "wé".encode()),
        (b"w1", b"\\x77"),
        (b"kind", b"Kind"),
        (b"kind: acme.io/widget", b"kind: acme.io/widget\nkind: acme.io/widget"),
        (b"kind: acme.io/widget\n", b""),
        (b"uid: 0", b"uid: -0"),
        (b"uid: 0", b"uid: 00"),
        (b"uid: 0", b"uid: 1.0"),
        (b"uid: 0", b"uid: -1"),
        (b"uid: 0", b"uid: 4294967296"),
        (b"uid: 0", b"uid: '0'"),
        (b"uid: 0", b"uid: true"),
        (b"uid: 0", b"uid: ~"),
        (b"uid: 0", b"uid : 0"),
        (b"uid: 0", b"xid: 0"),
        (b"- A=b", b"- a?b"),
        (b"- A=b", b"- on"),
        (b"- A=b", b"- &a A=b"),
        (b"- A=b", b"- !!str A=b"),
        (b"- A=b", b"- 5"),
        (b"- A=b", b"-\tA=b"),
        (b"- A=b", b"-"),
        (b"- A=b", b"- "),
        (b"- A=b", b"-\n        A=b"),
        (b"- A=b", b"- A=b\n        c"),
        (b"- A=b", b"- A=b\n        - c"),
        (b"- A=b", b"- A=b\n        c: d"),
        (b"- A=b", b"- A=b\n      c: d"),
        (b"- A=b", b"- A=b\n     - c"),
        (b"- A=b", b"- A=b # c"),
        (b"- A=b", b"- 'A=''b'"),
        (b"- A=b", b'- "A=b\n        c"'),
        (b"- A=b", b"- |\n        A=b"),
        (b"- A=b", b"- [A=b]"),
        (b"- A=b", b"- {A: b}"),
        (b"- A=b", b"- - A=b"),
        (b"- A=b", b"- A: b"),
        (b"- A=b", b"- 'A=\x01'"),
        (b"- A=b", b"- 'A=\r'"),
        (b"    env:\n", b"    env:\n    mounts:\n"),
        (b"    env:\n", b"    env: &a\n"),
        (b"    env:\n", b"    env:\n    ...\n"),
        (b"  note:", b"  <<:"),
        (b"  note:", b"  on:"),
        (b"  note:", b"  5:"),
        (b"  note:", b"  [a]:"),
        (b"  note:", b"  'note':\n   "),
        (b"  note:", b'  "":\n  - '),
        (b"  note:", b"  note: a\n  'note':"),
        (b"  note: 'it is'", b"  note: 5"),
        (b"  note:", b"  " + b"n" * 1001 + b":"),
        (b"  note:", b"  - " + b"- " * 40 + b"note:"),
        (b"cdi", b"%YAML 1.1\n---\ncdi"),
        (b"true\n", b"true\n---\nx"),
        (b"true\n", b"true\nannotations:\n"),
        (PLAIN, b""),
        (PLAIN, b"a"),
        (PLAIN, b"- a"),
        (PLAIN, b"# nothing"),
    ],
)
def test_what_is_doubtful_in_yaml_is_left_to_the_long_way(there: bytes, instead: bytes) -> None:
    assert there in PLAIN
    assert decode_fast(PLAIN.replace(there, instead)) is None


@pytest.mark.parametrize(
    ("there", "instead"),
    [
        (b'"kind":', b'"kind" :'),
        (b'"kind":', b'"kind":"x","kind":'),
        (b"A=b", b"A=\\u0062"),
        (b"A=b", b"A=\x7f"),
        (b"5", b"5.0"),
        (b"5", b"-0"),
        (b"5", b"NaN"),
        (b"5", b"null"),
        (b"5", b"9" * 5000),
        (b"false", b"0"),
        (b"}}}]}", b"}}}]}{}"),
        (JSON, b"{" * 5000),
    ],
)
def test_what_is_doubtful_in_json_is_left_to_the_long_way(there: bytes, instead: bytes) -> None:
    assert there in JSON
    assert decode_fast(JSON.replace(there, instead)) is None


@COSTLY
@given(spec=SPECS)
def test_what_we_write_is_read_alike_both_ways(spec: Spec) -> None:
    for data in (encode_json(spec), encode_yaml(spec)):
        assert_alike(data)
        is_plain = data.isascii() and not any(mark in data for mark in (b"\\", b" :", b": {}\n", b": []\n"))
        if is_plain and not validate(spec):
            assert decode_fast(data) is not None


@given(seed=st.integers(0, 2**64 - 1))
def test_any_document_is_read_alike_both_ways(seed: int) -> None:
    assert_alike(generate_document(seed).encode())
    assert_alike(generate_mutated_document(seed))
