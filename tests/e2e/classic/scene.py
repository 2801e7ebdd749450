"""One test's namespace on a cluster of 1.30: short words for its objects, and for waiting until they are somewhere."""

from typing import Any

from tests.e2e.eventually import eventually
from tests.e2e.node import NodeView
from tests.realcluster.api import Api, Document
from tests.realcluster.documents import IMAGE

RESOURCE = "resource.k8s.io/v1alpha2"
KERF = "kerf.dev/v1alpha1"


class Scene:
    """See the head of the file."""

    def __init__(self, api: Api, namespace: str, node: NodeView) -> None:
        self.api = api
        self.namespace = namespace
        self.node = node

    async def open(self) -> None:
        await self.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}})

    async def close(self) -> None:
        """Delete everything; nothing may be left behind: no finalizer, no partition, no CDI file."""
        for api_version, kind in (("v1", "Pod"), (RESOURCE, "ResourceClaim")):
            for held in await self.api.list(api_version, kind, self.namespace):
                await self.api.delete(api_version, kind, held["metadata"]["name"], self.namespace, grace_s=0)
        await eventually("all claims are gone", self._no_claims)
        await eventually("the node has nothing left", self._nothing_left)
        await self.api.delete("v1", "Namespace", self.namespace)

    async def _no_claims(self) -> bool:
        return not await self.api.list(RESOURCE, "ResourceClaim", self.namespace)

    async def _nothing_left(self) -> bool:
        return not self.node.cut and not self.node.loaded and not self.node.cdi_files

    async def parameters(self, name: str, spec: Document, kind: str = "GpuClaimParameters") -> Document:
        document = {"apiVersion": KERF, "kind": kind, "metadata": {"name": name}, "spec": spec}
        document["metadata"] |= {"namespace": self.namespace}  # type: ignore[operator]
        await self.api.create(document)
        return {"apiGroup": "kerf.dev", "kind": kind, "name": name}

    async def claim(self, name: str, class_name: str, **spec: Any) -> None:
        """``spec``: further fields, such as ``parametersRef``."""
        await self.api.create(
            {
                "apiVersion": RESOURCE,
                "kind": "ResourceClaim",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {"resourceClassName": class_name, **spec},
            }
        )

    async def template(self, name: str, class_name: str, **spec: Any) -> None:
        await self.api.create(
            {
                "apiVersion": RESOURCE,
                "kind": "ResourceClaimTemplate",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {"spec": {"resourceClassName": class_name, **spec}},
            }
        )

    async def pod(self, name: str, claims: dict[str, Document], **spec: Any) -> None:
        """``claims``: entry to its source, ``{"resourceClaimName": …}`` or ``{"resourceClaimTemplateName": …}``."""
        container = {
            "name": "main",
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "command": ["/bin/sh", "-c", "env; exec sleep 1000000"],
            "resources": {"claims": [{"name": entry} for entry in claims]},
        }
        await self.api.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 0,
                    "automountServiceAccountToken": False,
                    "containers": [container],
                    "resourceClaims": [{"name": entry, "source": source} for entry, source in claims.items()],
                    **spec,
                },
            }
        )

    async def delete_pod(self, name: str) -> None:
        await self.api.delete("v1", "Pod", name, self.namespace, grace_s=0)

    async def runs(self, name: str) -> Document:
        """The pod, once it runs."""

        async def probe() -> Document | None:
            found = await self.api.get("v1", "Pod", name, self.namespace)
            return found if found.get("status", {}).get("phase") == "Running" else None

        return await eventually(f"pod {name} runs", probe, but=lambda: self.told(name))

    async def allocated(self, name: str) -> Document:
        """The claim's allocation, once it has one."""

        async def probe() -> Document | None:
            found = await self.api.get(RESOURCE, "ResourceClaim", name, self.namespace)
            allocation: Document | None = found.get("status", {}).get("allocation")
            return allocation

        return await eventually(f"claim {name} is allocated", probe, but=lambda: self.told(name))

    async def gone(self, kind: str, name: str) -> None:
        async def probe() -> bool:
            api_version = "v1" if kind == "Pod" else RESOURCE
            return await self.api.find(api_version, kind, name, self.namespace) is None

        await eventually(f"{kind} {name} is gone", probe)

    async def released(self, name: str) -> None:
        """The claim is there, and has nothing."""

        async def probe() -> bool:
            found = await self.api.get(RESOURCE, "ResourceClaim", name, self.namespace)
            return "allocation" not in found.get("status", {}) and not found["metadata"].get("finalizers")

        await eventually(f"claim {name} is deallocated", probe)

    async def told(self, name: str) -> list[str]:
        """The messages of events about an object of this name."""
        events = await self.api.list("v1", "Event", self.namespace)
        return [str(event["message"]) for event in events if event["involvedObject"]["name"].startswith(name)]

    async def says(self, name: str, words: str) -> None:
        """Wait for an event about an object of this name."""

        async def probe() -> bool:
            return any(words in message for message in await self.told(name))

        await eventually(f"an event of {name} says {words!r}", probe, but=lambda: self.told(name))
