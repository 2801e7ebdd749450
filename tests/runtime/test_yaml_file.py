"""YAML that people write: a key twice is an error, and a text is quoted only where its author reads the message."""

import ast
from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.driver.runtime.yaml_file import NotYamlError, RepeatedKeyError, parse_manifests, parse_yaml

DRIVER = Path(__file__).parents[2] / "driver"
PARSERS = {"load", "load_all", "safe_load", "safe_load_all", "full_load", "unsafe_load", "parse", "compose"}
ELSEWHERE = {"local/apiserver/registry/patch.py"}
"""Bodies of requests to the embedded API server, read as kube-apiserver reads them: of a key twice the last counts."""

KEYS = st.sampled_from(["a", "b", "c"])
TREES = st.recursive(
    st.integers(0, 9) | st.text("xyz", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)


class Settings(msgspec.Struct, rename="camel"):
    mig_mode: str = ""


@pytest.mark.parametrize(
    ("text", "key", "lines"),
    [
        ("a: 1\nb: 2\na: 1\n", "a", (1, 3)),
        ("x:\n- y: {a: 1,\n      a: 2}\n", "a", (2, 3)),
        ('{"a": 1,\n "b": {"c": 1, "c": 2}}', "c", (2, 2)),
        ("a: 1\n'a': 2\n", "a", (1, 2)),
        ("1: a\n'1': b\n", "1", (1, 2)),
        ("? {a: 1, a: 2}\n: x\n", "a", (1, 1)),
        ("x: &x {a: 1}\ny:\n  <<: *x\n  b: 1\n  b: 2\n", "b", (4, 5)),
        ("a: 1\n---\nb: 1\nb: 1\n", "b", (3, 4)),
    ],
)
def test_a_key_that_occurs_twice_in_an_object_is_an_error_with_both_lines(
    text: str, key: str, lines: tuple[int, int]
) -> None:
    with pytest.raises(RepeatedKeyError) as caught:
        parse_manifests(text)
    assert (caught.value.key, (caught.value.first, caught.value.second)) == (key, lines)


@pytest.mark.parametrize(
    "text", ["a: &x {a: 1}\nb: {a: 2, c: *x}\n", "x: &x {a: 1}\ny: {<<: *x, a: 2}\n", "- {a: 1}\n- {a: 1}\n"]
)
def test_one_key_in_two_objects_is_none(text: str) -> None:
    assert parse_manifests(text) == [yaml.safe_load(text)]


def test_aliases_that_would_be_a_billion_objects_are_checked_once() -> None:
    levels = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 30))
    assert len(parse_manifests(f"l0: &l0 {{a: 1}}\n{levels}")[0]) == 30


@given(TREES)
def test_whatever_has_no_key_twice_is_read_as_pyyaml_reads_it(tree: object) -> None:
    text = yaml.safe_dump_all([tree, tree])
    assert parse_manifests(text) == [tree, tree]
    assert parse_yaml(yaml.safe_dump(tree).encode()) == tree


def test_a_file_of_somebody_else_shows_no_key_but_those_of_the_settings() -> None:
    with pytest.raises(NotYamlError, match="has key 'migMode' twice in one object, in line 1 and line 2: remove one"):
        parse_yaml(b"migMode: a\nmigMode: b\n", Settings)
    with pytest.raises(NotYamlError, match=r"^has a key twice in one object, in line 1 and line 2: remove one$"):
        parse_yaml(b"hunter2: a\nhunter2: b\n", Settings)


def test_no_other_module_of_the_programs_parses_yaml() -> None:
    found = set[str]()
    for path in DRIVER.rglob("*.py"):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "yaml." in text else ():
            is_yaml = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "yaml"
            if is_yaml and isinstance(node, ast.Attribute) and node.attr in PARSERS:
                found.add(str(path.relative_to(DRIVER)))
    assert found == ELSEWHERE
