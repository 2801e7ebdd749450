"""The namespace of one test: creating objects in it, and waiting for their state."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.e2e import container_log, pods
from tests.e2e.container_log import ContainerReport
from tests.e2e.node import NodeView
from tests.e2e.wait import PATIENCE_S, eventually
from tests.e2e.why_audit import WhyAudit
from tools.realcluster.api import Api, Document

GONE_S: Final = 90.0
"""The time limit for cleanup after a test: the kubelet looks every 60 s for claims that it has to unprepare, and the
plugin takes back what the kubelet forgets within a minute of the claim's end."""
FORGOTTEN_S: Final = 400.0
"""The same where the kubelet lists no claims (before Kubernetes 1.34): what it forgets is kept for five minutes."""
SETTLED_S: Final = 90.0
"""The time limit for slices to follow allocations: a client that has lost the API server may retry only every 60 s."""

_KERF: Final = "kerf.dev/v1alpha1"


@dataclass(frozen=True, slots=True)
class RunningPod:
    """A running pod with the reports of its containers."""

    pod: Document
    containers: Mapping[str, ContainerReport]

    @property
    def main(self) -> ContainerReport:
        """The report of the first container."""
        return next(iter(self.containers.values()))

    @property
    def starts(self) -> Sequence[tuple[str, int]]:
        """The ID and restart count of each container, which stay the same while the containers run."""
        return [(one["containerID"], one["restartCount"]) for one in self.pod["status"]["containerStatuses"]]


