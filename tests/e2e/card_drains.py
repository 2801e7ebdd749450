"""The cards of a node that a test drains, and the pods that hold them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.e2e import pods
from tests.e2e.namespace import Namespace
from tests.e2e.wait import eventually
from tools.realcluster.api import Api, Document

KERF: Final = "kerf.dev/v1alpha1"


def deployment(name: str, replicas: int, template: Document) -> Document:
    spec = {"metadata": {"labels": {"app": name}}, "spec": template["spec"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": spec},
    }


class Cards:
    """The cards of the node, and who holds them."""

    def __init__(self, api: Api, namespace: Namespace) -> None:
        self._api = api
        self._namespace = namespace

    async def list_devices(self, card: str) -> list[Document]:
        slices = await self._api.list(pods.RESOURCE, "ResourceSlice")
        devices = [device for one in slices for device in one["spec"].get("devices", ())]
        return [one for one in devices if one["name"] == card or one["name"].startswith(f"{card}-")]

    async def find_uuid(self, card: str) -> str:
        return str((await self.list_devices(card))[0]["attributes"]["uuid"]["string"])

    async def list_taints(self, card: str) -> set[str]:
        devices = await self.list_devices(card)
        return {f"{taint['key']}={taint['value']}" for one in devices for taint in one.get("taints", ())}

    async def list_holders(self, card: str) -> set[str]:
        """Return the UIDs of the pods that hold something of a card."""
        return {
            user["uid"]
            for claim in await self._namespace.claims()
            for result in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
            if result["device"] == card or result["device"].startswith(f"{card}-")
            for user in claim["status"].get("reservedFor", ())
        }

    async def list_running(self) -> Mapping[str, tuple[str, int]]:
        """Return the pods that run and are not being deleted, by UID: their names and restarts."""
        listed = await self._api.list("v1", "Pod", self._namespace.name)
        return {
            one["metadata"]["uid"]: (
                one["metadata"]["name"],
                sum(each["restartCount"] for each in one["status"]["containerStatuses"]),
            )
            for one in listed
            if one["status"]["phase"] == "Running" and not one["metadata"].get("deletionTimestamp")
        }

    async def until_running(self, count: int) -> Mapping[str, tuple[str, int]]:
        async def probe() -> Mapping[str, tuple[str, int]] | None:
            found = await self.list_running()
            return found if len(found) == count else None

        return await eventually(f"{count} pods run", probe, but=self.list_running)

    async def drain(self, card: str, **spec: Any) -> str:
        """Create a maintenance without its label, as by hand."""
        name = f"{self._namespace.name}-{card}"
        document = {"nodeName": self._namespace.node.name, "card": await self.find_uuid(card), **spec}
        metadata = {"name": name}
        await self._api.create({"apiVersion": KERF, "kind": "CardMaintenance", "metadata": metadata, "spec": document})
        return name

    async def until_phase(self, name: str, phase: str) -> Document:
        async def status() -> Document:
            found: Document = (await self._api.get(KERF, "CardMaintenance", name)).get("status", {})
            return found

        async def probe() -> Document | None:
            found = await status()
            return found if found.get("phase") == phase else None

        return await eventually(f"CardMaintenance {name} is {phase}", probe, but=status)

    async def return_card(self, name: str, card: str) -> None:
        await self._api.delete(KERF, "CardMaintenance", name)

        async def is_untainted() -> bool:
            return not await self.list_taints(card)

        await eventually(f"{card} is not tainted", is_untainted, but=lambda: self.list_taints(card))


class Hooks:
    """The folder of hooks of a node."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o755, exist_ok=True)

    def add(self, name: str, script: str, mode: int = 0o755) -> Path:
        path = self._folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(mode)
        return path
