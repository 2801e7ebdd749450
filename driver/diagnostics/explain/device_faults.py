"""Faults of allocated devices that published objects show: a plugin that is away, a device that is gone or tainted.

On structured clusters ResourceSlices show them: the kubelet deletes a driver's slices of its node 30 s after the plugin
has gone. On classic clusters NodeInventories do, for Kerf's own drivers only.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from kerf_dra.api.core.v1 import Pod
from kerf_dra.api.model.allocations import DeviceRequestAllocationResult
from kerf_dra.api.model.device_attributes import kept_out_taint_key, maintenance_taint_key, monitor_taint_key
from kerf_dra.api.model.devices import Device, DeviceTaint, DeviceTaintSelector
from kerf_dra.api.model.names import DeviceId, list_names
from kerf_dra.driver.allocation.semantics.allocated_state import PoolId
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.drain.maintenances import find_drained_cards
from kerf_dra.driver.diagnostics.explain.next_steps import build_drain_cause, plugin_taint_step
from kerf_dra.driver.diagnostics.explain.pod_status import HeldClaim, container_statuses
from kerf_dra.driver.diagnostics.explain.report import Cause, CauseCode
from kerf_dra.driver.diagnostics.times import format_seconds, seconds_between
from kerf_dra.driver.families.registry import installed_families

_STALE_S: Final = 180.0
"""Seconds without a report after which a plugin counts as away: it reports at least once a minute."""
_EFFECTS: Final = frozenset({"NoSchedule", "NoExecute"})
"""The effects of taints that keep claims away; others only inform."""


def find_driver_faults(cluster: ClusterIndex, node: str, claims: Sequence[HeldClaim]) -> Iterator[Cause]:
    """Yield a cause for each driver of ``claims`` whose plugin is not there on ``node``."""
    for driver in dict.fromkeys(driver for claim in claims for driver in claim.drivers):
        users = [claim for claim in claims if driver in claim.drivers]
        why = why_absent(cluster, driver, node, users)
        if why:
            yield Cause(
                code=CauseCode.DRIVER_ABSENT,
                message=f"{why}, and claim {list_names([str(claim.ref) for claim in users])} has devices of it",
                next_step=absent_step(driver, node),
                objects=(f"node {node}", *(f"claim {claim.ref}" for claim in users)),
            )


def absent_step(driver: str, node: str) -> str:
    """Return what to do about a plugin that is away."""
    return (
        f"start the plugin of {driver} on {node} (kubectl get pods -A --field-selector spec.nodeName={node} shows "
        "what runs there): the kubelet tries again by itself"
    )


def why_silent(cluster: ClusterIndex, driver: str, pod: Pod) -> str:
    """Return why the plugin of ``driver`` seems to have gone from the node of ``pod`` within the last 30 s.

    Its ResourceSlices stay for so long. Of Kerf's drivers the pods of their plugins show it at once, and the health of
    devices, which becomes ``Unknown`` in the pod's status when the plugin's stream to the kubelet ends (KEP-4680).
    """
    if driver not in {family.driver for family in installed_families().values()}:
        return ""
    node, plugins = pod.spec.node_name, cluster.state.plugin_pods
    if plugins and not any(each.node == node and each.is_ready for each in plugins):
        return f"no pod of Kerf's kubelet plugin is ready on {node}"
    health = {
        one.health
        for status in container_statuses(pod)
        for resource in status.allocated_resources_status
        if resource.name.startswith("claim:")
        for one in resource.resources
    }
    return f"the kubelet of {node} has lost its connection to the plugin of {driver}" if health == {"Unknown"} else ""


def why_absent(cluster: ClusterIndex, driver: str, node: str, claims: Sequence[HeldClaim]) -> str:
    """Return why the driver's plugin seems to be away from ``node``; empty when it is there or nothing is known."""
    classic = cluster.state.classic
    if classic is None:
        pools = {(result.driver, result.pool) for claim in claims for result in claim.results}
        is_there = any(
            slice_.pool_id.driver == driver and (slice_.published.node_name == node or slice_.pool_id in pools)
            for slice_ in cluster.slices.compact
        )
        return "" if is_there else f"driver {driver} publishes no device on {node}: its plugin does not run there"
    inventories = [each for each in classic.inventories if each.spec.driver == driver]
    if not inventories:
        return ""  # another vendor's driver, which has no NodeInventory
    found = next((each for each in inventories if each.spec.node == node), None)
    if found is None:
        return f"there is no NodeInventory {node} of driver {driver}: its plugin never ran there"
    if not found.spec.ready:
        return f"NodeInventory {node} has spec.ready: false: the plugin of {driver} has stopped there"
    silent_s = seconds_between(found.spec.renewed_at, cluster.state.gathered_at)
    if silent_s is not None and silent_s > _STALE_S:
        return f"the plugin of {driver} on {node} has not reported for {format_seconds(silent_s)} (spec.renewedAt)"
    return ""