class Namespace:
    """One namespace, and the ResourceClasses that its test has created.

    With a ``why_audit``, an event that a test waits for has ``kerf why`` asked about the pods that wait by then.
    """

    def __init__(self, api: Api, name: str, nodes: Mapping[str, NodeView], why_audit: WhyAudit | None = None) -> None:
        self.api = api
        self.name = name
        self.nodes = nodes
        self._why_audit = why_audit
        self._classes: list[str] = []
        self._made_before = {node.name: node.gpu_partitions for node in nodes.values()}

    @property
    def node(self) -> NodeView:
        """The first node, which has a kubelet."""
        return next(iter(self.nodes.values()))

    async def open(self, **labels: str) -> None:
        """Create the namespace with ``labels``, written with ``_`` for ``-`` and ``__`` for ``/``."""
        named = {key.replace("__", "/").replace("_", "-"): value for key, value in labels.items()}
        await self.api.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name, "labels": named}}
        )

        async def has_account() -> Document | None:
            return await self.api.find("v1", "ServiceAccount", "default", self.name)

        await eventually(f"service account default in {self.name}", has_account)

    async def close(self) -> None:
        """Delete everything, and fail if anything of it stays on a node."""
        await self.delete_pods()
        await self.api.delete("v1", "Namespace", self.name)
        for name in self._classes:
            await self.api.delete(_KERF, "ResourceClass", name)

    async def delete_pods(self) -> None:
        """Delete all pods, and wait until the nodes are as before."""
        for pod in await self.api.list("v1", "Pod", self.name):
            await self.api.delete("v1", "Pod", pod["metadata"]["name"], self.name)
        await self.wait_clean()

    async def wait_clean(self) -> None:
        """Wait until no node has a partition, but those from before the test, nor a CDI file or record."""

        async def left() -> list[object]:
            return [one for node in self.nodes.values() for one in await self._list_left(node) if one]

        async def is_nothing() -> bool:
            return not await left()

        await eventually("all nodes as they were", is_nothing, within_s=GONE_S, but=left)

    async def _list_left(self, node: NodeView) -> Sequence[object]:
        new = [one for one in node.gpu_partitions if one not in self._made_before[node.name]]
        return [*new, *node.half_loaded, *node.cdi_files, await node.claim_records()]

    async def published_devices(self) -> Sequence[str]:
        """Return the names of all published devices, in the order in which the scheduler tries them."""
        return _list_devices(await self._slices())

    async def complete_devices(self) -> Sequence[str]:
        """Return the same; nothing while a slice of a pool is missing, or not yet of its newest generation."""
        slices = await self._slices()
        pools = [one["spec"]["pool"] for one in slices]
        newest = {
            pool["name"]: max(one["generation"] for one in pools if one["name"] == pool["name"]) for pool in pools
        }
        counts = Counter(pool["name"] for pool in pools)
        is_complete = all(
            (pool["generation"], pool["resourceSliceCount"]) == (newest[pool["name"]], counts[pool["name"]])
            for pool in pools
        )
        return _list_devices(slices) if is_complete else ()

    async def _slices(self) -> Sequence[Document]:
        """Return the slices of the nodes with a kubelet, by pool and name."""
        slices = await self.api.list(pods.RESOURCE, "ResourceSlice")
        ours = [one for one in slices if one["spec"].get("nodeName") in self.nodes]
        return sorted(ours, key=lambda one: (one["spec"]["pool"]["name"], one["metadata"]["name"]))

    async def wait_published(self, idle: Sequence[str]) -> None:
        """Wait until devices are published in the order ``idle``, which follows allocations after some seconds."""

        async def is_idle() -> bool:
            return await self.published_devices() == idle

        await eventually("the publish order of an idle node", is_idle, within_s=SETTLED_S, but=self.published_devices)

    async def resource_class(self, name: str, **spec: Any) -> str:
        """Create a ResourceClass with a name unique to this test, and return that name once claims can use the
        class."""
        name = f"{self.name}-{name}"
        self._classes.append(name)
        document = {
            "apiVersion": "kerf.dev/v1alpha1",
            "kind": "ResourceClass",
            "metadata": {"name": name},
            "spec": spec,
        }
        await self.api.apply(document)

        async def has_device_class() -> Document | None:
            return await self.api.find(pods.RESOURCE, "DeviceClass", name)

        await eventually(f"DeviceClass {name}", has_device_class, but=lambda: self._class_status(name))
        return name

    async def apply(self, *documents: Document) -> None:
        """Apply ``documents`` in this namespace."""
        for document in documents:
            metadata = {**document["metadata"], "namespace": self.name}
            await self.api.apply({**document, "metadata": metadata})

    async def template(self, name: str, *requests: Document, **more: Any) -> None:
        """Create a claim template; the arguments are those of ``pods.devices``."""
        await self.apply(pods.template(name, pods.devices(*requests, **more)))

    async def claim(self, name: str, *requests: Document, **more: Any) -> None:
        """Create a claim; the arguments are those of ``pods.devices``."""
        await self.apply(pods.claim(name, pods.devices(*requests, **more)))

    async def create_pods(self, template: str, *names: str, **more: Any) -> None:
        """Create pods with one claim of ``template`` each; further arguments are those of ``pods.pod``."""
        for name in names:
            await self.apply(pods.pod(name, {"devices": pods.by_template(template)}, **more))

    async def wait_running(self, name: str, *, within_s: float = PATIENCE_S) -> RunningPod:
        """Return the pod once all its containers run and have reported."""

        async def probe() -> RunningPod | None:
            return await self.find_running(name)

        return await eventually(f"pod {name} runs", probe, within_s=within_s, but=lambda: self.describe_pod(name))

    async def find_running(self, name: str) -> RunningPod | None:
        """Return the pod if all its containers run and have reported."""
        pod = await self.pod(name)
        statuses = pod["status"].get("containerStatuses", ())
        if not statuses or not all(one["ready"] for one in statuses):
            return None
        node = self.nodes[pod["spec"]["nodeName"]]
        told = {one["name"]: container_log.read(node.pod_logs(pod, one["name"])) for one in pod["spec"]["containers"]}
        said = {name: words for name, words in told.items() if words is not None}
        return RunningPod(pod, said) if len(said) == len(told) else None

    async def wait_event(self, name: str, reason: str, saying: str = "") -> str:
        """Return the message of an event of the pod with ``reason``, such as ``FailedScheduling``, once there is one.

        Its message has ``saying`` in it: scheduler and kubelet may say something else before.
        """

        async def probe() -> str | None:
            messages = [one["message"] for one in await self.events(name) if one["reason"] == reason]
            return next((message for message in reversed(messages) if saying in message), None)

        what = f"event {reason} of pod {name}, saying {saying!r}"
        message = await eventually(what, probe, but=lambda: self.describe_pod(name))
        if self._why_audit is not None:
            await self._why_audit.audit(at_once=True)
        return message

    async def pod(self, name: str) -> Document:
        return await self.api.get("v1", "Pod", name, self.name)

    async def claims(self) -> list[Document]:
        return await self.api.list(pods.RESOURCE, "ResourceClaim", self.name)

    async def allocation_results(self, pod: str) -> Sequence[Document]:
        """Return the allocation results of all claims of a pod, in the order of its claims."""
        seen = await self.pod(pod)
        made = {one["name"]: one["resourceClaimName"] for one in seen["status"].get("resourceClaimStatuses", ())}
        names = [one.get("resourceClaimName") or made[one["name"]] for one in seen["spec"]["resourceClaims"]]
        found = [await self.api.get(pods.RESOURCE, "ResourceClaim", name, self.name) for name in names]
        return [result for claim in found for result in claim["status"]["allocation"]["devices"]["results"]]

    async def events(self, about: str) -> list[Document]:
        """Return the events of an object, oldest first."""
        selector = f"involvedObject.name={about}"
        found = await self.api.list("v1", "Event", self.name, fieldSelector=selector)
        return sorted(found, key=lambda event: str(event["metadata"]["creationTimestamp"]))

    async def delete_pod(self, name: str, *, grace_s: int | None = None) -> None:
        """Delete the pod and wait until it is gone."""
        await self.api.delete("v1", "Pod", name, self.name, grace_s=grace_s)
        await self.wait_gone("v1", "Pod", name)

    async def wait_gone(self, api_version: str, kind: str, name: str) -> None:
        async def is_gone() -> bool:
            return await self.api.find(api_version, kind, name, self.name) is None

        await eventually(f"{kind} {name} is gone", is_gone, within_s=GONE_S)

    async def describe_pod(self, pod: str) -> str:
        """Return the pod's phase and its latest events, for messages."""
        found = await self.api.find("v1", "Pod", pod, self.name)
        phase = found["status"].get("phase") if found else "gone"
        said = [f"{event['reason']}: {event['message']}" for event in await self.events(pod)]
        return "\n".join([f"phase {phase}", *said[-5:]])

    async def _class_status(self, name: str) -> object:
        return (await self.api.get(_KERF, "ResourceClass", name)).get("status")


def _list_devices(slices: Sequence[Document]) -> Sequence[str]:
    return [device["name"] for one in slices for device in one["spec"].get("devices", ())]
