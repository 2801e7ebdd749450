"""Fault injection: failures that a client must survive, at exactly the requests that a test chooses."""

from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Literal, TypeAlias

from kerf_dra.driver.local.apiserver.meta.status_errors import MODIFIED, ApiStatusError, conflict, expired

Kind: TypeAlias = Literal["answer", "hang", "cut"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectedFault:
    """What happens to a request.

    ``answer``: it gets a Status with ``code``; ``hang``: no response until the client gives up; ``cut``: the connection
    is closed, for a watch after ``after_lines`` lines, for anything else before the response.
    """

    kind: Kind = "answer"
    code: HTTPStatus = HTTPStatus.INTERNAL_SERVER_ERROR
    retry_after_s: int | None = None
    after_lines: int = 0

    def refusal(self, resource: str, name: str) -> ApiStatusError:
        """Return the response to a request about this object."""
        match self.code:
            case HTTPStatus.GONE:
                return expired("too old resource version: 1 (2)")
            case HTTPStatus.CONFLICT:
                return conflict("", resource, name, MODIFIED)
            case HTTPStatus.TOO_MANY_REQUESTS:
                message = "the server has received too many requests and has asked us to try again later"
                return ApiStatusError(self.code, "TooManyRequests", message, retry_after_s=self.retry_after_s or 1)
            case code:
                message = f"fault injected: {code.value} {code.phrase}"
                reason = _REASONS.get(code, "InternalError")
                return ApiStatusError(code, reason, message, retry_after_s=self.retry_after_s)


_REASONS: Final = {
    HTTPStatus.BAD_REQUEST: "BadRequest",
    HTTPStatus.UNAUTHORIZED: "Unauthorized",
    HTTPStatus.FORBIDDEN: "Forbidden",
    HTTPStatus.NOT_FOUND: "NotFound",
    HTTPStatus.SERVICE_UNAVAILABLE: "ServiceUnavailable",
    HTTPStatus.GATEWAY_TIMEOUT: "Timeout",
}


@dataclass(slots=True, kw_only=True)
class _PlannedFault:
    fault: InjectedFault
    verb: str
    resource: str
    name: str
    left: int

    def matches(self, verb: str, resource: str, name: str) -> bool:
        pairs = ((self.verb, verb), (self.resource, resource), (self.name, name))
        return self.left > 0 and all(expected in {"", given} for expected, given in pairs)


class FaultPlan:
    """The faults to come, in the order in which they were added."""

    def __init__(self) -> None:
        self._planned: list[_PlannedFault] = []

    def add(self, fault: InjectedFault, *, verb: str = "", resource: str = "", name: str = "", times: int = 1) -> None:
        """Let the next ``times`` matching requests fail; an empty verb, resource (plural) or name matches all."""
        self._planned.append(_PlannedFault(fault=fault, verb=verb, resource=resource, name=name, left=times))

    def next(self, verb: str, resource: str, name: str) -> InjectedFault | None:
        """Return the fault of this request, which counts as met; None when the request is to be served."""
        for planned in self._planned:
            if planned.matches(verb, resource, name):
                planned.left -= 1
                return planned.fault
        return None

    @property
    def pending(self) -> Iterable[InjectedFault]:
        """The faults that no request has met yet."""
        return tuple(planned.fault for planned in self._planned if planned.left > 0)
