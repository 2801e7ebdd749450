"""An API server in a dict, for passes that are stepped by hand: every call stops before and after it takes effect.

Claims are JSON of v1alpha2 and obey the server's own rules (``kerf_dra.driver.local.apiserver``): versions, finalizers,
and what may become of a status.
"""

from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, TypeVar

import msgspec

from kerf_dra.api.core.v1 import Pod
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.classic import ClassicClaim, PodSchedulingContext
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.resource.v1alpha2 import KINDS
from kerf_dra.api.wire import to_builtins
from kerf_dra.driver.controller.classic.reconcile_result import ReconcileResult
from kerf_dra.driver.controller.classic.reconciler import NotLeadingError
from kerf_dra.driver.kube.http.errors import ConflictError, InvalidError, NotFoundError, ServerError, UnreachableError
from kerf_dra.driver.local.apiserver.kinds.validation.classic import validate_claim_status, validate_context_status
from kerf_dra.driver.local.apiserver.meta.status_errors import FieldError

ResultT = TypeVar("ResultT")
When = Literal["before", "after"]


class Stop:
    """Where a call waits for the test: sent ``cut``, the connection is lost there; ``fail``, the server says 500."""

    def __init__(self, call: str, when: When) -> None:
        self.call = call
        self.when = when

    def __await__(self) -> Generator["Stop", str | None, None]:
        match (yield self):
            case "cut":
                raise UnreachableError(self.call, "the connection was cut")
            case "fail":
                raise ServerError(self.call, 500, "InternalError", "etcdserver: request timed out")


@dataclass
class Server:
    """The state of the API server."""

    objects: dict[ObjectRef, JsonObject] = field(default_factory=dict)
    """Claims as JSON."""
    contexts: dict[ObjectRef, PodSchedulingContext] = field(default_factory=dict)
    pods: dict[ObjectRef, Pod] = field(default_factory=dict)
    leader: str = ""
    version: int = 100
    log: list[tuple[ObjectRef, ClassicClaim | None]] = field(default_factory=list)
    """Every change of a claim in order, for caches to follow."""
    versions: list[int] = field(default_factory=list)
    """The resource version of each of them."""

    def claims(self) -> list[ClassicClaim]:
        return [decoded(body) for body in self.objects.values()]

    def claim(self, name: str) -> ClassicClaim | None:
        body = self.objects.get(ObjectRef("ns", name))
        return None if body is None else decoded(body)

    def put(self, claim: ClassicClaim) -> None:
        body = KINDS.claims.encode(claim)
        self._store(claim.ref, body)

    def change(self, name: str, *, metadata: JsonObject | None = None, status: JsonObject | None = None) -> bool:
        """A change by somebody else; False where the server refuses it."""
        ref = ObjectRef("ns", name)
        try:
            if metadata is not None:
                self.patch(ref, {"metadata": metadata})
            if status is not None:
                self.patch(ref, {"status": status})
        except (InvalidError, NotFoundError):
            return False
        return True

    def delete(self, name: str) -> None:
        ref = ObjectRef("ns", name)
        body = self.objects.get(ref)
        if body is not None:
            metadata = {"deletionTimestamp": "2024-05-01T00:00:00Z"} | body["metadata"]
            self._store(ref, {**body, "metadata": metadata})

    def patch(self, ref: ObjectRef, patch: JsonObject) -> ClassicClaim:
        old = self.objects.get(ref)
        if old is None:
            raise NotFoundError("PATCH", 404, "NotFound", "no such claim")
        expected = patch.get("metadata", {})
        for name in ("uid", "resourceVersion"):
            if name in expected and expected[name] != old["metadata"].get(name):
                raise ConflictError("PATCH", 409, "Conflict", f"{name} differs")
        new = merged(old, patch)
        errors: list[FieldError] = []
        if "status" in patch:
            new["metadata"] = old["metadata"]
            errors = list(validate_claim_status(new, old))
        else:
            new["status"] = old.get("status", {})
            added = set(new["metadata"].get("finalizers") or ()) - set(old["metadata"].get("finalizers") or ())
            if added and old["metadata"].get("deletionTimestamp"):  # V-10
                raise InvalidError(
                    "PATCH", 422, "Invalid", "no new finalizers can be added if the object is being deleted"
                )
        if errors:
            raise InvalidError("PATCH", 422, "Invalid", "; ".join(map(str, errors)))
        return self._store(ref, new)

    def patch_context(self, ref: ObjectRef, metadata: JsonObject, status: JsonObject) -> None:
        context = self.contexts.get(ref)
        if context is None:
            raise NotFoundError("PATCH", 404, "NotFound", "no such context")
        if metadata["resourceVersion"] != context.metadata.resource_version:
            raise ConflictError("PATCH", 409, "Conflict", "resourceVersion differs")
        body = KINDS.scheduling_contexts.encode(context)
        body["status"] = status
        if errors := list(validate_context_status(body, {})):
            raise InvalidError("PATCH", 422, "Invalid", "; ".join(map(str, errors)))
        self.put_context(KINDS.scheduling_contexts.decode(msgspec.json.encode(body)))

    def put_context(self, context: PodSchedulingContext) -> None:
        self.version += 1
        metadata = msgspec.structs.replace(context.metadata, resource_version=str(self.version))
        self.contexts[context.ref] = msgspec.structs.replace(context, metadata=metadata)

    def _store(self, ref: ObjectRef, body: JsonObject) -> ClassicClaim:
        self.version += 1
        metadata = {**body["metadata"], "resourceVersion": str(self.version)}
        body = {**body, "metadata": {name: value for name, value in metadata.items() if value is not None}}
        claim = decoded(body)
        self.versions.append(self.version)
        if claim.is_terminating and not claim.metadata.finalizers:
            self.objects.pop(ref, None)
            self.log.append((ref, None))
        else:
            self.objects[ref] = body
            self.log.append((ref, claim))
        return claim


