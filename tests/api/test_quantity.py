"""Quantities follow ``k8s.io/apimachinery/pkg/api/resource``."""

import pickle
import re
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kerf_dra.api.errors import InvalidQuantityError
from kerf_dra.api.model.quantity import NANO, Quantity
from tests.strategies import QUANTITIES

CANONICAL = [
    # text, as the API server prints it back
    ("0", "0"),
    ("-0", "0"),
    ("5", "5"),
    ("+5", "5"),
    (".5", "500m"),
    ("5.", "5"),
    ("1000", "1k"),
    ("1024", "1024"),
    ("1Ki", "1Ki"),
    ("1.5Gi", "1536Mi"),
    ("10240Ki", "10Mi"),
    ("0.1Ki", "102400m"),
    ("1023", "1023"),
    ("500m", "500m"),
    ("1500m", "1500m"),
    ("1e3", "1e3"),
    ("12E6", "12e6"),
    ("3e-3", "3e-3"),
    ("1E", "1E"),
    ("1Ei", "1Ei"),
    ("100000", "100k"),
    ("-1.5k", "-1500"),
    ("0.0000000001", "1n"),
    ("-0.0000000001", "-1n"),
    ("1.0000000001", "1000000001n"),
]

NO_QUANTITIES = [
    "",
    " ",
    "Gi",
    "1 Gi",
    "1GiB",
    "1gi",
    "1K",
    "1e",
    "1e3Ki",
    "0x10",
    "1_000",
    "१",
    "--1",
    ".",
    "1e99999",
    "9" * 500,
]


@pytest.mark.parametrize(("text", "canonical"), CANONICAL)
def test_a_quantity_prints_in_kubernetes_canonical_form(text: str, canonical: str) -> None:
    assert str(Quantity(text)) == canonical


@pytest.mark.parametrize("text", NO_QUANTITIES)
def test_a_text_that_is_no_quantity_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidQuantityError, match="is not a quantity"):
        Quantity(text)


def test_equality_and_hash_go_by_value_not_by_spelling() -> None:
    assert Quantity("1Gi") == Quantity("1073741824") == Quantity(2**30)
    assert len({Quantity("1k"), Quantity("1000"), Quantity("1e3")}) == 1
    assert Quantity("1Gi") != "1Gi"


def test_a_quantity_cannot_be_changed() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        Quantity("1").nano = 5


def test_whole_numbers_round_up_like_value_in_go() -> None:
    assert (int(Quantity("1.2")), int(Quantity("3")), int(Quantity("1m"))) == (2, 3, 1)


@example(Quantity.of_bytes(5000))  # printed without a suffix, which is read as decimal: 5k, as in Go
@given(QUANTITIES)
def test_what_is_printed_reads_back_as_the_same_amount(quantity: Quantity) -> None:
    read = Quantity(str(quantity))
    assert read == quantity
    assert str(Quantity(str(read))) == str(read)
    assert pickle.loads(pickle.dumps(quantity)) == quantity


@given(QUANTITIES, QUANTITIES)
def test_order_and_arithmetic_are_those_of_exact_numbers(left: Quantity, right: Quantity) -> None:
    exact_left, exact_right = Fraction(left.nano, NANO), Fraction(right.nano, NANO)
    assert (left < right, left <= right, left > right, left >= right) == (
        exact_left < exact_right,
        exact_left <= exact_right,
        exact_left > exact_right,
        exact_left >= exact_right,
    )
    assert Fraction((left + right).nano, NANO) == exact_left + exact_right
    assert Fraction((left - right).nano, NANO) == exact_left - exact_right
    assert (-left + left) == Quantity("0")
    assert not (left - left)
    assert left * 3 == left + left + left


@given(st.text(max_size=12))
def test_arbitrary_text_is_a_quantity_or_our_error(text: str) -> None:
    try:
        Quantity(text)
    except InvalidQuantityError:
        return


@pytest.mark.parametrize(
    ("text", "meant"),
    [("20GB", "20G or 20Gi"), ("20g", "20G or 20Gi"), ("1.5 tib", "1.5T or 1.5Ti"), ("512MiB", "512M or 512Mi")],
)
def test_bytes_as_people_write_them_elsewhere_are_named_with_the_suffixes_of_kubernetes(text: str, meant: str) -> None:
    with pytest.raises(InvalidQuantityError, match=f"; did you mean {re.escape(meant)}\\?$"):
        Quantity(text)


@pytest.mark.parametrize("text", ["20X", "GB", "1gbb", "x20GB"])
def test_of_other_texts_nothing_is_guessed(text: str) -> None:
    with pytest.raises(InvalidQuantityError, match=r"such as 500m, 16, 20Gi or 1e3$"):
        Quantity(text)
