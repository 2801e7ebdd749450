"""Finds loops of writes: what Kerf writes again and again because another program undoes it each time.

Two programs that want different things of one object (two drivers of one name, a GitOps tool that has an old copy, a
webhook, a garbage collector) would write for ever, as fast as they see each other's changes. A program does not
write what is there, so the same write of the same object, three times in a row, was undone. From then on it is refused
for a while, longer each time, before it is sent: its writer tries again by itself, as after any failure, and an event
(``report_undone_writes``) says what goes on. What differs between two writes only by resource versions, generations or
times is the same write.
"""

import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final, NamedTuple

import anyio

from kerf_dra.api.core.v1 import ObjectReference
from kerf_dra.api.errors import TransientError
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.wire import Kind
from kerf_dra.driver.kube.http.errors import ApiError
from kerf_dra.driver.kube.http.transport import HttpRequest
from kerf_dra.driver.runtime import metrics
from kerf_dra.driver.runtime.notifier import Notifier

MOST: Final = 3
"""The times that the same write is sent without a pause. Two may have a reason: a kubelet that starts deletes the
slices of its node, and a person undoes a change before noticing whose it was."""
_FIRST_PAUSE_S: Final = 30.0
"""Seconds of the first pause: a node whose kubelet was started four times waits no longer for its slices."""
LONGEST_PAUSE_S: Final = 600.0
"""Seconds of the longest pause, which the others double up to: who has resolved the conflict waits no longer."""
_DOUBLINGS: Final = 5
"""The doublings from the first pause to the longest one, after which a loop of weeks changes nothing more."""
_CLAIM_S: Final = 10.0
"""Seconds between two writes of a claim's status after which the second is no repetition of the first: a claim that
several pods use in turn is allocated, and gets the same status, for each of them."""
_MOST_OBJECTS: Final = 4096
"""Objects whose last write is remembered, the latest ones: a controller of 5,000 nodes writes some hundred classes and
devices, and a loop writes its object every few seconds."""
_BOOKKEEPING: Final = re.compile(
    rb'"(?:resourceVersion|generation|lastTransitionTime|timeAdded|preconditions)":'
    rb'(?:"(?:[^"\\]|\\.)*"|\{[^{}]*\}|[^",{}\[\]]*),?'
)
"""The fields that say at which version or when, and not what, in JSON without spaces. Within a string each quote has a
backslash before it, so none of them is found there."""
_OF_VERSION: Final = re.compile(rb'\{[^{}]*"path":"/metadata/resourceVersion"[^{}]*\},?')
"""Operations of a JSON patch on the version."""
_JSON_PATCH: Final = "application/json-patch+json"

_log = logging.getLogger(__name__)

_undone: Final = metrics.counter(
    "kerf_undone_writes_total", "Loops of writes that another program has undone each time.", ("resource",)
)


class UndoneWriteError(ApiError, TransientError):
    """The write was undone by another program each time, and is not sent now."""

    def __init__(self, call: str, times: int, pause_s: float) -> None:
        super().__init__(
            call, f"another program has undone this write {times} times in a row; it is tried again after {pause_s:g} s"
        )


class _Target(NamedTuple):
    """What a write is of: an object, or a subresource of it."""

    path: str
    name: str
    """The name of an object to be created, which its path lacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _LastWrite:
    digest: bytes
    uid: str
    """The UID of the object; empty where it was created or deleted, because each one has another."""
    times: int
    """How often it was done in a row."""
    at: float
    is_reported: bool
    """Whether it is known to be undone each time, and that is reported."""
    is_refused: bool
    """Whether a repetition has been refused since."""

    @property
    def pause_s(self) -> float:
        """The seconds after it in which it is not repeated."""
        doublings = min(self.times - MOST, _DOUBLINGS)
        return min(LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0**doublings) if doublings >= 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One write that is about to be sent."""

    request: HttpRequest
    about: ObjectReference
    target: _Target
    digest: bytes


