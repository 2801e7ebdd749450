"""One test's namespace where drivers allocate: short words for its objects, and for waiting until they are there."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from tests.e2e import container_log
from tests.e2e.classic.dialects import DRIVER, KERF, Dialect, Parameters
from tests.e2e.container_log import Told
from tests.e2e.node import NodeView
from tests.e2e.pods import TELL
from tests.e2e.wait import PATIENCE_S, eventually
from tests.realcluster.api import Api, Document
from tests.realcluster.documents import IMAGE

CONTEXT: Final = "PodSchedulingContext"
MANY_S: Final = 120.0
"""For dozens of pods; the scheduler tries some of them again after ten seconds."""


class Scene:
    """See the head of the file."""

    def __init__(self, api: Api, namespace: str, node: NodeView, dialect: Dialect) -> None:
        self.api = api
        self.namespace = namespace
        self.node = node
        self.dialect = dialect
        self.resource = dialect.api_version

    async def open(self) -> None:
        await self.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}})

    async def close(self) -> None:
        """Delete everything; nothing may be left behind: no finalizer, no partition, no CDI file, no record."""
        for api_version, kind in (("v1", "Pod"), (self.resource, "ResourceClaim")):
            for held in await self.api.list(api_version, kind, self.namespace):
                await self.api.delete(api_version, kind, held["metadata"]["name"], self.namespace, grace_s=0)
        await eventually("all claims are gone", self.has_no_claims, but=self.claims)
        await self.nothing_left()
        await self.api.delete("v1", "Namespace", self.namespace)

    async def nothing_left(self) -> None:
        """Wait until the node is as if no claim had ever been there."""

        async def left() -> list[object]:
            node = self.node
            found = (*node.cut, *node.loaded, *node.cdi_files, await node.claim_records())
            return [one for one in found if one]

        async def is_nothing() -> bool:
            return not await left()

        await eventually("the node has nothing left", is_nothing, but=left)

    async def claims(self) -> list[Document]:
        return await self.api.list(self.resource, "ResourceClaim", self.namespace)

    async def has_no_claims(self) -> bool:
        return not await self.claims()

    async def parameters(self, name: str, spec: Document, kind: str = "GpuClaimParameters") -> Parameters:
        """What a claim asks for; an object, where claims refer to it."""
        if self.dialect.refers:
            metadata = {"name": name, "namespace": self.namespace}
            await self.api.create({"apiVersion": KERF, "kind": kind, "metadata": metadata, "spec": spec})
        return Parameters(name, kind, spec)

    async def class_(self, name: str, *, driver: str = DRIVER, suitable_nodes: Document | None = None) -> None:
        """A class without parameters; ``suitable_nodes``: a selector."""
        await self.api.create(self.dialect.class_(name, None, driver=driver, suitable_nodes=suitable_nodes))

    async def delete_class(self, name: str) -> None:
        await self.api.delete(self.resource, self.dialect.class_kind, name)

    async def claim(
        self,
        name: str,
        class_name: str,
        parameters: Parameters | None = None,
        *,
        immediate: bool = False,
        driver: str = DRIVER,
    ) -> None:
        spec = self.dialect.claim_spec(class_name, parameters, immediate=immediate, driver=driver)
        await self._create("ResourceClaim", name, spec)

    async def delete_claim(self, name: str) -> None:
        await self.api.delete(self.resource, "ResourceClaim", name, self.namespace)

    async def template(self, name: str, class_name: str, parameters: Parameters | None = None) -> None:
        spec = self.dialect.claim_spec(class_name, parameters, immediate=False)
        await self._create("ResourceClaimTemplate", name, {"spec": spec})

    async def pod(self, name: str, claims: dict[str, Document], **spec: Any) -> None:
        """``claims``: entry to its source, ``{"resourceClaimName": …}`` or ``{"resourceClaimTemplateName": …}``.

        ``spec``: further fields, or others than usual: one container that has all claims.
        """
        usual: Document = {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "containers": [container("main", *claims)],
            "resourceClaims": self.dialect.pod_claims(claims),
        }
        metadata = {"name": name, "namespace": self.namespace}
        await self.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": usual | spec})

    async def delete_pod(self, name: str) -> None:
        """At once, as if its node were lost."""
        await self.api.delete("v1", "Pod", name, self.namespace, grace_s=0)

    async def runs(self, name: str, *, within_s: float = PATIENCE_S) -> Document:
        """The pod, once it runs."""
        return await self.pod_is(f"pod {name} runs", name, "Running", within_s=within_s)

    async def pod_is(self, what: str, name: str, phase: str, *, within_s: float = PATIENCE_S) -> Document:
        async def probe() -> Document | None:
            found = await self.api.get("v1", "Pod", name, self.namespace)
            return found if found.get("status", {}).get("phase") == phase else None

        return await eventually(what, probe, within_s=within_s, but=lambda: self.told(name))

    async def some_run(self, count: int) -> None:
        """Wait until so many pods run, whichever they are."""

        async def probe() -> bool:
            phases = Counter(pod["status"].get("phase") for pod in await self.api.list("v1", "Pod", self.namespace))
            return phases["Running"] == count

        await eventually(f"{count} pods run", probe, but=lambda: self.told(""))

    async def is_bound(self, name: str) -> str:
        """The node that the scheduler has chosen for the pod, once it has."""

        async def probe() -> str | None:
            found = await self.api.get("v1", "Pod", name, self.namespace)
            node: str | None = found["spec"].get("nodeName")
            return node

        return await eventually(f"pod {name} has a node", probe, but=lambda: self.told(name))

    async def waiting(self) -> Sequence[str]:
        """The pods without a node."""
        pods = await self.api.list("v1", "Pod", self.namespace)
        return [pod["metadata"]["name"] for pod in pods if "nodeName" not in pod["spec"]]

    async def all_bound(self, count: int) -> None:
        """Wait until so many pods have a node."""

        async def probe() -> bool:
            pods = await self.api.list("v1", "Pod", self.namespace)
            return len(pods) - len(await self.waiting()) == count

        await eventually(f"{count} pods have a node", probe, within_s=MANY_S, but=self.waiting)

    async def tells(self, pod: str, container: str = "main") -> Told:
        """What a container of a pod that runs sees."""
        found = await self.runs(pod)

        async def probe() -> Told | None:
            return container_log.read(self.node.pod_logs(found, container))

        return await eventually(f"container {container} of {pod} has said what it sees", probe)

    async def read_claim(self, name: str) -> Document:
        return await self.api.get(self.resource, "ResourceClaim", name, self.namespace)

    async def allocated(self, name: str) -> Document:
        """The claim's allocation, once it has one."""

        async def probe() -> Document | None:
            allocation: Document | None = (await self.read_claim(name)).get("status", {}).get("allocation")
            return allocation

        return await eventually(f"claim {name} is allocated", probe, but=lambda: self.told(name))

    async def all_allocated(self, count: int) -> None:
        """Wait until so many devices are given away; none of them twice."""

        async def probe() -> bool:
            return len(await self.devices()) == count

        await eventually(f"{count} devices are given away", probe, but=self.devices)
        twice = [device for device, times in Counter(await self.devices()).items() if times > 1]
        assert twice == []

    async def devices(self) -> Sequence[str]:
        """Every device that a claim of the namespace has."""
        return [device for claim in await self.claims() for device in self.dialect.devices(claim)]

    async def gone(self, kind: str, name: str) -> None:
        async def probe() -> bool:
            api_version = "v1" if kind == "Pod" else self.resource
            return await self.api.find(api_version, kind, name, self.namespace) is None

        await eventually(f"{kind} {name} is gone", probe)

    async def deallocated(self, name: str) -> None:
        """The claim is there, and has nothing."""

        async def probe() -> bool:
            return "allocation" not in (await self.read_claim(name)).get("status", {})

        await eventually(f"claim {name} is deallocated", probe, but=lambda: self.read_claim(name))

    async def released(self, name: str) -> None:
        """The claim is there, has nothing, and Kerf's mark is gone."""

        async def probe() -> bool:
            return not (await self.read_claim(name))["metadata"].get("finalizers")

        await self.deallocated(name)
        await eventually(f"claim {name} has no finalizer", probe, but=lambda: self.read_claim(name))

    async def told(self, name: str) -> list[str]:
        """The messages of events about an object of this name."""
        events = await self.api.list("v1", "Event", self.namespace)
        return [str(event["message"]) for event in events if event["involvedObject"]["name"].startswith(name)]

    async def says(self, name: str, words: str) -> None:
        """Wait for an event about an object of this name."""

        async def probe() -> bool:
            return any(words in message for message in await self.told(name))

        await eventually(f"an event of {name} says {words!r}", probe, but=lambda: self.told(name))

    async def _create(self, kind: str, name: str, spec: Document) -> None:
        metadata = {"name": name, "namespace": self.namespace}
        await self.api.create({"apiVersion": self.resource, "kind": kind, "metadata": metadata, "spec": spec})


def container(name: str, *entries: str, command: str = TELL) -> Document:
    """One that has the claims of these entries; without ``command`` it says what it sees, and stays."""
    return {
        "name": name,
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", command],
        "resources": {"claims": [{"name": entry} for entry in entries]},
    }
