"""Prepared claims: which pods use which claim, and the calls to drivers that follow.

Rules of ``k8s.io/kubernetes/pkg/kubelet/cm/dra/manager.go``: one NodePrepareResources call for each driver with all
claims of a pod, one driver after the other, and the first error stops the start of the pod; a claim that another pod of
the node holds is not prepared again; the last pod's end unprepares it. Nothing here survives a restart.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from kerf_dra.api.core.v1 import Container, Pod
from kerf_dra.api.errors import TransientError
from kerf_dra.api.model.claims import ResourceClaim
from kerf_dra.api.model.names import ClaimRef, RequestName
from kerf_dra.api.model.prepared import ReportedDevice
from kerf_dra.api.resource.classic import ClassicKinds
from kerf_dra.api.resource.kinds import ResourceKinds
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.errors import NotFoundError
from kerf_dra.driver.local.kubelet.plugins import Driver, DriverCallError, PluginWatcher

CALL_TIMEOUT_S: Final = 45.0
"""The deadline of one NodePrepareResources or NodeUnprepareResources call (the kubelet's, half of its 90 s retry)."""


class ClaimNotReadyError(TransientError):
    """A claim cannot be prepared yet; the pod waits and is retried."""


@dataclass(slots=True)
class _ClaimInfo:
    """A claim that pods of this node use (the kubelet's ``ClaimInfo``)."""

    ref: ClaimRef
    drivers: frozenset[str]
    pods: set[str] = field(default_factory=set)
    devices: dict[str, tuple[ReportedDevice, ...]] = field(default_factory=dict)
    """The prepared devices of each driver that has prepared its part."""

    @property
    def is_prepared(self) -> bool:
        return self.drivers <= self.devices.keys()


class NodeClaims:
    """The claims in use on one node."""

    def __init__(self, client: Client, kinds: ResourceKinds | ClassicKinds, plugins: PluginWatcher) -> None:
        self._client = client
        self._kinds = kinds
        self._plugins = plugins
        self._infos: dict[str, _ClaimInfo] = {}

    async def prepare(self, pod: Pod) -> None:
        """Prepare all claims of ``pod``; may be repeated.

        Raises ClaimNotReadyError when a claim is not allocated and reserved yet, DriverCallError when a driver fails.
        """
        missing = len(pod.spec.resource_claims) - len(pod.claim_names())
        claims = [await self._track(pod, name) for name in pod.all_claim_names]
        if missing:
            raise ClaimNotReadyError(f"{missing} of the pod's claims are not created yet")
        waiting = [claim for claim in claims if not claim.is_prepared]
        for driver in sorted({driver for claim in waiting for driver in claim.drivers}):
            await self._prepare_with(driver, [claim for claim in waiting if driver in claim.drivers])

    async def unprepare(self, pod: Pod) -> None:
        """Unprepare what ``pod`` alone uses; may be repeated.

        Raises DriverCallError when a driver fails; the claim stays prepared then.
        """
        for claim in [claim for claim in self._infos.values() if pod.metadata.uid in claim.pods]:
            if claim.pods == {pod.metadata.uid}:
                for driver in sorted(claim.drivers):
                    await self._unprepare_with(driver, claim)
                del self._infos[claim.ref.uid]
            else:
                claim.pods.discard(pod.metadata.uid)

    def cdi_ids(self, pod: Pod, container: Container) -> tuple[str, ...]:
        """Return the CDI device ids of one container, each once, in the order of its references."""
        ids: dict[str, None] = {}
        for name, request in _list_requests(pod, container):
            for claim in self._infos.values():
                if (claim.ref.namespace, claim.ref.name) == (pod.metadata.namespace, name):
                    devices = [device for part in claim.devices.values() for device in part]
                    ids.update(dict.fromkeys(_list_cdi_ids(devices, request)))
        return tuple(ids)

    def devices(self, pod: Pod) -> Mapping[ClaimRef, tuple[ReportedDevice, ...]]:
        """Return the prepared devices of each claim of the pod."""
        return {
            claim.ref: tuple(device for part in claim.devices.values() for device in part)
            for claim in self._infos.values()
            if pod.metadata.uid in claim.pods
        }

    async def _track(self, pod: Pod, name: str) -> _ClaimInfo:
        try:
            claim = await self._client.get(self._kinds.resource_claims, name, pod.metadata.namespace)
        except NotFoundError:
            raise ClaimNotReadyError(f"ResourceClaim {name} does not exist") from None
        ref = ClaimRef(pod.metadata.namespace, name, claim.metadata.uid)
        for other in self._infos.values():
            if other.ref[:2] == ref[:2] and other.ref.uid != ref.uid:
                raise ClaimNotReadyError(f"an older ResourceClaim {name} is still prepared on this node")
        drivers = _find_drivers(claim, pod)
        held = self._infos.setdefault(ref.uid, _ClaimInfo(ref=ref, drivers=drivers))
        held.pods.add(pod.metadata.uid)
        return held

    async def _prepare_with(self, name: str, claims: list[_ClaimInfo]) -> None:
        driver = self._driver(name)
        refs = [claim.ref for claim in claims]
        outcomes = await driver.call(driver.service.prepare, refs, CALL_TIMEOUT_S)
        _check_uids(name, outcomes.keys(), {ref.uid for ref in refs})
        for claim in claims:
            outcome = outcomes[claim.ref.uid]
            if outcome.error:
                raise DriverCallError(f"driver {name} could not prepare ResourceClaim {claim.ref}: {outcome.error}")
            claim.devices[name] = outcome.devices

    async def _unprepare_with(self, name: str, claim: _ClaimInfo) -> None:
        driver = self._driver(name)
        errors = await driver.call(driver.service.unprepare, [claim.ref], CALL_TIMEOUT_S)
        _check_uids(name, errors.keys(), {claim.ref.uid})
        if errors[claim.ref.uid]:
            raise DriverCallError(
                f"driver {name} could not unprepare ResourceClaim {claim.ref}: {errors[claim.ref.uid]}"
            )
        claim.devices.pop(name, None)

    def _driver(self, name: str) -> Driver:
        driver = self._plugins.get(name)
        if driver is None:
            raise DriverCallError(f"DRA driver {name} is not registered on this node")
        return driver


def _find_drivers(claim: ResourceClaim, pod: Pod) -> frozenset[str]:
    """Return the drivers of a claim. Raises ClaimNotReadyError unless it is allocated and reserved for the pod."""
    if claim.status.allocation is None:
        raise ClaimNotReadyError(f"ResourceClaim {claim.metadata.name} is not allocated")
    if pod.metadata.uid not in {consumer.uid for consumer in claim.status.reserved_for}:
        raise ClaimNotReadyError(f"ResourceClaim {claim.metadata.name} is not reserved for the pod")
    return frozenset(result.driver for result in claim.status.allocation.devices.results)


def _list_requests(pod: Pod, container: Container) -> Iterator[tuple[str | None, str]]:
    """Yield each claim and request of a container, by reference or extended resource; "" is all requests."""
    names = pod.claim_names()
    for wanted in container.resources.claims:
        yield names.get(wanted.name), wanted.request
    extended = pod.status.extended_resource_claim_status
    if extended is not None:
        for mapping in extended.request_mappings:
            if mapping.container_name == container.name:
                yield extended.resource_claim_name, mapping.request_name


def _list_cdi_ids(devices: Iterable[ReportedDevice], request: str) -> Iterable[str]:
    for device in devices:
        requests = {RequestName.parse(name).request for name in device.requests}
        if not request or not requests or request in requests:
            yield from device.cdi_ids


def _check_uids(driver: str, answered: Iterable[str], requested: set[str]) -> None:
    answers = set(answered)
    if missing := requested - answers:
        raise DriverCallError(f"driver {driver} skipped the claims {', '.join(sorted(missing))}")
    if unknown := answers - requested:
        raise DriverCallError(f"driver {driver} answered for claims it was not asked for: {', '.join(sorted(unknown))}")
