"""Operations on documents: quantities, paths and response forms."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerf_dra.driver.local.apiserver.http.request_info import RequestInfo, parse_path
from kerf_dra.driver.local.apiserver.http.serializer import negotiate_form
from kerf_dra.driver.local.apiserver.meta.documents import deep_copy, drop, find_objects, lookup, replace, without_nulls
from kerf_dra.driver.local.apiserver.meta.status_errors import ApiStatusError
from kerf_dra.driver.local.apiserver.registry.create_update import canonicalize_quantities

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(max_size=2), JSON, max_size=4)
DOCUMENT: dict[str, Any] = {"a": {"b": [{"c": 1}, {"c": 2}, 3], "m": {"x": {"c": 4}, "y": {"d": 5}}, "n": None}}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ([], [DOCUMENT]),
        (["a", "b[]"], [{"c": 1}, {"c": 2}]),
        (["a", "m{}"], [{"c": 4}, {"d": 5}]),
        (["a", "m"], [{"x": {"c": 4}, "y": {"d": 5}}]),
        (["a", "n"], []),
        (["z", "b[]"], []),
        (["a", "m[]"], []),
        (["a", "b{}"], []),
    ],
)
def test_objects_are_found_along_a_path(path: list[str], expected: list[Any]) -> None:
    assert list(find_objects(DOCUMENT, path)) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.m.x.c", {"a": {"b": [{"c": 1}], "m": {"x": {"c": "4!"}}}}),
        ("a.b[].c", {"a": {"b": [{"c": "1!"}], "m": {"x": {"c": 4}}}}),
        ("a.m{}.c", {"a": {"b": [{"c": 1}], "m": {"x": {"c": "4!"}}}}),
        ("a.z.c", {"a": {"b": [{"c": 1}], "m": {"x": {"c": 4}}}}),
    ],
)
def test_values_are_replaced_along_a_path(path: str, expected: dict[str, Any]) -> None:
    document = {"a": {"b": [{"c": 1}], "m": {"x": {"c": 4}}}}
    replace(document, path, lambda value: f"{value}!")
    assert document == expected


def test_values_in_lists_and_maps_are_replaced_one_by_one() -> None:
    document: dict[str, Any] = {"list": [1, 2], "map": {"x": 3}}
    replace(document, "list[]", str)
    replace(document, "map{}", str)
    assert document == {"list": ["1", "2"], "map": {"x": "3"}}


def test_a_dropped_field_goes_everywhere() -> None:
    document = deep_copy(DOCUMENT)
    drop(document, "a.b[].c")
    drop(document, "a.m{}.c")
    assert document == {"a": {"b": [{}, {}, 3], "m": {"x": {}, "y": {"d": 5}}, "n": None}}


@given(OBJECTS)
def test_a_fresh_copy_shares_nothing(document: dict[str, Any]) -> None:
    copy = deep_copy(document)
    assert copy == document
    assert copy is not document


@given(OBJECTS)
def test_pruning_leaves_no_null_fields_and_is_done_once(document: dict[str, Any]) -> None:
    once = without_nulls(document)
    assert without_nulls(once) == once
    assert None not in once.values()


@pytest.mark.parametrize(("path", "found"), [(("a", "n"), None), (("a", "m", "x", "c"), 4), (("a", "b", "c"), None)])
def test_a_lookup_finds_what_is_there(path: tuple[str, ...], found: object) -> None:
    assert lookup(DOCUMENT, *path) == found


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("1024Mi", "1Gi"),
        ("1000m", "1"),
        ("0.5", "500m"),
        (3000, "3k"),
        (0.25, "250m"),
        ("1e3", "1e3"),
        ("80Gi", "80Gi"),
    ],
)
def test_amounts_have_one_form(written: object, stored: str) -> None:
    body = {"capacity": {"memory": {"value": written}}}
    canonicalize_quantities(body, ["capacity{}.value", "absent[].value"], "Thing", "v1")
    assert body["capacity"]["memory"]["value"] == stored
    canonicalize_quantities(body, ["capacity{}.value"], "Thing", "v1")
    assert body["capacity"]["memory"]["value"] == stored


@pytest.mark.parametrize("written", ["x", "", True, [], {}, "1.2.3"])
def test_what_is_no_amount_is_refused(written: object) -> None:
    with pytest.raises(
        ApiStatusError, match='Thing in version "v1" cannot be handled as a Thing: quantities must match'
    ):
        canonicalize_quantities({"value": written}, ["value"], "Thing", "v1")


def info(group: str, version: str, plural: str, **more: str) -> RequestInfo:
    return RequestInfo(group=group, version=version, plural=plural, **more)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/v1/nodes", info("", "v1", "nodes")),
        ("/api/v1/nodes/", info("", "v1", "nodes")),
        ("/api/v1/nodes/n/status", info("", "v1", "nodes", name="n", subresource="status")),
        ("/api/v1/namespaces/t/pods", info("", "v1", "pods", namespace="t")),
        (
            "/api/v1/namespaces/t/pods/p/binding",
            info("", "v1", "pods", namespace="t", name="p", subresource="binding"),
        ),
        ("/api/v1/namespaces/t", info("", "v1", "namespaces", name="t")),
        ("/api/v1/namespaces/t/status", info("", "v1", "namespaces", name="t", subresource="status")),
        ("/api/v1/namespaces/t/finalize", info("", "v1", "namespaces", name="t", subresource="finalize")),
        ("/apis/g/v1/namespaces/t/status", info("g", "v1", "status", namespace="t")),
        ("/apis/g/v1/things/x", info("g", "v1", "things", name="x")),
        ("/apis/g/v1", None),
        ("/apis/g", None),
        ("/api/v1", None),
        ("/version", None),
        ("/", None),
        ("/apis/g/v1/namespaces/t/things/x/status/more", None),
    ],
)
def test_a_path_names_a_place(path: str, expected: RequestInfo | None) -> None:
    assert parse_path(path) == expected


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", "object"),
        ("*/*", "object"),
        ("application/json", "object"),
        ("application/vnd.kubernetes.protobuf,application/json", "protobuf"),
        ("application/json,application/vnd.kubernetes.protobuf", "object"),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "table"),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", "object"),
        ("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "metadata"),
    ],
)
def test_the_first_form_that_is_known_is_used(accept: str, form: str) -> None:
    assert negotiate_form(accept, in_protobuf=True) == form


def test_json_is_used_for_a_kind_that_has_no_form_in_protobuf() -> None:
    assert negotiate_form("application/vnd.kubernetes.protobuf,application/json", in_protobuf=False) == "object"


@pytest.mark.parametrize("accept", ["application/vnd.kubernetes.protobuf", "text/html", "application/json;as=Chart"])
def test_a_form_that_is_not_known_is_not_acceptable(accept: str) -> None:
    with pytest.raises(ApiStatusError) as refused:
        negotiate_form(accept, in_protobuf=False)
    assert refused.value.code == 406
