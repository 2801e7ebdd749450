"""A test's own namespace: what is made in it, and what is seen of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.e2e import container_log, pods
from tests.e2e.container_log import Told
from tests.e2e.node import NodeView
from tests.e2e.wait import PATIENCE_S, eventually
from tests.realcluster.api import Api, Document

GONE_S: Final = 90.0
"""For everything of a test to go; the kubelet looks every 60 s for claims that it has to unprepare by itself."""
SETTLED_S: Final = 90.0
"""For slices to follow what is taken: seconds, but a client that has lost the API server may ask only every 60 s."""

_KERF: Final = "kerf.dev/v1alpha1"


@dataclass(frozen=True, slots=True)
class Running:
    """A pod that runs, and what its containers said."""

    pod: Document
    containers: Mapping[str, Told]

    @property
    def main(self) -> Told:
        """What the first container said."""
        return next(iter(self.containers.values()))

    @property
    def starts(self) -> Sequence[tuple[str, int]]:
        """Container id and number of restarts: the same for as long as nobody touched the containers."""
        return [(one["containerID"], one["restartCount"]) for one in self.pod["status"]["containerStatuses"]]


class Space:
    """One namespace, and the classes that its test has made beside it."""

    def __init__(self, api: Api, name: str, nodes: Mapping[str, NodeView]) -> None:
        self.api = api
        self.name = name
        self.nodes = nodes
        self._classes: list[str] = []

    @property
    def node(self) -> NodeView:
        """The one real node."""
        return next(iter(self.nodes.values()))

    async def open(self, **labels: str) -> None:
        """``labels`` of the namespace, ``_`` for ``-`` and ``__`` for ``/``."""
        named = {key.replace("__", "/").replace("_", "-"): value for key, value in labels.items()}
        await self.api.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name, "labels": named}}
        )

        async def has_account() -> Document | None:
            return await self.api.find("v1", "ServiceAccount", "default", self.name)

        await eventually(f"service account default in {self.name}", has_account)

    async def close(self) -> None:
        """Delete everything. Fails when anything of it stays on the node."""
        for pod in await self.api.list("v1", "Pod", self.name):
            await self.api.delete("v1", "Pod", pod["metadata"]["name"], self.name)
        await self.nothing_left()
        await self.api.delete("v1", "Namespace", self.name)
        for name in self._classes:
            await self.api.delete(_KERF, "ResourceClass", name)

    async def nothing_left(self) -> None:
        """No partition, CDI file or record on any node. Fails when something stays."""

        async def left() -> list[object]:
            return [
                left
                for node in self.nodes.values()
                for left in (*node.cut, *node.loaded, *node.cdi_files, await node.claim_records())
                if left
            ]

        async def is_nothing() -> bool:
            return not await left()

        await eventually("all nodes as they were", is_nothing, within_s=GONE_S, but=left)

    async def published(self) -> Sequence[str]:
        """The names of all devices of our nodes, in the order in which the scheduler looks at them."""
        slices = await self.api.list(pods.RESOURCE, "ResourceSlice")
        ours = [one for one in slices if one["spec"]["nodeName"] in self.nodes]
        ordered = sorted(ours, key=lambda one: (one["spec"]["pool"]["name"], one["metadata"]["name"]))
        return [device["name"] for one in ordered for device in one["spec"].get("devices", ())]

    async def settle(self, idle: Sequence[str]) -> None:
        """Wait until devices are published in the order ``idle``: it follows what is taken with some seconds' delay."""

        async def is_idle() -> bool:
            return await self.published() == idle

        await eventually("the publish order of an idle node", is_idle, within_s=SETTLED_S, but=self.published)

    async def resource_class(self, name: str, **spec: Any) -> str:
        """An administrator's offer under a name of this test's own; returns that name when claims can use it."""
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
        """Objects of this namespace."""
        for document in documents:
            metadata = {**document["metadata"], "namespace": self.name}
            await self.api.apply({**document, "metadata": metadata})

    async def template(self, name: str, *requests: Document, **more: Any) -> None:
        """A claim template; the arguments are those of ``pods.devices``."""
        await self.apply(pods.template(name, pods.devices(*requests, **more)))

    async def claim(self, name: str, *requests: Document, **more: Any) -> None:
        """A claim; the arguments are those of ``pods.devices``."""
        await self.apply(pods.claim(name, pods.devices(*requests, **more)))

    async def pods_of(self, template: str, *names: str, **more: Any) -> None:
        """Pods with one claim each, made from ``template``; further arguments are those of ``pods.pod``."""
        for name in names:
            await self.apply(pods.pod(name, {"devices": pods.by_template(template)}, **more))

    async def running(self, name: str, *, within_s: float = PATIENCE_S) -> Running:
        """The pod, once all its containers run and have said what they see."""

        async def probe() -> Running | None:
            pod = await self.pod(name)
            statuses = pod["status"].get("containerStatuses", ())
            if not statuses or not all(one["ready"] for one in statuses):
                return None
            node = self.nodes[pod["spec"]["nodeName"]]
            told = {
                one["name"]: container_log.read(node.pod_logs(pod, one["name"])) for one in pod["spec"]["containers"]
            }
            said = {name: words for name, words in told.items() if words is not None}
            return Running(pod, said) if len(said) == len(told) else None

        return await eventually(f"pod {name} runs", probe, within_s=within_s, but=lambda: self.why(name))

    async def waits(self, name: str, reason: str) -> str:
        """The message of the event that says why the pod waits; ``reason`` as in ``FailedScheduling``."""

        async def probe() -> str | None:
            messages = [one["message"] for one in await self.events(name) if one["reason"] == reason]
            return messages[-1] if messages else None

        return await eventually(f"event {reason} of pod {name}", probe, but=lambda: self.why(name))

    async def pod(self, name: str) -> Document:
        return await self.api.get("v1", "Pod", name, self.name)

    async def claims(self) -> list[Document]:
        return await self.api.list(pods.RESOURCE, "ResourceClaim", self.name)

    async def allocated(self, pod: str) -> Sequence[Document]:
        """The allocation results of all claims of a pod, in the order of its claims."""
        seen = await self.pod(pod)
        made = {one["name"]: one["resourceClaimName"] for one in seen["status"].get("resourceClaimStatuses", ())}
        names = [one.get("resourceClaimName") or made[one["name"]] for one in seen["spec"]["resourceClaims"]]
        found = [await self.api.get(pods.RESOURCE, "ResourceClaim", name, self.name) for name in names]
        return [result for claim in found for result in claim["status"]["allocation"]["devices"]["results"]]

    async def events(self, about: str) -> list[Document]:
        """Oldest first."""
        selector = f"involvedObject.name={about}"
        found = await self.api.list("v1", "Event", self.name, fieldSelector=selector)
        return sorted(found, key=lambda event: str(event["metadata"]["creationTimestamp"]))

    async def delete_pod(self, name: str, *, grace_s: int | None = None) -> None:
        """Delete it and wait until it is gone."""
        await self.api.delete("v1", "Pod", name, self.name, grace_s=grace_s)
        await self.gone("v1", "Pod", name)

    async def gone(self, api_version: str, kind: str, name: str) -> None:
        async def is_gone() -> bool:
            return await self.api.find(api_version, kind, name, self.name) is None

        await eventually(f"{kind} {name} is gone", is_gone, within_s=GONE_S)

    async def why(self, pod: str) -> str:
        """For people: the pod's phase and what is said of it."""
        found = await self.api.find("v1", "Pod", pod, self.name)
        phase = found["status"].get("phase") if found else "gone"
        said = [f"{event['reason']}: {event['message']}" for event in await self.events(pod)]
        return "\n".join([f"phase {phase}", *said[-5:]])

    async def _class_status(self, name: str) -> object:
        return (await self.api.get(_KERF, "ResourceClass", name)).get("status")
