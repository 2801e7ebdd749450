"""Discovered devices: who sees them, and who uses them where no scheduler counts their users. Pure.

On Kubernetes 1.29 to 1.31 pods get them by extended resources, and nodes enter the users in the devices' objects
(``kerf_dra.driver.families.shared.users``). A user says its node and its resource, not its pod: the pods of the node
that ask for the resource are those that may have it. On later versions claims hold devices, which is not counted here.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from kerf_dra.api.core.v1 import NodeSetup, Pod
from kerf_dra.api.kerf.discovery_objects import (
    DiscoveredDeviceObject,
    DiscoveryConfiguration,
    DiscoveryConfigurationObject,
)
from kerf_dra.api.model.names import list_names
from kerf_dra.driver.diagnostics.cluster_state import DiscoveredDeviceState, DiscoveryConfigurationState
from kerf_dra.driver.diagnostics.extended_resources.offered_resources import count_wanted, read_amount
from kerf_dra.driver.families.shared.objects import FoundDevice, join_objects, name_class
from kerf_dra.driver.families.shared.users import name_resources

_LISTED: Final = 3
"""Pods in a sentence."""
_PUBLISHED: Final = "Published"
"""The condition of a device that says why claims cannot get it."""


def find_discovered(
    configurations: Sequence[DiscoveryConfigurationObject],
    devices: Sequence[DiscoveredDeviceObject],
    nodes: Sequence[NodeSetup] = (),
) -> tuple[tuple[DiscoveryConfigurationState, ...], tuple[DiscoveredDeviceState, ...]]:
    """Return what diagnostics need of configurations and devices, with what ``nodes`` list of their resources."""
    discovery = join_objects(configurations, devices)
    return (
        tuple(_find_configurations(configurations, discovery.configurations, nodes)),
        tuple(_find_devices(devices, discovery.devices, nodes)),
    )


def _find_configurations(
    objects: Iterable[DiscoveryConfigurationObject],
    valid: Mapping[str, DiscoveryConfiguration],
    nodes: Sequence[NodeSetup],
) -> Iterator[DiscoveryConfigurationState]:
    for one in objects:
        name = one.metadata.name
        domain = valid[name].spec.extended_resource_domain if name in valid else None
        resource = "" if domain is None else f"{domain}/{name}"
        yield DiscoveryConfigurationState(
            name=name,
            class_name=name_class(name),
            is_valid=name in valid,
            resource=resource,
            must_differ=name not in valid or valid[name].spec.unique_devices,
            allocatable=_find_listed(resource, nodes),
        )


def _find_devices(
    objects: Iterable[DiscoveredDeviceObject], valid: Mapping[str, FoundDevice], nodes: Sequence[NodeSetup]
) -> Iterator[DiscoveredDeviceState]:
    for each in objects:
        name = each.metadata.name
        if (one := valid.get(name)) is None:
            yield DiscoveredDeviceState(name=name, class_name=name_class(name), configuration="", is_valid=False)
            continue
        _, resource = name_resources(one) or ("", "")
        yield DiscoveredDeviceState(
            name=name,
            class_name=name_class(name),
            configuration=one.configuration.metadata.name,
            resource=resource,
            nodes=one.device.spec.nodes,
            capacity=one.capacity,
            users=one.users,
            not_published=next(
                (
                    condition.message
                    for condition in each.status.conditions
                    if condition.type == _PUBLISHED and condition.status != "True"
                ),
                "",
            ),
            allocatable=_find_listed(resource, nodes),
        )


def _find_listed(resource: str, nodes: Iterable[NodeSetup]) -> dict[str, int]:
    amounts = {node.metadata.name: read_amount(node.status.allocatable.get(resource)) for node in nodes}
    return {node: amount for node, amount in amounts.items() if amount}


class DiscoveredDeviceUse:
    """Which devices nodes see, and what of them is left beside what ``pods`` use by extended resources."""

    def __init__(
        self,
        configurations: Iterable[DiscoveryConfigurationState],
        devices: Iterable[DiscoveredDeviceState],
        pods: Iterable[Pod],
    ) -> None:
        self._configurations = {each.name: each for each in configurations}
        self._devices = {each.name: each for each in devices}
        self._by_class: Mapping[str, DiscoveredDeviceState | DiscoveryConfigurationState] = {
            **{each.class_name: each for each in self._devices.values()},
            **{each.class_name: each for each in self._configurations.values()},
        }
        self._names = {each.resource for each in self._by_class.values() if each.resource}
        self._members: dict[str, list[DiscoveredDeviceState]] = {name: [] for name in self._configurations}
        """The devices of each configuration, and each device, by name."""
        for name, device in sorted(self._devices.items()):
            self._members[name] = [device]
            self._members.setdefault(device.configuration, []).append(device)
        self._used: Counter[tuple[str, str]] = Counter()
        self._pods: dict[tuple[str, str], list[str]] = {}
        for pod in pods if self._names else ():
            if pod.spec.node_name and not pod.is_finished:
                for name, amount in self.find_wanted(pod).items():
                    self._used[pod.spec.node_name, name] += amount
                    self._pods.setdefault((pod.spec.node_name, name), []).append(str(pod.ref))

    def find_wanted(self, pod: Pod) -> Mapping[str, int]:
        """Return how many of each resource of discovered devices ``pod`` needs at a time, those that are gone included.

        Other resources of the same domain may be another device plugin's.
        """
        return count_wanted(pod, lambda name: name in self._names or name.rpartition("-")[0] in self._names)

    def describe_unseen(self, pod: Pod, node: str) -> str:
        """Return of which resource that ``pod`` asks for ``node`` sees no device; empty: of none."""
        return next((why for name in self.find_wanted(pod) if (why := self._explain_unseen(name, node))), "")

    def describe_full(self, pod: Pod, node: str) -> str:
        """Return what ``pod`` asks for and is not left on ``node``, and who has it; empty: enough is left."""
        for name, amount in self.find_wanted(pod).items():
            seen = self._find_seen(name, node)
            if self._count_free(name, seen) >= amount:
                continue
            users = sum(len(each.users) for each in seen)
            capacity = sum(each.capacity for each in seen)
            who = f"{seen[0].name} has" if len(seen) == 1 else f"the {len(seen)} devices that the node sees have"
            differing = " different devices" if amount > 1 and self._must_differ(name) else ""
            said = f"{name}: the pod asks for {amount}{differing}, and {who} {users} of {capacity} users"
            return f"{said}: {', '.join(self._list_users(seen))}" if users else said
        return ""

    def describe_unlisted(self, pod: Pod, node: str) -> str:
        """Return what ``pod`` asks for and the kubelet of ``node`` does not list, though it is left; empty: it does."""
        for name, amount in self.find_wanted(pod).items():
            listed, used = self._find_allocatable(name).get(node, 0), self._used[node, name]
            if listed - used < amount:
                free = self._count_free(name, self._find_seen(name, node))
                lists = f"{listed}, of which pods have {used}" if listed else "none"
                return f"{name}: the pod asks for {amount} of {free} left, but the node's kubelet lists {lists}"
        return ""

    def find_class(self, resource: str) -> str | None:
        """Return the DeviceClass by which claims get what ``resource`` gives; None: there are no such devices."""
        found = self._find_state(resource)
        return None if found is None else found.class_name

    def find_class_resource(self, class_name: str) -> str | None:
        """Return the extended resource by which pods get what claims get by a DeviceClass; empty: by none, None: the
        class is not one of discovered devices.
        """
        found = self._by_class.get(class_name)
        return None if found is None else found.resource

    def describe_class_unseen(self, class_name: str, node: str) -> str:
        """Return that ``node`` sees no device of a DeviceClass, or only what is not published; empty: it sees one, or
        the class is not one of discovered devices.
        """
        found = self._by_class.get(class_name)
        if found is None:
            return ""
        if why := self._explain_members_unseen(found.name, node):
            return why
        seen = [each for each in self._members[found.name] if node in each.nodes]
        unpublished = [each for each in seen if each.not_published]
        if len(unpublished) < len(seen):
            return ""
        return f"{unpublished[0].name} is not published: {unpublished[0].not_published}"

    def _explain_unseen(self, resource: str, node: str) -> str:
        why = self._explain_members_unseen(resource.partition("/")[2], node)
        return f"{resource}: {why}" if why else ""

    def _explain_members_unseen(self, name: str, node: str) -> str:
        configuration, device = self._configurations.get(name), self._devices.get(name)
        if configuration is None and device is None:
            return f"there is no DiscoveredDevice {name}"
        if configuration is not None and not configuration.is_valid:
            return f"DiscoveryConfiguration {name} is invalid"
        if device is not None and not device.is_valid:
            return f"DiscoveredDevice {name} is invalid"
        members = self._members[name]
        if not members:
            return f"no node has found a device of DiscoveryConfiguration {name}"
        if any(node in each.nodes for each in members):
            return ""
        seeing = sorted({each for member in members for each in member.nodes})
        what = f"does not see {members[0].name}" if len(members) == 1 else f"sees none of its {len(members)} devices"
        if not seeing:
            return f"the node {what}, nor does another node"
        return f"the node {what}; seen by {list_names(seeing)}"

    def _find_seen(self, resource: str, node: str) -> list[DiscoveredDeviceState]:
        return [each for each in self._members.get(resource.partition("/")[2], ()) if node in each.nodes]

    def _must_differ(self, resource: str) -> bool:
        configuration = self._configurations.get(resource.partition("/")[2])
        return configuration is not None and configuration.must_differ

    def _count_free(self, resource: str, seen: Iterable[DiscoveredDeviceState]) -> int:
        """Return how many more a node's kubelet may give, as ``kerf_dra.driver.families.shared.users.list_healthy``
        does.
        """
        free = [max(0, each.capacity - len(each.users)) for each in seen]
        return sum(map(bool, free)) if self._must_differ(resource) else sum(free)

    def _find_allocatable(self, resource: str) -> Mapping[str, int]:
        found = self._find_state(resource)
        return {} if found is None else found.allocatable

    def _find_state(self, resource: str) -> DiscoveryConfigurationState | DiscoveredDeviceState | None:
        """Return the configuration, or else the device, that an extended resource names."""
        name = resource.partition("/")[2]
        return self._configurations.get(name) or self._devices.get(name)

    def _list_users(self, devices: Iterable[DiscoveredDeviceState]) -> Iterator[str]:
        """Yield the users by node and resource, with the pods that may be them."""
        users = Counter((user.node, user.resource) for each in devices for user in each.users)
        for (node, resource), number in sorted(users.items()):
            ended = number - self._used[node, resource]
            pods: Sequence[str] = sorted(self._pods.get((node, resource), ()))
            named = [*pods[:_LISTED], *([f"{len(pods) - _LISTED} more pods"] if len(pods) > _LISTED else [])]
            if ended > 0:
                named.append(f"{ended} whose pod has ended")
            yield f"{number} on {node} by {resource} ({', '.join(named)})"
