"""YAML that people write: a key twice is an error, and a text is quoted only where its author reads the message."""

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.api.model.json_limits import MAX_LEVELS
from kerf_dra.driver.runtime.documents.yaml_file import parse_manifests, parse_request_body, parse_yaml
from kerf_dra.driver.runtime.documents.yaml_loader import MAX_VALUES, NotYamlError, RepeatedKeyError

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


@pytest.mark.parametrize(("levels", "is_read"), [(5, True), (6, False)])
def test_aliases_count_with_what_they_stand_for(levels: int, is_read: bool) -> None:
    text = "l0: &l0 {a: 1}\n" + "".join(
        f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, levels + 1)
    )
    if is_read:
        assert len(parse_manifests(text)[0]) == levels + 1
    else:
        with pytest.raises(NotYamlError, match=f"has more than {MAX_VALUES} values, aliases expanded, in line 7"):
            parse_manifests(text)


@pytest.mark.parametrize("levels", [MAX_LEVELS, MAX_LEVELS + 1])
@pytest.mark.parametrize("last", ["1", "*a"])
def test_levels_count_up_to_the_limit_also_those_of_aliases(levels: int, last: str) -> None:
    inside = levels - 1 - (last == "*a")  # the mapping is a level, the alias' value another
    text = f"x: &a [1]\ny: {'[' * inside}{last}{']' * inside}"
    if levels <= MAX_LEVELS:
        assert parse_manifests(text)[0]["x"] == [1]
    else:
        with pytest.raises(NotYamlError, match="is nested more than 100 levels deep, in line 2"):
            parse_manifests(text)


@pytest.mark.parametrize(("digits", "is_read"), [(100, True), (101, False)])
def test_a_number_has_a_hundred_digits_at_most_and_a_text_as_many_as_it_likes(digits: int, is_read: bool) -> None:
    assert parse_manifests(f"a: '{'1' * digits}'") == [{"a": "1" * digits}]
    if is_read:
        assert parse_manifests(f"a: {'1' * digits}") == [{"a": int("1" * digits)}]
    else:
        with pytest.raises(NotYamlError, match="has a number of more than 100 characters, in line 1"):
            parse_manifests(f"a: {'1' * digits}")


def test_settings_have_fewer_values_than_manifests() -> None:
    text = b"- a\n" * 100_001
    assert len(parse_manifests(text)[0]) == 100_001
    with pytest.raises(NotYamlError, match="has more than 100000 values"):
        parse_yaml(text)


def test_an_anchor_may_be_given_again_as_yaml_has_it() -> None:
    assert parse_manifests("a: &x 1\nb: &x 2\nc: *x\n---\nd: &x 3") == [{"a": 1, "b": 2, "c": 2}, {"d": 3}]


def test_an_anchor_of_another_document_is_none() -> None:
    with pytest.raises(NotYamlError, match="found undefined alias 'x'"):
        parse_manifests("a: &x 1\n---\nb: *x")


def test_of_a_request_the_first_document_and_of_its_keys_the_last_count() -> None:
    assert parse_request_body(b"a: 1\na: 2\n---\nb: 1") == {"a": 2}
    assert parse_request_body(b"") is None
    with pytest.raises(NotYamlError, match="is nested more than 100 levels deep"):
        parse_request_body(b"[" * 30_000)


@pytest.mark.parametrize("text", ["a:\n\tb: 1\n", b"a:\n  b: 1\n\tc: 2\n"])
def test_a_tab_is_named_with_what_to_write(text: str | bytes) -> None:
    with pytest.raises(NotYamlError, match=r"line \d, column 1; it is a tab: indent with spaces$"):
        parse_manifests(text)
    with pytest.raises(NotYamlError) as raised:
        parse_manifests("a: [\n")
    assert "tab" not in str(raised.value)


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