class SteppedApi:
    """The server as one controller reaches it."""

    def __init__(self, server: Server, name: str) -> None:
        self._server = server
        self._name = name
        self.listed: list[ClassicClaim] = []
        """Claims of lists that have arrived, also of those that were not worked through."""
        self.latest_list: list[ClassicClaim] = []
        self.answered: list[ClassicClaim] = []
        """Claims of all other answers that have arrived."""

    async def pod(self, ref: ObjectRef) -> Pod | None:
        return await self._call(f"get pod {ref}", lambda: self._server.pods.get(ref))

    async def claims(self) -> Sequence[ClassicClaim]:
        found = await self._call("list claims", self._server.claims)
        self.listed += found
        self.latest_list = list(found)
        return found

    async def read_claim(self, ref: ObjectRef) -> ClassicClaim | None:
        found = await self._call(f"get claim {ref}", lambda: self._server.claim(ref.name))
        self.answered += [found] if found else []
        return found

    async def patch_claim(self, ref: ObjectRef, metadata: JsonObject) -> ClassicClaim:
        return await self._patch(f"patch claim {ref}", ref, {"metadata": metadata})

    async def patch_claim_status(self, ref: ObjectRef, metadata: JsonObject, status: JsonObject) -> ClassicClaim:
        return await self._patch(f"patch status {ref}", ref, {"metadata": metadata, "status": status})

    async def patch_context_status(self, ref: ObjectRef, metadata: JsonObject, status: JsonObject) -> None:
        await self._call(f"patch context {ref}", lambda: self._server.patch_context(ref, metadata, status))

    async def confirm_leading(self) -> None:
        if await self._call("get lease", lambda: self._server.leader) != self._name:
            raise NotLeadingError(f"{self._name} does not lead")

    async def _patch(self, call: str, ref: ObjectRef, patch: JsonObject) -> ClassicClaim:
        answer = await self._call(call, lambda: self._server.patch(ref, patch))
        self.answered.append(answer)
        return answer

    async def _call(self, call: str, effect: Callable[[], ResultT]) -> ResultT:
        await Stop(call, "before")
        result = effect()
        await Stop(call, "after")
        return result


def run(
    work: Coroutine[Any, Any, ReconcileResult | None],
    cut: tuple[str, When] | None = None,
    calls: list[str] | None = None,
    end: Literal["cut", "fail"] = "cut",
) -> tuple[ReconcileResult | None, list[str]]:
    """Step ``work`` to its end; the calls that it made, also in ``calls`` where it raises.

    ``cut``: lose the connection at the first call of this name, or have the server fail, as ``end`` says.
    """
    calls, answer = [] if calls is None else calls, None
    try:
        while True:
            stop = work.send(answer)
            assert isinstance(stop, Stop)
            if stop.when == "before":
                calls.append(stop.call)
            is_here = cut is not None and stop.call.startswith(cut[0]) and stop.when == cut[1]
            answer, cut = (end, None) if is_here else (None, cut)
    except StopIteration as done:
        return done.value, calls


def decoded(body: JsonObject) -> ClassicClaim:
    return _decode(msgspec.json.encode(body))


@lru_cache(maxsize=256)  # those of one schedule: each is read again after every step
def _decode(data: bytes) -> ClassicClaim:
    return KINDS.claims.decode(data)


def merged(old: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict) or not isinstance(old, dict):
        return to_builtins(patch)
    result = {**old}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(old.get(name, {}), value)
    return result
