"""The cluster, as the kubelet plugin sees it, in memory."""

from collections.abc import Awaitable, Callable, Sequence

import anyio
import msgspec
from msgspec.structs import replace

from kerf_dra.api.core.v1 import ObjectReference, Pod
from kerf_dra.api.dra.registry import STRUCTURED_SERVICES
from kerf_dra.api.kerf.card_maintenance import CardMaintenanceObject, MaintenanceWork
from kerf_dra.api.model.allocations import AllocatedDeviceStatus
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.claims import AllocatedClaim, ResourceClaim
from kerf_dra.api.model.devices import Pool, ResourcePool, ResourceSlice, ResourceSliceSpec
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import ClaimRef, DriverName, ObjectRef
from kerf_dra.api.wire import to_builtins
from kerf_dra.driver.kube.http.errors import ConflictError, NotFoundError, UnreachableError
from kerf_dra.driver.kube.store import ObjectChange, Store
from kerf_dra.driver.kubeletplugin.cluster.base import DiscoveredDeviceSource, NotPublishedYetError
from kerf_dra.driver.kubeletplugin.inventory.devices import DeviceSet, PublishTarget
from kerf_dra.driver.partitions.slice_limits import SliceLayout
from tests.fakes.claims import DRIVER, NODE, VOCABULARIES


class FakeClaimInformer:
    """Implements ``ClaimInformer``: a claim that is put is seen at once."""

    def __init__(self, on_change: Callable[[ObjectChange[AllocatedClaim]], None]) -> None:
        self.store: Store[AllocatedClaim] = Store()
        self._on_change = on_change
        self.synced = anyio.Event()

    def put(self, claim: AllocatedClaim) -> None:
        old = self.store.get(claim.ref)
        self.store.put(claim)
        self._on_change(ObjectChange(claim.ref, old, claim))

    def remove(self, claim: AllocatedClaim) -> None:
        self.store.remove(claim.ref)
        self._on_change(ObjectChange(claim.ref, claim, None))

    async def run(self) -> None:
        self.synced.set()
        await anyio.sleep_forever()

    async def wait_synced(self) -> None:
        await self.synced.wait()


class FakeDescriptions:
    """Implements ``DescriptionSource``: what is put is told at once."""

    def __init__(self) -> None:
        self.documents: list[JsonObject] | None = []
        """None: they cannot be read."""
        self._on_change: Callable[[Sequence[JsonObject]], None] = lambda _: None

    def put(self, *documents: JsonObject) -> None:
        self.documents = [*documents]
        self._on_change(self.documents)

    async def list_now(self) -> Sequence[JsonObject] | None:
        await anyio.lowlevel.checkpoint()
        return self.documents

    async def follow(self, on_change: Callable[[Sequence[JsonObject]], None]) -> None:
        self._on_change = on_change
        await anyio.sleep_forever()


