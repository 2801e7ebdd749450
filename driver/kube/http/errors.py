"""The errors of calls to the API server, by what the caller can do about them.

::

    ApiError                            every failed call
    ├── UnreachableError                no answer, or an incomplete one            (transient)
    ├── UnexpectedAnswerError           an answer that is not what was asked for   (transient)
    ├── InconsistentAnswerError         answers contradict each other: list again  (transient)
    ├── AnswerTooLargeError             the answer is longer than is read          (permanent)
    └── StatusError                     an error status; carries the Status object's fields
        ├── NotFoundError        404
        ├── AlreadyExistsError   409    reason AlreadyExists
        ├── ConflictError        409    any other: read again, decide again        (transient)
        ├── ExpiredError         410    the resource version is gone, or the       (transient)
        │                        504    server has not reached it: list again
        ├── InvalidError         400, 422                                          (permanent)
        ├── UnauthorizedError    401                                               (permanent)
        ├── ForbiddenError       403                                               (permanent)
        ├── ThrottledError       429                                               (transient)
        └── ServerError          5xx                                               (transient)
    AccessError                         no usable address or credentials           (permanent)

A status without its own class (405, 415 …) is a plain StatusError.
"""

from typing import Final, NamedTuple

import msgspec

from kerf_dra.api.errors import KerfError, PermanentError, TransientError
from kerf_dra.api.model.printable_text import to_one_line

_LONGEST_BODY: Final = 500
"""Characters kept of a body that is no Status object: enough for a proxy's title and first sentence."""


_TOO_LARGE: Final = "ResourceVersionTooLarge"
"""The cause by which a server says that it has not reached the resource version (``metav1.CauseType``)."""


class AccessError(PermanentError):
    """The API server's address or the credentials are missing or unusable."""


class ApiError(KerfError):
    """A call to the API server failed. ``call`` is its verb and path."""

    def __init__(self, call: str, message: str) -> None:
        self.call = call
        self.message = to_one_line(message)
        super().__init__(f"{call}: {self.message}")


class UnreachableError(ApiError, TransientError):
    """The call got no answer: it was refused, interrupted, or too slow. A write may or may not have happened."""


class UnexpectedAnswerError(ApiError, TransientError):
    """The answer is not what was asked for, whatever its status says, so that nothing is known.

    A proxy may have answered, or another object was read. A write may or may not have happened: read again.
    """


class InconsistentAnswerError(ApiError, TransientError):
    """What the API server says contradicts what it has said before: a list without end, or a watch that goes back."""


class AnswerTooLargeError(ApiError, PermanentError):
    """The answer is longer than the client reads: a user who makes objects must not fill its memory."""


class StatusError(ApiError):
    """The API server answered with an error status.

    ``reason`` is the machine-readable word of the Status object (``metav1.StatusReason``), empty where there is none;
    ``retry_after_s`` is the time in seconds after which the server wants a retry, None where it does not say.
    """

    def __init__(self, call: str, status: int, reason: str, message: str, retry_after_s: float | None = None) -> None:
        self.status = status
        self.reason = reason
        self.retry_after_s = retry_after_s
        super().__init__(call, message)


class MissingObject(NamedTuple):
    """The object that a Status names as the one that does not exist."""

    group: str
    plural: str
    name: str


class NotFoundError(StatusError):
    """The object, or its kind, does not exist, or there is no API server at the address.

    ``missing`` is the object if the API server itself says that this object does not exist (a Status with the reason
    NotFound and details); None: any program may have answered, and a version that is not served has the same code.
    """

    missing: MissingObject | None = None


class AlreadyExistsError(StatusError):
    """There is an object of this name."""


class ConflictError(StatusError, TransientError):
    """The object changed since it was read, or a precondition does not hold: read and decide again."""


class ExpiredError(StatusError, TransientError):
    """The server does not have the resource version or continue token: list again.

    It is too old, or the server has not reached it and may never, as after etcd was restored from a backup
    (``ResourceVersionTooLarge``).
    """


class InvalidError(StatusError, PermanentError):
    """The server refuses the object or the request as it is."""


class UnauthorizedError(StatusError, PermanentError):
    """The server does not accept the credentials."""


class ForbiddenError(StatusError, PermanentError):
    """The identity lacks a permission."""


class ThrottledError(StatusError, TransientError):
    """The server rejects the request because there are too many."""


class ServerError(StatusError, TransientError):
    """The server failed to process the request."""


_BY_STATUS: Final[dict[int, type[StatusError]]] = {
    400: InvalidError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: ExpiredError,
    422: InvalidError,
    429: ThrottledError,
}


class _Cause(msgspec.Struct):
    reason: str = ""


class _Details(msgspec.Struct, rename="camel"):
    name: str = ""
    group: str = ""
    kind: str = ""
    """The plural of the object's kind."""
    retry_after_seconds: int = 0
    causes: tuple[_Cause, ...] | None = None


class _Status(msgspec.Struct):
    """The fields of ``metav1.Status`` that are used."""

    kind: str = ""
    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


_status_decoder: Final = msgspec.json.Decoder(_Status)


def build_status_error(
    call: str, status: int, body: bytes | msgspec.Raw, retry_after: str | None = None
) -> StatusError:
    """Return the error for an answer with HTTP ``status``, ``body`` and the ``Retry-After`` header.

    A ``status`` of 0 means that only the body has it: the ERROR event of a watch.
    """
    try:
        details = _status_decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        details = _Status(message=bytes(body).decode(errors="replace"))
    status = status or details.code or 500
    leaf = _BY_STATUS.get(status, ServerError if status >= 500 else StatusError)
    if status == 409 and details.reason == "AlreadyExists":
        leaf = AlreadyExistsError
    if details.details is not None and any(cause.reason == _TOO_LARGE for cause in details.details.causes or ()):
        leaf = ExpiredError
    message = to_one_line(f"{status} {details.message}")
    if len(message) > _LONGEST_BODY:
        message = f"{message[:_LONGEST_BODY]} …"
    error = leaf(call, status, details.reason, message, _retry_after_s(retry_after, details))
    if isinstance(error, NotFoundError):
        error.missing = _find_missing(details)
    return error


def _find_missing(status: _Status) -> MissingObject | None:
    named = status.details
    if (status.kind, status.reason) != ("Status", "NotFound") or named is None or not named.name or not named.kind:
        return None
    return MissingObject(named.group, named.kind, named.name)


def _retry_after_s(header: str | None, details: _Status) -> float | None:
    """Return the header's delay, else the Status object's; API servers do not use HTTP dates in the header."""
    if header is not None and header.isascii() and header.isdecimal():
        return float(header)
    if details.details is not None and details.details.retry_after_seconds > 0:
        return float(details.details.retry_after_seconds)
    return None