class WriteHistory:
    """The last write of each object that one client has written."""

    def __init__(self, now: Callable[[], float] = anyio.current_time) -> None:
        """``now`` returns monotonic time in seconds."""
        self._now = now
        self._last: OrderedDict[_Target, _LastWrite] = OrderedDict()
        self._loops: list[UndoneWrite] = []
        self.changed = Notifier()
        """Notified when a loop was found."""

    def begin(self, kind: Kind[Any], request: HttpRequest, ref: ObjectRef) -> Write:
        """Return the write that ``request`` is, to be noted once it is done. Raises UndoneWriteError."""
        about = ObjectReference(api_version=kind.api_version, kind=kind.kind, namespace=ref.namespace, name=ref.name)
        target = _Target(request.path, ref.name if request.method == "POST" else "")
        write = Write(request=request, about=about, target=target, digest=_digest(request))
        last = self._last.get(target)
        if last is not None and last.digest == write.digest and last.times >= MOST and self._is_recent(write, last):
            self._check(write, last)
        return write

    def note(self, write: Write, uid: str) -> None:
        """Note that ``write`` was done, to the object of this UID."""
        uid = "" if write.request.method in {"POST", "DELETE"} else uid
        last = self._last.pop(write.target, None)
        if last is None or (last.digest, last.uid) != (write.digest, uid) or not self._is_recent(write, last):
            times, is_reported = 1, False
        else:
            times, is_reported = last.times + 1, last.is_reported
        self._last[write.target] = _LastWrite(
            digest=write.digest, uid=uid, times=times, at=self._now(), is_reported=is_reported, is_refused=False
        )
        if len(self._last) > _MOST_OBJECTS:
            self._last.popitem(last=False)

    def forget(self, kind: Kind[Any], ref: ObjectRef) -> None:
        """Forget the last write of an object, because its writer has a reason of its own to do the same again.

        An object may say nothing but which generation of a whole it belongs to, and be written again with each.
        """
        namespace = ref.namespace if kind.namespaced else ""
        self._last.pop(_Target(kind.path(namespace, ref.name), ""), None)

    def take_loops(self) -> Sequence["UndoneWrite"]:
        """Return the loops that were found since the last call."""
        found, self._loops = self._loops, []
        return found

    def _is_recent(self, write: Write, last: _LastWrite) -> bool:
        """Whether ``write`` now would follow from what became of the ``last`` one."""
        longest_s = _CLAIM_S if write.request.content_type == _JSON_PATCH else LONGEST_PAUSE_S
        return last.is_refused or self._now() - last.at < longest_s

    def _check(self, write: Write, last: _LastWrite) -> None:
        """Report the loop, once, and refuse the write while it is too early. Raises UndoneWriteError."""
        is_early = self._now() - last.at < last.pause_s
        self._last[write.target] = replace(last, is_reported=True, is_refused=last.is_refused or is_early)
        if not last.is_reported:
            loop = UndoneWrite(about=write.about, call=str(write.request), times=last.times)
            _log.error("%s", loop)
            _undone.labels(write.request.resource).inc()
            self._loops.append(loop)
            self.changed.notify()
        if is_early:
            raise UndoneWriteError(str(write.request), last.times, last.pause_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoneWrite:
    """A loop of writes that was found."""

    about: ObjectReference
    call: str
    """The verb and the path of the write."""
    times: int

    def __str__(self) -> str:
        ref = ObjectRef(self.about.namespace, self.about.name)
        return (
            f"another program has undone what Kerf writes of {self.about.kind} {ref} {self.times} times in a row "
            f"({self.call}): the object's managedFields or the audit log show which one; Kerf writes it again after "
            "pauses of up to ten minutes"
        )


def _digest(request: HttpRequest) -> bytes:
    # By its text: to take it apart takes ten times longer, and slices are long and written after each claim.
    text = _BOOKKEEPING.sub(b"", request.body or b"")
    if request.content_type == _JSON_PATCH:
        text = _OF_VERSION.sub(b"", text)
    text = text.replace(b",}", b"}").replace(b",]", b"]")  # what the last field or operation leaves
    return sha256(f"{request.method} {request.content_type}\n".encode() + text).digest()
