"""Evaluation of the requirements of label selectors (``metav1.LabelSelectorRequirement``)."""

import pytest

from kerf_dra.api.model.metadata import LabelSelectorRequirement
from kerf_dra.driver.scheduling.label_selector import match_labels

LABELS = {"zone": "a", "cards": "8", "empty": ""}


@pytest.mark.parametrize(
    ("key", "operator", "values", "expected"),
    [
        ("zone", "In", ("a", "b"), True),
        ("zone", "In", ("b",), False),
        ("absent", "In", ("",), False),
        ("empty", "In", ("",), True),
        ("zone", "NotIn", ("b",), True),
        ("zone", "NotIn", ("a",), False),
        ("absent", "NotIn", ("a",), True),
        ("empty", "Exists", (), True),
        ("absent", "Exists", (), False),
        ("absent", "DoesNotExist", (), True),
        ("empty", "DoesNotExist", (), False),
        ("cards", "Gt", ("7",), True),
        ("cards", "Gt", ("8",), False),
        ("cards", "Lt", ("10",), True),
        ("cards", "Lt", ("8",), False),
        ("zone", "Gt", ("1",), False),
        ("absent", "Lt", ("1",), False),
    ],
)
def test_one_requirement(key: str, operator: str, values: tuple[str, ...], expected: bool) -> None:
    assert match_labels([LabelSelectorRequirement(key=key, operator=operator, values=values)], LABELS) is expected


def test_all_requirements_have_to_be_met() -> None:
    zone = LabelSelectorRequirement(key="zone", operator="Exists")
    rack = LabelSelectorRequirement(key="rack", operator="Exists")
    assert match_labels([], LABELS)
    assert match_labels([zone], LABELS)
    assert not match_labels([zone, rack], LABELS)