class FakeCluster:
    """Implements ``kerf_dra.driver.kubeletplugin.cluster.base.Cluster``."""

    def __init__(self, driver: str = DRIVER, layout: SliceLayout = SliceLayout.SPLIT) -> None:
        self.kubelet_services = STRUCTURED_SERVICES
        self.kubelet_lists_claims = False
        self.discovered_devices: DiscoveredDeviceSource | None = None
        self.descriptions = FakeDescriptions()
        self.maintenances = FakeDescriptions()
        self.target = PublishTarget(driver=DriverName(driver), node=NODE, layout=layout, vocabularies=VOCABULARIES)
        self.claims: dict[tuple[str, str], ResourceClaim] = {}
        self._newest_write = 0
        """The newest resource version that a write has given; what is added after it is newer."""
        self.is_down = False
        self.errors: dict[str, Exception] = {}
        """By claim name: what reading it raises."""
        self.doubts: dict[str, Exception] = {}
        """By claim UID: what listing it raises."""
        self.reads = 0
        self.published: list[tuple[Pool, ...]] = []
        self.on_target_change: Callable[[], None] = lambda: None
        self.runs = self.running = self.most_running = 0
        """How many instances have published, publish now, published at once."""
        self.claim_informer: FakeClaimInformer | None = None
        self.written: list[tuple[str, tuple[AllocatedDeviceStatus, ...]]] = []
        """Claim name and what its status was given."""
        self.write_errors: list[Exception] = []
        self.has_device_status = True
        self.can_evict = True
        self.lists = 0
        self.slice_lists = 0
        self.holds_writes = False
        """Whether what was published is not written yet."""
        self.stale: tuple[Pool, ...] | None = None
        """What the API server has instead of what was published last."""
        self.may_list = True
        self.before_pod: Callable[[], Awaitable[None]] | None = None
        """What happens while a pod is read."""
        self.pods: dict[ObjectRef, Pod] = {}
        self.reported: list[tuple[str, str, str, str]] = []
        """Events: kind and name of what they are about, reason, message."""

    def add(self, claim: ResourceClaim) -> ClaimRef:
        version = claim.metadata.version
        if version and version <= self._newest_write:
            metadata = replace(claim.metadata, resource_version=str(self._newest_write + 1))
            claim = replace(claim, metadata=metadata)
        self.claims[claim.metadata.namespace, claim.metadata.name] = claim
        return ClaimRef(claim.metadata.namespace, claim.metadata.name, claim.metadata.uid)

    def remove(self, claim: ClaimRef) -> None:
        del self.claims[claim.namespace, claim.name]

    async def read_claim(self, claim: ClaimRef, *, not_older_than: str | None = None) -> ResourceClaim | None:
        self.reads += 1
        await anyio.lowlevel.checkpoint()
        if self.is_down:
            raise UnreachableError(f"GET claim {claim}", "connection refused")
        if error := self.errors.get(claim.name):
            raise error
        return self.claims.get((claim.namespace, claim.name))

    async def list_claim(self, claim: ClaimRef) -> Sequence[ResourceClaim] | None:
        await anyio.lowlevel.checkpoint()
        if self.is_down:
            raise UnreachableError(f"GET claim {claim}", "connection refused")
        if error := self.doubts.get(claim.uid):
            raise error
        found = self.claims.get((claim.namespace, claim.name))
        return (found,) if found is not None else ()

    async def list_claims(self) -> Sequence[AllocatedClaim] | None:
        self.lists += 1
        await anyio.lowlevel.checkpoint()
        if not self.may_list:
            return None
        if self.is_down:
            raise UnreachableError("GET claims", "connection refused")
        return [AllocatedClaim(metadata=claim.metadata, status=claim.status) for claim in self.claims.values()]

    async def read_pod(self, ref: ObjectRef) -> Pod | None:
        await anyio.lowlevel.checkpoint()
        if self.is_down:
            raise UnreachableError(f"GET pod {ref}", "connection refused")
        if self.before_pod is not None:
            await self.before_pod()
        return self.pods.get(ref)

    def report(self, about: ObjectReference | None, *, type: str, reason: str, message: str) -> None:  # noqa: A002
        named = ("Node", NODE) if about is None else (about.kind, about.name)
        self.reported.append((*named, reason, message))

    def publish(self, devices: DeviceSet) -> None:
        self.published.append(devices.pools)

    async def write_maintenance_work(self, name: str, uid: str, work: MaintenanceWork) -> CardMaintenanceObject | None:
        await anyio.lowlevel.checkpoint()
        if self.is_down:
            raise UnreachableError("PATCH cardmaintenances", "connection refused")
        found = None
        documents = [*(self.maintenances.documents or ())]
        for place, document in enumerate(documents):
            if (document["metadata"]["name"], document["metadata"].get("uid", "")) == (name, uid):
                status = {**document.get("status", {}), "work": to_builtins(work)}
                documents[place] = found = {**document, "status": status}
        self.maintenances.put(*documents)
        return None if found is None else msgspec.convert(found, CardMaintenanceObject)

    async def list_published(self) -> Sequence[ResourceSlice]:
        """The slices of what was published last, unless a test holds writes back."""
        self.slice_lists += 1
        await anyio.lowlevel.checkpoint()
        if self.is_down:
            raise UnreachableError("GET slices", "connection refused")
        if self.holds_writes:
            raise NotPublishedYetError
        return [
            ResourceSlice(
                metadata=ObjectMeta(name=f"{pool.name}-{index}"),
                spec=ResourceSliceSpec(
                    driver=self.target.driver,
                    pool=ResourcePool(name=pool.name, generation=1, resource_slice_count=len(pool.slices)),
                    node_name=NODE,
                    devices=content.devices,
                    shared_counters=content.shared_counters,
                ),
            )
            for pool in (self.stale or (self.published[-1] if self.published else ()))
            for index, content in enumerate(pool.slices)
        ]

    def watch_claims(self, on_change: Callable[[ObjectChange[AllocatedClaim]], None]) -> FakeClaimInformer:
        self.claim_informer = FakeClaimInformer(on_change)
        return self.claim_informer

    async def write_device_status(
        self, claim: AllocatedClaim | ResourceClaim, devices: Sequence[AllocatedDeviceStatus]
    ) -> AllocatedClaim:
        """Replace the driver's entries, as a server-side apply does; other drivers' stay."""
        await anyio.lowlevel.checkpoint()
        if self.write_errors:
            raise self.write_errors.pop(0)
        held = self.claims.get(claim.ref)
        if held is None:
            raise NotFoundError(f"PATCH {claim.ref}", 404, "NotFound", "not found")
        if held.metadata.resource_version != claim.metadata.resource_version:
            raise ConflictError(f"PATCH {claim.ref}", 409, "Conflict", "the object has been modified")
        others = tuple(entry for entry in held.status.devices if entry.driver != self.target.driver)
        self._newest_write = max(self._newest_write, held.metadata.version) + 1
        kept = self.claims[claim.ref] = replace(
            held,
            metadata=replace(held.metadata, resource_version=str(self._newest_write)),
            status=replace(held.status, devices=(*others, *devices)),
        )
        self.written.append((claim.metadata.name, tuple(devices)))
        return AllocatedClaim(metadata=kept.metadata, status=kept.status)

    async def run(self, on_target_change: Callable[[], None]) -> None:
        self.on_target_change = on_target_change
        self.runs += 1
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await anyio.sleep_forever()
        finally:
            self.running -= 1
