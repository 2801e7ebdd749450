"""The refusals of the API server: field errors inside a document, and ``Status`` responses.

Texts are those of Kubernetes, since programs and people compare them.
Source: ``k8s.io/apimachinery`` ``pkg/util/validation/field`` and ``pkg/api/errors``.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, TypeAlias

import msgspec

from kerf_dra.api.errors import KerfError
from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.local.apiserver.meta.documents import JsonValue

MODIFIED: Final = "the object has been modified; please apply your changes to the latest version and try again"
"""The reason for refusing an update with an old ``resourceVersion`` (``OptimisticLockErrorMsg``)."""

_MESSAGE_STARTS: Final = {
    "FieldValueRequired": "Required value",
    "FieldValueInvalid": "Invalid value",
    "FieldValueTypeInvalid": "Invalid value",
    "FieldValueNotSupported": "Unsupported value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueDuplicate": "Duplicate value",
    "FieldValueNotFound": "Not found",
    "FieldValueTooLong": "Too long",
    "FieldValueTooMany": "Too many",
}
"""The start of the message, by the cause type of a Status."""

OMITTED: Final = object()
"""Stands for a bad value that the message does not repeat (``field.OmitValueType``)."""


@dataclass(frozen=True, slots=True)
class FieldError:
    """One error in a document. ``reason`` is the cause type of a Status, ``path`` is as Kubernetes prints it."""

    reason: str
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


FieldErrors: TypeAlias = Iterator[FieldError]
"""The errors of a document, in the order of its validation (``field.ErrorList``)."""


def quoted(value: object) -> str:
    """Return a value as messages show it: in JSON, so that strings have quotes."""
    return msgspec.json.encode(value).decode()


def _error(reason: str, path: str, value: object, detail: str) -> FieldError:
    parts = [_MESSAGE_STARTS[reason]]
    if value is not OMITTED:
        parts.append(quoted(value))
    if detail:
        parts.append(detail)
    return FieldError(reason, path, ": ".join(parts))


def required(path: str, detail: str = "") -> FieldError:
    return _error("FieldValueRequired", path, OMITTED, detail)


def invalid(path: str, value: object, detail: str) -> FieldError:
    return _error("FieldValueInvalid", path, value, detail)


def type_invalid(path: str, value: object, detail: str) -> FieldError:
    return _error("FieldValueTypeInvalid", path, value, detail)


def not_supported(path: str, value: object, supported: Iterable[str]) -> FieldError:
    names = ", ".join(quoted(name) for name in supported)
    return _error("FieldValueNotSupported", path, value, f"supported values: {names}")


def forbidden(path: str, detail: str) -> FieldError:
    return _error("FieldValueForbidden", path, OMITTED, detail)


def duplicate(path: str, value: object) -> FieldError:
    return _error("FieldValueDuplicate", path, value, "")


def not_found(path: str, value: object, detail: str = "") -> FieldError:
    return _error("FieldValueNotFound", path, value, detail)


def too_long(path: str, limit: int) -> FieldError:
    return _error("FieldValueTooLong", path, OMITTED, f"may not be more than {limit} bytes")


def too_many(path: str, count: int, limit: int) -> FieldError:
    return _error("FieldValueTooMany", path, count, f"must have at most {limit} items")


def immutable(path: str, value: object) -> FieldError:
    return invalid(path, value, "field is immutable")


class ApiStatusError(KerfError):
    """The refusal of a request, which becomes a response with this code and a ``Status`` as its body."""

    def __init__(
        self,
        code: HTTPStatus,
        reason: str,
        message: str,
        *,
        details: JsonObject | None = None,
        retry_after_s: int | None = None,
        continue_: str = "",
    ) -> None:
        self.code = code
        self.reason = reason
        self.message = message
        self.retry_after_s = retry_after_s
        self.continue_ = continue_
        self.details = details
        if retry_after_s is not None:
            self.details = {**(details or {}), "retryAfterSeconds": retry_after_s}
        super().__init__(message)

    @property
    def status(self) -> JsonObject:
        """The body of the response."""
        body: JsonObject = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.continue_} if self.continue_ else {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        return {**body, "code": int(self.code)}


def _details(group: str, kind: str, name: str, **more: JsonValue) -> JsonObject:
    named = {"name": name, "group": group, "kind": kind}
    return {key: value for key, value in {**named, **more}.items() if value}


def qualified(group: str, name: str) -> str:
    """Return a kind or plural with its group, as messages write it: ``pods``, ``resourceclaims.resource.k8s.io``."""
    return f"{name}.{group}" if group else name


def object_not_found(group: str, plural: str, name: str) -> ApiStatusError:
    message = f"{qualified(group, plural)} {quoted(name)} not found"
    return ApiStatusError(HTTPStatus.NOT_FOUND, "NotFound", message, details=_details(group, plural, name))


def path_not_found() -> ApiStatusError:
    """Return 404 for a path, which clients read as "this kind is not served"."""
    message = "the server could not find the requested resource"
    return ApiStatusError(HTTPStatus.NOT_FOUND, "NotFound", message, details={})


def already_exists(group: str, plural: str, name: str) -> ApiStatusError:
    message = f"{qualified(group, plural)} {quoted(name)} already exists"
    return ApiStatusError(HTTPStatus.CONFLICT, "AlreadyExists", message, details=_details(group, plural, name))


def conflict(group: str, plural: str, name: str, why: str) -> ApiStatusError:
    message = f"Operation cannot be fulfilled on {qualified(group, plural)} {quoted(name)}: {why}"
    return ApiStatusError(HTTPStatus.CONFLICT, "Conflict", message, details=_details(group, plural, name))


def apply_conflict(message: str, causes: Sequence[JsonObject]) -> ApiStatusError:
    return ApiStatusError(HTTPStatus.CONFLICT, "Conflict", message, details={"causes": list(causes)})


def object_forbidden(group: str, plural: str, name: str, why: str, causes: Sequence[JsonObject] = ()) -> ApiStatusError:
    """Return 403: an admission plugin denies the request."""
    subject = f"{qualified(group, plural)} {quoted(name)}" if name else qualified(group, plural)
    details = _details(group, plural, name, causes=list(causes))
    return ApiStatusError(HTTPStatus.FORBIDDEN, "Forbidden", f"{subject} is forbidden: {why}", details=details)


def object_invalid(group: str, kind: str, name: str, errors: Iterable[FieldError]) -> ApiStatusError:
    """Return 422 with every error of the document, each once."""
    unique = list(dict.fromkeys(errors))
    causes = [{"reason": error.reason, "message": error.message, "field": error.path} for error in unique]
    messages = list(dict.fromkeys(str(error) for error in unique))
    summary = messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
    message = f"{qualified(group, kind)} {quoted(name)} is invalid: {summary}"
    details = _details(group, kind, name, causes=causes)
    return ApiStatusError(HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid", message, details=details)


def bad_request(message: str) -> ApiStatusError:
    return ApiStatusError(HTTPStatus.BAD_REQUEST, "BadRequest", message)


def expired(message: str, continue_: str = "") -> ApiStatusError:
    """Return 410: the history does not reach back that far; the client lists again, or continues with another token."""
    return ApiStatusError(HTTPStatus.GONE, "Expired", message, continue_=continue_)


def method_not_allowed() -> ApiStatusError:
    message = "the server does not allow this method on the requested resource"
    return ApiStatusError(HTTPStatus.METHOD_NOT_ALLOWED, "MethodNotAllowed", message, details={})


def patch_misfit() -> ApiStatusError:
    """Return 422: a JSON patch does not apply to the document; kube-apiserver does not say why either."""
    message = "the server rejected our request due to an error in our request"
    return ApiStatusError(HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid", message, details={})


def revision_too_large(requested: int, current: int) -> ApiStatusError:
    """Return 504 with the cause by which client-go recognizes a server whose state is too old."""
    text = f"Too large resource version: {requested}, current: {current}"
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return ApiStatusError(
        HTTPStatus.GATEWAY_TIMEOUT, "Timeout", f"Timeout: {text}", details={"causes": causes}, retry_after_s=1
    )


def internal_error(why: str) -> ApiStatusError:
    """Return 500: an error of this server."""
    message = f"Internal error occurred: {why}"
    return ApiStatusError(
        HTTPStatus.INTERNAL_SERVER_ERROR, "InternalError", message, details={"causes": [{"message": why}]}
    )


def success(**fields: object) -> JsonObject:
    """Return the ``Status`` of a request that succeeded, with further fields."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", **fields}
