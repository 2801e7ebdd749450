"""Kinds, qualified names, and the names made from them."""

import pytest
from hypothesis import given

from kerf_dra.cdi import InvalidNameError, Kind, QualifiedName, transient_name
from kerf_dra.cdi.names import annotation_key, annotation_value, parse_annotations, spec_name
from tests.cdi.strategies import DEVICE_NAMES, KINDS

WIDGET = Kind(vendor="acme.io", class_name="widget")


@given(kind=KINDS, device=DEVICE_NAMES)
def test_a_name_reads_back_as_it_was_written(kind: Kind, device: str) -> None:
    name = QualifiedName(kind=kind, device=device)
    assert QualifiedName.parse(str(name)) == name
    assert Kind.parse(str(kind)) == kind


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("acme.io/widget", "unqualified"),
        ("/dev/null", "unqualified"),
        ("acme.io/widget=", "unqualified"),
        ("/widget=w", "unqualified"),
        ("acme.io-/widget=w", "vendor-name"),
        ("9/widget=w", "vendor-name"),
        ("acme.io/wid get=w", "class-name"),
        ("acme.io/widget=w\n", "device-name"),
        ("acme.io/widget=-", "device-name"),
        ("a/widget=w", "one-letter-name"),
        ("acme.io/w=w", "one-letter-name"),
    ],
)
def test_a_text_that_is_no_name_says_why(text: str, code: str) -> None:
    with pytest.raises(InvalidNameError) as caught:
        QualifiedName.parse(text)
    assert caught.value.code == code
    assert repr(text) in str(caught.value)


def test_one_letter_names_are_for_later_readers_only() -> None:
    assert str(QualifiedName.parse("a/w=1", "main")) == "a/w=1"
    assert Kind.parse("a/w", "main") == Kind(vendor="a", class_name="w")
    with pytest.raises(InvalidNameError):
        Kind.parse("a/w")


@pytest.mark.parametrize("text", ["widget", "acme.io/", "/widget", ""])
def test_a_kind_has_two_parts(text: str) -> None:
    with pytest.raises(InvalidNameError) as caught:
        Kind.parse(text)
    assert caught.value.code == "unqualified"
    assert str(Kind.split(text)) == text


def test_file_names_are_made_of_kind_and_identity() -> None:
    assert spec_name(WIDGET) == "acme.io-widget"
    assert transient_name(WIDGET, "pod/claim") == "acme.io-widget_pod_claim"


def test_annotations_carry_requests_there_and_back() -> None:
    names = (QualifiedName(kind=WIDGET, device="w2"), QualifiedName(kind=WIDGET, device="w1"))
    annotations = {annotation_key("acme.widget", "a/1"): annotation_value(names), "other": "acme.io/widget=w3"}
    assert parse_annotations(annotations) == (("cdi.k8s.io/acme.widget_a_1",), names)


@pytest.mark.parametrize(("plugin", "device"), [("", "d"), ("p", ""), ("-p", "d"), ("p", "d:1"), ("p" * 32, "d" * 31)])
def test_an_annotation_key_is_a_kubernetes_name(plugin: str, device: str) -> None:
    with pytest.raises(InvalidNameError) as caught:
        annotation_key(plugin, device)
    assert caught.value.code == "annotation-key"


@pytest.mark.parametrize("value", ["", "acme.io/widget=w1, acme.io/widget=w2", "/dev/null"])
def test_one_bad_name_spoils_all_annotations(value: str) -> None:
    with pytest.raises(InvalidNameError) as caught:
        parse_annotations({"cdi.k8s.io/a": "acme.io/widget=w1", "cdi.k8s.io/b": value})
    assert caught.value.code == "annotation-value"
    assert "cdi.k8s.io/b" in str(caught.value)
