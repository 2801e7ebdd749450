"""The syntax of names, label keys and values, and finalizers, and the validation of ``metadata``.

A name check yields one message for each rule that a text breaks, in the words of Kubernetes.
Source: ``k8s.io/apimachinery`` ``pkg/api/validate/content`` and ``pkg/api/validation``.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.local.apiserver.meta.status_errors import (
    FieldError,
    FieldErrors,
    forbidden,
    immutable,
    invalid,
    required,
)

NameCheck: TypeAlias = Callable[[str], Iterator[str]]
"""Yields a message for each rule that a text breaks."""

MAX_LABEL: Final = 63
MAX_SUBDOMAIN: Final = 253
_MAX_ANNOTATIONS: Final = 256 * 1024
"""Bytes of all annotations of an object together (``TotalAnnotationSizeLimitB``)."""

_STANDARD_FINALIZERS: Final = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_KEY_NAME: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_KEY_WORDS: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
_LABEL_VALUE: Final = f"({_KEY_NAME})?"


def _explain(message: str, pattern: str, *examples: str) -> str:
    listed = " or ".join(f"'{example}', " for example in examples)
    return f"{message} (e.g. {listed}regex used for validation is '{pattern}')"


def _too_long(limit: int, unit: str) -> str:
    return f"must be no more than {limit} {unit}"


def dns_label(text: str) -> Iterator[str]:
    """Check an RFC 1123 label: the name of a namespace, device or container."""
    if len(text) > MAX_LABEL:
        yield _too_long(MAX_LABEL, "characters")
    if re.fullmatch(_LABEL, text):
        return
    if re.fullmatch(_SUBDOMAIN, text):
        yield "must not contain dots"
        return
    yield _explain(
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
        "with an alphanumeric character",
        _LABEL,
        "my-name",
        "123-abc",
    )


def dns_subdomain(text: str) -> Iterator[str]:
    """Check an RFC 1123 subdomain: the name of most objects."""
    if len(text) > MAX_SUBDOMAIN:
        yield _too_long(MAX_SUBDOMAIN, "characters")
    if not re.fullmatch(_SUBDOMAIN, text):
        yield _explain(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
            "start and end with an alphanumeric character",
            _SUBDOMAIN,
            "example.com",
        )


def dns_subdomain_any_case(text: str) -> Iterator[str]:
    if len(text) > MAX_SUBDOMAIN:
        yield _too_long(MAX_SUBDOMAIN, "bytes")
    if not re.fullmatch(_SUBDOMAIN, text.lower()):
        yield _explain(
            "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and end with an "
            "alphanumeric character",
            _SUBDOMAIN,
            "Example.com",
        )


def path_segment(text: str) -> Iterator[str]:
    """Check a segment of a URL path: the name of a role or role binding."""
    if text in {".", ".."}:
        yield f"must not be '{text}'"
    for illegal in "/%":
        if illegal in text:
            yield f"may not contain '{illegal}'"


def qualified_name(text: str) -> Iterator[str]:
    """Check a name with an optional DNS subdomain and ``/`` before it: a label key, taint key or finalizer."""
    words = _KEY_WORDS
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        message = _explain(words, _KEY_NAME, "MyName", "my.name", "123-abc")
        yield f"a valid label key {message} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return
    if slash and not prefix:
        yield "prefix part must be non-empty"
    elif slash:
        yield from (f"prefix part {message}" for message in dns_subdomain(prefix))
    if not name:
        yield "name part must be non-empty"
    elif len(name) > MAX_LABEL:
        yield f"name part {_too_long(MAX_LABEL, 'bytes')}"
    if not re.fullmatch(_KEY_NAME, name):
        yield "name part " + _explain(words, _KEY_NAME, "MyName", "my.name", "123-abc")


def label_value(text: str) -> Iterator[str]:
    if len(text) > MAX_LABEL:
        yield _too_long(MAX_LABEL, "bytes")
    if not re.fullmatch(_LABEL_VALUE, text):
        yield _explain(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
            "start and end with an alphanumeric character",
            _LABEL_VALUE,
            "MyValue",
            "my_value",
            "12345",
        )


def validate_name(path: str, text: object, check: NameCheck) -> FieldErrors:
    """Yield the errors of a required name that has to pass a check."""
    if not isinstance(text, str) or not text:
        yield required(path)
        return
    yield from validate_format(path, text, check)


def validate_format(path: str, text: str, check: NameCheck) -> FieldErrors:
    """Yield the errors of a text that has to pass a check."""
    yield from (invalid(path, text, message) for message in check(text))


def validate_metadata(
    metadata: JsonObject, *, namespaced: bool, name_check: NameCheck, any_finalizer: bool
) -> FieldErrors:
    """Yield the errors in the ``metadata`` of a new object of any kind (``ValidateObjectMeta``)."""
    generate_name, name = metadata.get("generateName"), metadata.get("name")
    if generate_name:
        # The generated suffix is alphanumeric, so the prefix may end in a dash or dot.
        yield from (
            invalid("metadata.generateName", generate_name, message) for message in name_check(f"{generate_name}a")
        )
    if not name:
        yield required("metadata.name", "name or generateName is required")
    else:
        yield from validate_format("metadata.name", name, name_check)
    namespace = metadata.get("namespace")
    if namespaced:
        yield from validate_name("metadata.namespace", namespace, dns_label)
    elif namespace:
        yield forbidden("metadata.namespace", "not allowed on this type")
    yield from validate_labels(metadata.get("labels") or {}, "metadata.labels")
    yield from _validate_annotations(metadata.get("annotations") or {})
    yield from _validate_owners(metadata.get("ownerReferences") or [])
    yield from _validate_finalizers(metadata.get("finalizers") or [], any_finalizer=any_finalizer)


def validate_labels(labels: Mapping[str, Any], path: str) -> FieldErrors:
    for key, value in labels.items():
        yield from validate_format(path, key, qualified_name)
        yield from (invalid(path, value, message) for message in label_value(str(value)))


def _validate_annotations(annotations: Mapping[str, Any]) -> FieldErrors:
    path = "metadata.annotations"
    for key in annotations:
        yield from (invalid(path, key, message) for message in qualified_name(key.lower()))
    size = sum(len(key.encode()) + len(str(value).encode()) for key, value in annotations.items())
    if size > _MAX_ANNOTATIONS:
        yield FieldError("FieldValueTooLong", path, f"Too long: may not be more than {_MAX_ANNOTATIONS} bytes")


def _validate_owners(owners: list[JsonObject]) -> FieldErrors:
    path = "metadata.ownerReferences"
    controllers = []
    for index, owner in enumerate(owners):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                yield required(f"{path}[{index}].{field}", "must not be empty")
        if owner.get("controller"):
            controllers.append(f"{owner.get('kind')}/{owner.get('name')}")
    if len(controllers) > 1:
        yield invalid(
            path,
            owners,
            'Only one reference can have Controller set to true. Found "true" in references for '
            f"{controllers[0]} and {controllers[1]}",
        )


def _validate_finalizers(finalizers: list[str], *, any_finalizer: bool) -> FieldErrors:
    path = "metadata.finalizers"
    for index, finalizer in enumerate(finalizers):
        yield from validate_format(path, finalizer, qualified_name)
        if not any_finalizer and "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            message = "name is neither a standard finalizer name nor is it fully qualified"
            yield invalid(f"{path}[{index}]", finalizer, message)
    if {"orphan", "foregroundDeletion"} <= set(finalizers):
        yield invalid(path, finalizers, "finalizer orphan and foregroundDeletion cannot be both set")


def validate_metadata_update(new: JsonObject, old: JsonObject) -> FieldErrors:
    """Yield the errors in what an update does to ``metadata`` (``ValidateObjectMetaUpdate``)."""
    if old.get("deletionTimestamp"):
        extra = sorted(set(new.get("finalizers") or ()) - set(old.get("finalizers") or ()))
        if extra:
            listed = ", ".join(f'"{each}"' for each in extra)
            yield forbidden(
                "metadata.finalizers",
                "no new finalizers can be added if the object is being deleted, found new finalizers "
                f"[]string{{{listed}}}",
            )
    for field in ("name", "namespace", "uid"):
        if new.get(field) != old.get(field):
            yield immutable(f"metadata.{field}", new.get(field))
