"""Semantic versions: the examples of semver.org, and Kubernetes' normalized reading."""

from itertools import pairwise

import pytest

from kerf_dra.api.model.semver import coerce_version, compare, parse_version, version_numbers

ASCENDING = [
    "0.9.9",
    "1.0.0-0",
    "1.0.0-2",
    "1.0.0-11",
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.beta",
    "1.0.0-beta",
    "1.0.0-beta.2",
    "1.0.0-beta.11",
    "1.0.0-rc.1",
    "1.0.0",
    "1.0.1-x",
    "1.0.1",
    "1.2.0",
    "1.10.0",
    "2.0.0",
]


@pytest.mark.parametrize(("lower", "higher"), list(pairwise(ASCENDING)))
def test_precedence_follows_semver_2(lower: str, higher: str) -> None:
    one, other = parse_version(lower), parse_version(higher)
    assert one is not None
    assert other is not None
    assert (compare(one, other), compare(other, one), compare(one, one)) == (-1, 1, 0)
    assert str(one) == lower


def test_build_metadata_does_not_count() -> None:
    assert parse_version("1.0.0-rc.1+build.5") == parse_version("1.0.0-rc.1")


@pytest.mark.parametrize(
    "text", ["", "1", "1.0", "v1.0.0", "01.0.0", "1.0.0-", "1.0.0-01", "1.0.0+", "1.0.0 ", "1.0.0\n", "a.b.c", "1.-1.0"]
)
def test_what_is_no_version_is_refused(text: str) -> None:
    assert parse_version(text) is None


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("v1.2.3", "1.2.3"),
        ("1", "1.0.0"),
        ("1.2", "1.2.0"),
        ("01.002.0003", "1.2.3"),
        ("0.0.0", "0.0.0"),
        ("1.2.03-rc.1", "1.2.3-rc.1"),
        ("1.2-rc", None),
        ("1+build", None),
        ("v", None),
        ("vv1", None),
    ],
)
def test_a_normalized_version_may_be_short_or_padded(text: str, version: str | None) -> None:
    parsed = parse_version(text, normalize=True)
    assert (None if parsed is None else str(parsed)) == version


@pytest.mark.parametrize("number", [2**64, "9" * 5000], ids=["65 bits", "5000 digits"])
@pytest.mark.parametrize("form", ["{}.0.0", "0.{}.0", "0.0.{}", "1.0.0-{}"])
def test_a_number_that_kubernetes_cannot_hold_is_no_version(form: str, number: int | str) -> None:
    assert parse_version(form.format(2**64 - 1)) is not None
    assert parse_version(form.format(number)) is None
    assert parse_version(form.format(number), normalize=True) is None


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("", "1"),
        ("535.104.05", "550"),
        ("550.54", "550.54.1"),
        ("2.17.319.1", "2.17.319.2"),
        ("9.1", "10.0"),
        ("6.8.0-45-generic", "6.8.0-101-generic"),
    ],
)
def test_versions_of_others_compare_by_all_their_numbers(older: str, newer: str) -> None:
    assert version_numbers(older) < version_numbers(newer)


def test_zeros_at_the_end_of_a_foreign_version_do_not_count() -> None:
    assert version_numbers("550.54") == version_numbers("550.054.00.0") == (550, 54)
    assert version_numbers("not known") == version_numbers("") == ()


@pytest.mark.parametrize("text", ["550.54.15", "550", "", "6.8.0-45-generic", "r1.2", "9" * 5000, "1." * 99])
def test_a_coerced_version_is_always_a_semantic_one(text: str) -> None:
    coerced = parse_version(coerce_version(text))
    assert coerced is not None
    assert coerced[:3] == (*version_numbers(text), 0, 0, 0)[:3]