def find_device_faults(cluster: ClusterIndex, claims: Sequence[HeldClaim]) -> Iterator[Cause]:
    """Yield a cause for each device of ``claims`` that is no longer published, or that is tainted."""
    for claim in claims:
        for result in claim.results:
            yield from _faults_of_device(cluster, claim, result)


def _faults_of_device(
    cluster: ClusterIndex, claim: HeldClaim, result: DeviceRequestAllocationResult
) -> Iterator[Cause]:
    objects = f"device {result.id}", f"claim {claim.ref}"
    device, why_gone = find_device(cluster, result.id)
    if why_gone:
        yield Cause(
            code=CauseCode.DEVICE_GONE,
            message=f"claim {claim.ref} has {result.device}, which is no longer published: {why_gone}",
            next_step="check that the card is there and healthy: the claim cannot be prepared until the device is "
            "published again",
            objects=objects,
        )
    for drained in find_drained_cards(cluster):
        if drained.card.owns(result.id):
            yield build_drain_cause(drained, "pods that hold its devices are evicted, unless they must not be")
    for taint in _taints(cluster, result.id, device):
        if taint.effect not in _EFFECTS or taint.key in (
            monitor_taint_key(result.driver),
            kept_out_taint_key(result.driver),
            maintenance_taint_key(result.driver),
        ):
            continue  # no fault of the device: these taints say who may have it, and a claim that has it keeps it
        toleration = next((each for each in result.tolerations if each.tolerates(taint)), None)
        for_s = toleration.toleration_seconds if toleration is not None else None
        tolerance = "which the claim does not tolerate" if toleration is None else "which the claim tolerates"
        tolerance += "" if for_s is None else f" for {for_s} s"
        node = result.pool.partition("/")[0]  # as Kerf's plugins name pools
        step = (
            plugin_taint_step(taint.key, {result.driver}, node)
            or "have the device repaired: the taint is then removed by the driver or the administrator who set it"
        )
        if taint.effect == "NoExecute" and (toleration is None or for_s is not None):
            when = "" if for_s is None else " when that time is over"
            step = f"its pod is evicted{when}, a new one gets other devices; {step}"
        since = f" since {taint.time_added}" if taint.time_added else ""
        yield Cause(
            code=CauseCode.DEVICE_TAINTED,
            message=f"{result.device} of claim {claim.ref} is tainted {taint.key}={taint.value}:{taint.effect}{since}, "
            f"{tolerance}",
            next_step=step,
            objects=objects,
            is_fault=toleration is None,
        )


def find_device(cluster: ClusterIndex, id_: DeviceId) -> tuple[Device | None, str]:
    """Return a published device, or why it is not published; neither when its pool is incomplete or not known."""
    if cluster.state.classic is not None:
        return None, ""
    pool = cluster.slices.newest_of_pool(PoolId(id_.driver, id_.pool))
    for slice_ in pool:
        for device in slice_.spec.devices:
            if device.name == id_.device:
                return device, ""
    if not pool:
        others = any(pool_id.driver == id_.driver for pool_id in cluster.slices.by_pool)
        return None, f"there is no pool {id_.driver}/{id_.pool}" if others else ""
    if len(pool) < pool[0].spec.pool.resource_slice_count:
        return None, ""
    devices = sum(len(slice_.spec.devices) for slice_ in pool)
    generation = pool[0].spec.pool.generation
    return None, f"generation {generation} of pool {id_.driver}/{id_.pool} has {devices} devices without it"


def _taints(cluster: ClusterIndex, id_: DeviceId, device: Device | None) -> Iterator[DeviceTaint]:
    if device is not None:
        yield from device.taints
    for rule in cluster.state.taint_rules:
        if _selects(rule.spec.device_selector, id_):
            yield rule.spec.taint
    for inventory in cluster.state.classic.inventories if cluster.state.classic else ():
        if (inventory.spec.driver, inventory.spec.node) == (id_.driver, id_.pool.partition("/")[0]):
            yield from (taint for each in inventory.spec.taints if each.device == id_.device for taint in each.taints)


def _selects(selector: DeviceTaintSelector | None, id_: DeviceId) -> bool:
    if selector is None:
        return True
    wanted = (selector.driver, id_.driver), (selector.pool, id_.pool), (selector.device, id_.device)
    return all(value is None or value == has for value, has in wanted)
