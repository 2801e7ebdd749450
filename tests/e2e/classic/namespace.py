"""The namespace of one test on a cluster where drivers allocate: creating objects, and waiting for their state."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from tests.e2e import container_log
from tests.e2e.classic.dialects import DRIVER, KERF, Dialect, Parameters
from tests.e2e.container_log import ContainerReport
from tests.e2e.namespace import FORGOTTEN_S
from tests.e2e.node import NodeView
from tests.e2e.pods import REPORT_COMMAND
from tests.e2e.wait import PATIENCE_S, eventually
from tests.e2e.why_audit import WhyAudit
from tools.realcluster.api import Api, Document
from tools.realcluster.documents import IMAGE

CONTEXT: Final = "PodSchedulingContext"
MANY_S: Final = 120.0
"""The time limit for dozens of pods, some of which the scheduler retries after ten seconds."""


class ClassicNamespace:
    """One namespace in the resource API version of ``dialect``."""

    def __init__(self, api: Api, name: str, node: NodeView, dialect: Dialect, why_audit: WhyAudit) -> None:
        self.api = api
        self.name = name
        self.node = node
        self.dialect = dialect
        self.resource = dialect.api_version
        self._why_audit = why_audit

    async def open(self) -> None:
        await self.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name}})

    async def close(self) -> None:
        """Delete everything, and fail if a finalizer, partition, CDI file or record is left."""
        for api_version, kind in (("v1", "Pod"), (self.resource, "ResourceClaim")):
            for held in await self.api.list(api_version, kind, self.name):
                await self.api.delete(api_version, kind, held["metadata"]["name"], self.name, grace_s=0)
        await eventually("all claims are gone", self.has_no_claims, but=self.claims)
        await self.wait_clean()
        await self.api.delete("v1", "Namespace", self.name)

    async def wait_clean(self) -> None:
        """Wait until the node has no partition, CDI file or record."""

        async def left() -> list[object]:
            node = self.node
            found = (*node.gpu_partitions, *node.half_loaded, *node.cdi_files, await node.claim_records())
            return [one for one in found if one]

        async def is_nothing() -> bool:
            return not await left()

        await eventually("the node has nothing left", is_nothing, within_s=FORGOTTEN_S, but=left)

    async def claims(self) -> list[Document]:
        return await self.api.list(self.resource, "ResourceClaim", self.name)

    async def has_no_claims(self) -> bool:
        return not await self.claims()

    async def parameters(self, name: str, spec: Document, kind: str = "GpuClaimParameters") -> Parameters:
        """Return claim parameters; creates an object of them where claims refer to parameters by name."""
        if self.dialect.refers:
            metadata = {"name": name, "namespace": self.name}
            await self.api.create({"apiVersion": KERF, "kind": kind, "metadata": metadata, "spec": spec})
        return Parameters(name, kind, spec)

    async def class_(self, name: str, *, driver: str = DRIVER, suitable_nodes: Document | None = None) -> None:
        """Create a class without parameters; ``suitable_nodes`` is a node selector."""
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
        await self.api.delete(self.resource, "ResourceClaim", name, self.name)

    async def template(self, name: str, class_name: str, parameters: Parameters | None = None) -> None:
        spec = self.dialect.claim_spec(class_name, parameters, immediate=False)
        await self._create("ResourceClaimTemplate", name, {"spec": spec})

    async def pod(self, name: str, claims: dict[str, Document], **spec: Any) -> None:
        """Create a pod with ``claims``, by entry ``{"resourceClaimName": …}`` or ``{"resourceClaimTemplateName": …}``.

        ``spec`` has further fields or replaces defaults, such as the one container that has all claims.
        """
        usual: Document = {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "containers": [container("main", *claims)],
            "resourceClaims": self.dialect.pod_claims(claims),
        }
        metadata = {"name": name, "namespace": self.name}
        await self.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": usual | spec})

    async def delete_pod(self, name: str) -> None:
        """Delete the pod without grace period, as if its node were lost."""
        await self.api.delete("v1", "Pod", name, self.name, grace_s=0)

    async def wait_running(self, name: str, *, within_s: float = PATIENCE_S) -> Document:
        """Return the pod once it runs."""
        return await self.wait_phase(f"pod {name} runs", name, "Running", within_s=within_s)

    async def wait_phase(self, what: str, name: str, phase: str, *, within_s: float = PATIENCE_S) -> Document:
        async def probe() -> Document | None:
            found = await self.api.get("v1", "Pod", name, self.name)
            return found if found.get("status", {}).get("phase") == phase else None

        return await eventually(what, probe, within_s=within_s, but=lambda: self.event_messages(name))

    async def wait_running_count(self, count: int) -> None:
        """Wait until exactly ``count`` pods run."""

        async def probe() -> bool:
            phases = Counter(pod["status"].get("phase") for pod in await self.api.list("v1", "Pod", self.name))
            return phases["Running"] == count

        await eventually(f"{count} pods run", probe, but=lambda: self.event_messages(""))

    async def wait_bound(self, name: str) -> str:
        """Return the node of the pod once the scheduler has bound it."""

        async def probe() -> str | None:
            found = await self.api.get("v1", "Pod", name, self.name)
            node: str | None = found["spec"].get("nodeName")
            return node

        return await eventually(f"pod {name} has a node", probe, but=lambda: self.event_messages(name))

    async def unbound_pods(self) -> Sequence[str]:
        """Return the names of the pods without a node."""
        pods = await self.api.list("v1", "Pod", self.name)
        return [pod["metadata"]["name"] for pod in pods if "nodeName" not in pod["spec"]]

    async def wait_bound_count(self, count: int) -> None:
        """Wait until exactly ``count`` pods have a node."""

        async def probe() -> bool:
            pods = await self.api.list("v1", "Pod", self.name)
            return len(pods) - len(await self.unbound_pods()) == count

        await eventually(f"{count} pods have a node", probe, within_s=MANY_S, but=self.unbound_pods)

    async def read_report(self, pod: str, container: str = "main") -> ContainerReport:
        """Return the report of a container once its pod runs."""
        found = await self.wait_running(pod)

        async def probe() -> ContainerReport | None:
            return container_log.read(self.node.pod_logs(found, container))

        return await eventually(f"container {container} of {pod} has said what it sees", probe)

    async def read_claim(self, name: str) -> Document:
        return await self.api.get(self.resource, "ResourceClaim", name, self.name)

    async def wait_allocated(self, name: str) -> Document:
        """Return the allocation of the claim once it has one."""

        async def probe() -> Document | None:
            allocation: Document | None = (await self.read_claim(name)).get("status", {}).get("allocation")
            return allocation

        return await eventually(f"claim {name} is allocated", probe, but=lambda: self.event_messages(name))

    async def wait_allocated_count(self, count: int) -> None:
        """Wait until exactly ``count`` devices are allocated, and fail if one is allocated twice."""

        async def probe() -> bool:
            return len(await self.devices()) == count

        await eventually(f"{count} devices are given away", probe, but=self.devices)
        twice = [device for device, times in Counter(await self.devices()).items() if times > 1]
        assert twice == []

    async def devices(self) -> Sequence[str]:
        """Return the devices of all claims in the namespace."""
        return [device for claim in await self.claims() for device in self.dialect.devices(claim)]

    async def wait_gone(self, kind: str, name: str) -> None:
        async def probe() -> bool:
            api_version = "v1" if kind == "Pod" else self.resource
            return await self.api.find(api_version, kind, name, self.name) is None

        await eventually(f"{kind} {name} is gone", probe)

    async def wait_deallocated(self, name: str) -> None:
        """Wait until the claim, which exists, has no allocation."""

        async def probe() -> bool:
            return "allocation" not in (await self.read_claim(name)).get("status", {})

        await eventually(f"claim {name} is deallocated", probe, but=lambda: self.read_claim(name))

    async def wait_released(self, name: str) -> None:
        """Wait until the claim, which exists, has neither an allocation nor a finalizer."""

        async def probe() -> bool:
            return not (await self.read_claim(name))["metadata"].get("finalizers")

        await self.wait_deallocated(name)
        await eventually(f"claim {name} has no finalizer", probe, but=lambda: self.read_claim(name))

    async def event_messages(self, name: str) -> list[str]:
        """Return the messages of the events of objects whose name begins with ``name``."""
        events = await self.api.list("v1", "Event", self.name)
        return [str(event["message"]) for event in events if event["involvedObject"]["name"].startswith(name)]

    async def wait_event(self, name: str, words: str) -> None:
        """Wait for an event of such an object whose message contains ``words``; ``kerf why`` must then say more."""

        async def probe() -> bool:
            return any(words in message for message in await self.event_messages(name))

        await eventually(f"an event of {name} says {words!r}", probe, but=lambda: self.event_messages(name))
        await self._why_audit.audit(at_once=True)

    async def _create(self, kind: str, name: str, spec: Document) -> None:
        metadata = {"name": name, "namespace": self.name}
        await self.api.create({"apiVersion": self.resource, "kind": kind, "metadata": metadata, "spec": spec})


def container(name: str, *entries: str, command: str = REPORT_COMMAND) -> Document:
    """Return a container with the claims of ``entries``, which by default reports what it sees and stays."""
    return {
        "name": name,
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", command],
        "resources": {"claims": [{"name": entry} for entry in entries]},
    }
