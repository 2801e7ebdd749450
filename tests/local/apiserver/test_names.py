"""What names, labels and finalizers may look like, in Kubernetes' words."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kerf_dra.driver.local.apiserver.meta.names import (
    dns_label,
    dns_subdomain,
    label_value,
    path_segment,
    qualified_name,
    validate_metadata,
    validate_metadata_update,
)


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (dns_label, "node-1"),
        (dns_label, "a" * 63),
        (dns_subdomain, "a.b-c.d"),
        (dns_subdomain, "a" * 253),
        (path_segment, "system:admin"),
        (qualified_name, "example.com/Name_1.x"),
        (qualified_name, "plain"),
        (label_value, ""),
        (label_value, "v1_2.3-x"),
    ],
)
def test_good_names_pass(check: Callable[[str], Iterator[str]], text: str) -> None:
    assert list(check(text)) == []


@pytest.mark.parametrize(
    ("check", "text", "said"),
    [
        (dns_label, "A", "a lowercase RFC 1123 label must consist of lower case alphanumeric characters"),
        (dns_label, "a.b", "must not contain dots"),
        (dns_label, "a" * 64, "must be no more than 63 characters"),
        (dns_subdomain, "-a", "a lowercase RFC 1123 subdomain must consist of"),
        (dns_subdomain, "a" * 254, "must be no more than 253 characters"),
        (path_segment, "..", "must not be '..'"),
        (path_segment, "a/b", "may not contain '/'"),
        (qualified_name, "a/b/c", "a valid label key must consist of"),
        (qualified_name, "/x", "prefix part must be non-empty"),
        (qualified_name, "A/x", "prefix part a lowercase RFC 1123 subdomain"),
        (qualified_name, "a/", "name part must be non-empty"),
        (qualified_name, "x" * 64, "name part must be no more than 63 bytes"),
        (label_value, "a b", "a valid label must be an empty string or consist of"),
        (label_value, "x" * 64, "must be no more than 63 bytes"),
    ],
)
def test_bad_names_are_told_what_is_wrong(check: Callable[[str], Iterator[str]], text: str, said: str) -> None:
    assert any(said in each for each in check(text))


def paths_of(metadata: dict[str, Any], *, namespaced: bool = True, any_finalizer: bool = False) -> list[str]:
    found = validate_metadata(metadata, namespaced=namespaced, name_check=dns_subdomain, any_finalizer=any_finalizer)
    return [str(error) for error in found]


def test_good_metadata_has_no_errors() -> None:
    metadata = {
        "name": "x",
        "generateName": "x-",
        "namespace": "default",
        "labels": {"example.com/a": "b"},
        "annotations": {"Example.com/Any": "any text"},
        "finalizers": ["example.com/x", "kubernetes"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}],
    }
    assert paths_of(metadata) == []


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"namespace": "a"}, "metadata.name: Required value: name or generateName is required"),
        ({"name": "x"}, "metadata.namespace: Required value"),
        ({"name": "x", "namespace": "A"}, 'metadata.namespace: Invalid value: "A"'),
        ({"name": "x", "namespace": "a", "labels": {"a b": "c"}}, 'metadata.labels: Invalid value: "a b"'),
        ({"name": "x", "namespace": "a", "annotations": {"a b": "c"}}, 'metadata.annotations: Invalid value: "a b"'),
        (
            {"name": "x", "namespace": "a", "annotations": {"a": "x" * 262_144}},
            "metadata.annotations: Too long: may not be more than 262144 bytes",
        ),
        (
            {"name": "x", "namespace": "a", "ownerReferences": [{"kind": "Pod"}]},
            "metadata.ownerReferences[0].uid: Required value: must not be empty",
        ),
        (
            {"name": "x", "namespace": "a", "finalizers": ["plain"]},
            'metadata.finalizers[0]: Invalid value: "plain": name is neither a standard finalizer name',
        ),
        (
            {"name": "x", "namespace": "a", "finalizers": ["orphan", "foregroundDeletion"]},
            "finalizer orphan and foregroundDeletion cannot be both set",
        ),
    ],
)
def test_bad_metadata_is_told_where(metadata: dict[str, Any], said: str) -> None:
    assert any(said in each for each in paths_of(metadata))


def test_two_controllers_are_one_too_many() -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "uid": "u", "controller": True}
    metadata = {"name": "x", "namespace": "a", "ownerReferences": [{**owner, "name": "p"}, {**owner, "name": "q"}]}
    assert "Pod/p and Pod/q" in paths_of(metadata)[0]


def test_cluster_scoped_objects_have_no_namespace() -> None:
    assert paths_of({"name": "x", "namespace": "a"}, namespaced=False) == [
        "metadata.namespace: Forbidden: not allowed on this type"
    ]


def test_custom_resources_may_have_plain_finalizers() -> None:
    assert paths_of({"name": "x", "namespace": "a", "finalizers": ["plain"]}, any_finalizer=True) == []


def test_a_deleted_object_gets_no_new_finalizers() -> None:
    old = {"name": "x", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}
    errors = [str(error) for error in validate_metadata_update({**old, "finalizers": ["a/b", "c/d"]}, old)]
    (error,) = errors
    assert error == (
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, "
        'found new finalizers []string{"c/d"}'
    )
    assert list(validate_metadata_update({**old, "finalizers": []}, old)) == []


def test_identity_never_changes() -> None:
    old = {"name": "x", "uid": "u"}
    assert [error.path for error in validate_metadata_update({"name": "y", "uid": "v"}, old)] == [
        "metadata.name",
        "metadata.uid",
    ]
