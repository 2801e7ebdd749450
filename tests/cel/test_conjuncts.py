"""Selectors split into conjuncts, which together are equivalent to the selector."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.driver.cel.compile import compile_selector
from kerf_dra.driver.cel.conjuncts import split_conjuncts
from tests.allocation.builders import DRIVER, device

MODEL = f'device.attributes["{DRIVER}"].model'


@pytest.mark.parametrize(
    ("expression", "parts"),
    [
        ("a", ["a"]),
        ("a && b", ["a", "b"]),
        ("((a) && (b && c))", ["a", "b", "c"]),
        ("(a) && (b)", ["a", "b"]),
        ("a || b && c", ["a || b && c"]),
        ("a && (b || c) && d", ["a", "b || c", "d"]),
        ("a ? b && c : d", ["a ? b && c : d"]),
        ('a == "x && y" && b', ['a == "x && y"', "b"]),
        ("a == 'it\\'s && x' && b", ["a == 'it\\'s && x'", "b"]),
        ('a["x && (y"] && f(b && c)', ['a["x && (y"]', "f(b && c)"]),
        ("a &&\n  // not: x && y\n  b", ["a", "// not: x && y\n  b"]),
        ("a && b  // c || (d", ["a", "b"]),
        ("!(a && b)", ["!(a && b)"]),
        ("cel.bind(x, d, x.a && x.b)", ["cel.bind(x, d, x.a && x.b)"]),
    ],
)
def test_only_the_outermost_ands_are_taken_apart(expression: str, parts: list[str]) -> None:
    assert [condition.expression for condition in split_conjuncts(expression)] == parts


def test_what_a_condition_reads_is_known() -> None:
    both = f'{MODEL} == "h100" && device.capacity["{DRIVER}"].memory.compareTo(quantity("1Gi")) >= 0'
    assert [[read.id for read in condition.reads] for condition in split_conjuncts(both)] == [["model"], ["memory"]]


ATOMS = st.sampled_from(["a", "b", "c", "d"]).map(lambda name: f'device.attributes["{DRIVER}"].{name}')
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["&&", "||"]), inner).map(" ".join),
        st.tuples(inner, inner, inner).map(lambda three: "({}) ? ({}) : ({})".format(*three)),
        inner.map(lambda each: f"({each})"),
        inner.map(lambda each: f"!({each})"),
    ),
    max_leaves=8,
)


@given(EXPRESSIONS, st.fixed_dictionaries(dict.fromkeys("abcd", st.booleans())))
def test_all_conditions_hold_exactly_when_the_selector_does(expression: str, attributes: dict[str, bool]) -> None:
    subject = device("d", attributes=attributes)
    parts = split_conjuncts(expression)
    together = all(compile_selector(part.expression).matches(DRIVER, subject) for part in parts)
    assert together == compile_selector(expression).matches(DRIVER, subject)
