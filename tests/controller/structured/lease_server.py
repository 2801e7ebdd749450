"""An API server with one Lease, by which replicas of the controller report when a scheduler asked them."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from kerf_dra.api.core.v1 import Lease, LeaseSpec
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.controller.structured.extender_activity import ASKED_AT, ExtenderActivity
from kerf_dra.driver.kube.http.errors import ConflictError, NotFoundError

LEASE = ObjectRef("kerf-system", "kerf-controller")
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


@dataclass
class LeaseServer:
    """One Lease, which the leader renews; ``now`` is the time of all replicas."""

    now: datetime = NOON
    lease: Lease | None = field(
        default_factory=lambda: Lease(
            metadata=ObjectMeta(name=LEASE.name, namespace=LEASE.namespace, resource_version="1", labels={"a": "b"}),
            spec=LeaseSpec(holder_identity="leader"),
        )
    )
    is_contended: bool = False
    """Whether the leader renews the Lease between each read and write of another."""
    failure: Exception | None = None
    writes: int = 0

    async def get(self, kind: Any, name: str, namespace: str = "") -> Any:
        assert (namespace, name) == LEASE
        if self.failure is not None:
            raise self.failure
        if self.lease is None:
            raise NotFoundError("GET", 404, "NotFound", name)
        found = self.lease
        if self.is_contended:
            self.renew()
        return found

    async def update(self, kind: Any, value: Any, *, subresource: str = "") -> Any:
        assert self.lease is not None
        if value.metadata.resource_version != self.lease.metadata.resource_version:
            raise ConflictError("PUT", 409, "Conflict", "modified")
        self.writes += 1
        self.lease = value
        self.renew()
        return self.lease

    def renew(self) -> None:
        assert self.lease is not None
        version = str(int(self.lease.metadata.resource_version) + 1)
        self.lease = replace(self.lease, metadata=replace(self.lease.metadata, resource_version=version))

    def annotate(self, text: str) -> None:
        assert self.lease is not None
        self.lease = replace(self.lease, metadata=replace(self.lease.metadata, annotations={ASKED_AT: text}))

    def replica(self) -> ExtenderActivity:
        return ExtenderActivity(self, LEASE, now=lambda: self.now)
