"""Label and field selectors, in the grammar of Kubernetes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.driver.local.apiserver.meta.label_selectors import parse_fields, parse_labels, selector_of
from kerf_dra.driver.local.apiserver.meta.status_errors import ApiStatusError

LABELS = {"a": "1", "b": "x", "example.com/role": "gpu", "empty": ""}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("a=1", True),
        ("a==1", True),
        ("a=2", False),
        ("a!=2", True),
        ("missing!=2", True),
        ("a", True),
        ("missing", False),
        ("!missing", True),
        ("!a", False),
        ("a in (0, 1)", True),
        ("a in (2)", False),
        ("a notin (2)", True),
        ("a notin (1)", False),
        ("missing notin (1)", True),
        ("a>0", True),
        ("a<1", False),
        ("b>0", False),
        ("a=1,b=x", True),
        ("a=1,b=y", False),
        ("example.com/role=gpu", True),
        ("empty=", True),
        ("empty in (,x)", True),
        (" a = 1 , b in ( x ) ", True),
    ],
)
def test_a_label_selector_matches_as_kubernetes_says(text: str, matches: bool) -> None:
    assert parse_labels(text).matches(LABELS) is matches


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a===b", "found '=', expected: identifier"),
        ("a in b", "found 'b', expected: '('"),
        ("a in (b", "found '', expected: ')'"),
        ("a b", "found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a>x", "found 'x', expected: integer"),
        ("=a", "found '=', expected: identifier"),
        ("a=b,", "found '', expected: identifier"),
        ("-a=b", "found '-a', expected: identifier"),
        ("a=-b", "found '-b', expected: identifier"),
        (f"{'k' * 64}=v", "expected: identifier"),
        (f"k={'v' * 64}", "expected: identifier"),
    ],
)
def test_a_bad_label_selector_is_refused_with_what_was_found(text: str, said: str) -> None:
    with pytest.raises(ApiStatusError, match=r"unable to parse requirement") as refusal:
        parse_labels(text)
    assert said in refusal.value.message
    assert refusal.value.code == 400


VALUES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,5}[a-z0-9])?", fullmatch=True)


@given(st.dictionaries(VALUES, VALUES, max_size=4), VALUES, VALUES)
def test_equality_and_inequality_are_opposites(labels: dict[str, str], key: str, value: str) -> None:
    assert parse_labels(f"{key}={value}").matches(labels) is not parse_labels(f"{key}!={value}").matches(labels)
    assert parse_labels(key).matches(labels) is not parse_labels(f"!{key}").matches(labels)
    assert parse_labels(f"{key} in ({value})").matches(labels) is not parse_labels(f"{key} notin ({value})").matches(
        labels
    )


@given(st.dictionaries(VALUES, VALUES, min_size=1, max_size=4))
def test_a_selector_of_all_labels_matches_exactly_objects_that_have_them(labels: dict[str, str]) -> None:
    selector = parse_labels(",".join(f"{key}={value}" for key, value in labels.items()))
    assert selector.matches({**labels, "more": "1"})
    missing = dict(list(labels.items())[1:])
    assert not selector.matches(missing)


@pytest.mark.parametrize(
    ("text", "fields", "matches"),
    [
        ("", {}, True),
        ("metadata.name=p", {"metadata.name": "p"}, True),
        ("metadata.name==p", {"metadata.name": "q"}, False),
        ("spec.nodeName!=", {"spec.nodeName": "n"}, True),
        ("spec.nodeName=", {"spec.nodeName": ""}, True),
        ("a=1,b!=2", {"a": "1", "b": "3"}, True),
        (r"a=x\,y", {"a": "x,y"}, True),
        (r"a=x\=y", {"a": "x=y"}, True),
    ],
)
def test_a_field_selector_matches_as_kubernetes_says(text: str, fields: dict[str, str], matches: bool) -> None:
    assert parse_fields(text).matches(fields) is matches


def test_a_field_selector_without_operator_is_refused() -> None:
    with pytest.raises(ApiStatusError, match="invalid selector"):
        parse_fields("metadata.name")


def test_a_field_that_the_kind_cannot_be_selected_by_is_refused_in_its_words() -> None:
    readers = {"metadata.name": lambda body: str(body["metadata"]["name"])}
    with pytest.raises(ApiStatusError, match=r"no such field: spec\.x"):
        selector_of("", "spec.x=1", readers, unsupported="no such field: {}")
    selector = selector_of("", "metadata.name=p", readers, unsupported="")
    assert selector.matches({"metadata": {"name": "p"}})
    assert not selector.matches({"metadata": {"name": "q"}})
