"""Kueue on a real cluster: its own manifests and its unmodified controller manager, as a process beside the cluster.

The manager runs with the token of its service account, and with the permissions that its manifests give it. It makes
its own certificate; API servers find its webhooks by a Service, which here is an external name: this machine.
"""

import base64
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import aiohttp
import anyio
import yaml

from tools.realcluster.api import Api, Document
from tools.realcluster.builds import build_kueue, kueue_manifests
from tools.realcluster.cluster import Cluster, NotReadyError, ready_s
from tools.realcluster.paths import free_port

NAMESPACE: Final = "kueue-system"
MANAGER: Final = "kueue-controller-manager"
_CERTIFICATE: Final = "kueue-webhook-server-cert"
_WEBHOOKS: Final = "kueue-webhook-service"
_LEFT_OUT: Final = frozenset({"Deployment", "ConfigMap", "APIService"})
"""The process stands in for the Deployment; without the visibility API server its APIServices have no answer."""
_TOKEN_S: Final = 3600
_POLL_S: Final = 0.2


class Kueue:
    """Kueue's manager on one cluster."""

    def __init__(self, cluster: Cluster, api: Api) -> None:
        """``api`` has the permissions of an administrator."""
        self._cluster = cluster
        self._api = api
        self._folder = cluster.paths.root / MANAGER
        self._webhooks_port = free_port()

    async def start(self, configuration: Mapping[str, Any]) -> None:
        """Install Kueue, start it with ``configuration``, and wait until its webhooks answer.

        Raises BuildError when it cannot be built, and NotReadyError when it does not get ready in time.
        """
        program = build_kueue()
        for document in self._manifests():
            await self._api.apply(document)
        certificates, file = self._folder / "certificates", self._folder / "configuration.yaml"
        await anyio.Path(certificates).mkdir(parents=True)
        await anyio.Path(file).write_text(yaml.safe_dump(self._adapted(configuration, certificates)))
        kubeconfig = self._cluster.write_kubeconfig(MANAGER, {"token": await self._token()})
        self._cluster.processes.start(MANAGER, [str(program), f"--config={file}", f"--kubeconfig={kubeconfig}"])
        limit_s = ready_s()
        with anyio.move_on_after(limit_s):
            await self._mount_certificate(certificates)
            await self._wait_for_webhooks()
            return
        raise NotReadyError(f"{MANAGER} is not ready after {limit_s:.0f} s:\n{self._cluster.processes.tail(MANAGER)}")

    def _manifests(self) -> Sequence[Document]:
        """Return Kueue's manifests, with its webhooks on this machine."""
        command = self._cluster.kubectl("kustomize", str(kueue_manifests()))
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        documents = [document for document in yaml.safe_load_all(text) if document["kind"] not in _LEFT_OUT]
        for document in documents:
            if document["kind"] == "Service" and document["metadata"]["name"] == _WEBHOOKS:
                document["spec"] = {"type": "ExternalName", "externalName": "localhost"}
            for service in _webhook_services(document):
                service["port"] = self._webhooks_port
        return documents

    def _adapted(self, configuration: Mapping[str, Any], certificates: Path) -> Document:
        """Return ``configuration`` with the addresses of a process that shares its machine."""
        return {
            **configuration,
            "webhook": {"host": "127.0.0.1", "port": self._webhooks_port, "certDir": str(certificates)},
            "health": {"healthProbeBindAddress": "0"},
            "metrics": {"bindAddress": "0"},
            "leaderElection": {"leaderElect": False},
            "featureGates": {"VisibilityOnDemand": False},
        }

    async def _token(self) -> str:
        path = await self._api.path("v1", "ServiceAccount", NAMESPACE, MANAGER, "token")
        spec = {"expirationSeconds": _TOKEN_S}
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        return str((await self._api.request("POST", path, request))["status"]["token"])

    async def _mount_certificate(self, folder: Path) -> None:
        """Write the certificate of Kueue's Secret to ``folder``, as a kubelet mounts it."""
        while True:
            secret = await self._api.get("v1", "Secret", _CERTIFICATE, NAMESPACE)
            if secret.get("data"):
                return _write_files(folder, secret["data"])
            await anyio.sleep(_POLL_S)

    async def _wait_for_webhooks(self) -> None:
        address = f"https://127.0.0.1:{self._webhooks_port}/"
        async with aiohttp.ClientSession() as session:
            while True:
                try:
                    async with session.get(address, ssl=False):
                        return
                except aiohttp.ClientConnectionError:
                    await anyio.sleep(_POLL_S)


def _write_files(folder: Path, data: Mapping[str, str]) -> None:
    """Write the content of a Secret, each file at once."""
    for name, content in data.items():
        new = folder / f".{name}"
        new.write_bytes(base64.b64decode(content))
        new.rename(folder / name)


def _webhook_services(document: Document) -> Sequence[Document]:
    """Return the references to Services by which API servers call the webhooks that ``document`` announces."""
    configs = [each["clientConfig"] for each in document.get("webhooks", ())]
    if document["kind"] == "CustomResourceDefinition":
        conversion = document["spec"].get("conversion", {}).get("webhook", {})
        configs += [conversion["clientConfig"]] if conversion else []
    return [config["service"] for config in configs]
