"""A client of the API server in raw JSON, so that tests do not depend on Kerf's own client."""

import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

import aiohttp
import yaml

Document: TypeAlias = dict[str, Any]
"""A Kubernetes object as JSON."""

_TIMEOUT_S: Final = 30.0
_COMPACT: Final = (",", ":")
"""As Go's clients send it. API servers compare opaque parameters of claims byte by byte: they keep what is sent, and
write it without blanks, so every patch of a claim that has some would be a change of its immutable spec (1.31.0)."""
_MANAGER: Final = "kerf-e2e"
"""The field manager of objects that tests apply."""


class StatusError(Exception):
    """The API server returned an error status."""

    def __init__(self, code: int, status: Document) -> None:
        self.code = code
        self.status = status
        self.reason = str(status.get("reason", ""))
        self.message = str(status.get("message", ""))
        super().__init__(f"{code} {self.reason}: {self.message}")


class Api:
    """A client with the credentials of one user; calls raise StatusError and aiohttp's ClientError.

    Objects are found by their ``apiVersion`` and ``kind``, which discovery turns into paths.
    """

    def __init__(self, kubeconfig: Path) -> None:
        document = yaml.safe_load(kubeconfig.read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        self._server = cluster["server"]
        self._ssl = _context(cluster) if self._server.startswith("https") else False
        token = Path(user["tokenFile"]).read_text() if "tokenFile" in user else user.get("token", "")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._resources: dict[tuple[str, str], Document] = {}

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
        self._session = aiohttp.ClientSession(headers=self._headers, timeout=timeout)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Document:
        """Send a request, with ``body`` as JSON unless it is bytes, and return the JSON answer; text becomes
        ``message``."""
        async with self._session.request(
            method,
            self._server + path,
            params=query,
            data=body if body is None or isinstance(body, bytes) else json.dumps(body, separators=_COMPACT),
            headers={"Content-Type": content_type},
            ssl=self._ssl,
        ) as response:
            text = await response.text()
            answer: Document = json.loads(text) if "json" in response.content_type else {"message": text}
            if response.status >= 400:
                raise StatusError(response.status, answer)
            return answer

    async def get(self, api_version: str, kind: str, name: str, namespace: str = "") -> Document:
        return await self.request("GET", await self.path(api_version, kind, namespace, name))

    async def find(self, api_version: str, kind: str, name: str, namespace: str = "") -> Document | None:
        """Return the object; None when there is none."""
        try:
            return await self.get(api_version, kind, name, namespace)
        except StatusError as error:
            if error.code == 404:
                return None
            raise

    async def list(self, api_version: str, kind: str, namespace: str = "", **query: str) -> list[Document]:
        """Return all objects that match ``query``, which has the API's parameters such as ``labelSelector``."""
        answer = await self.request("GET", await self.path(api_version, kind, namespace), query=query)
        return list(answer["items"])

    async def create(self, document: Document, **query: str) -> Document:
        path = await self._path_of(document, collection=True)
        return await self.request("POST", path, document, query={"fieldValidation": "Strict", **query})

    async def apply(self, document: Document, **query: str) -> Document:
        """Apply ``document`` on the server side; an unknown field is an error."""
        return await self.request(
            "PATCH",
            await self._path_of(document),
            document,
            query={"fieldManager": _MANAGER, "force": "true", "fieldValidation": "Strict", **query},
            content_type="application/apply-patch+yaml",
        )

    async def patch(
        self, api_version: str, kind: str, name: str, patch: Document, namespace: str = "", *, subresource: str = ""
    ) -> Document:
        """Send a merge patch."""
        path = await self.path(api_version, kind, namespace, name, subresource)
        return await self.request("PATCH", path, patch, content_type="application/merge-patch+json")

    async def delete(
        self, api_version: str, kind: str, name: str, namespace: str = "", *, grace_s: int | None = None
    ) -> None:
        """Delete an object, and in the background what it owns, as kubectl does; does nothing when there is none."""
        options: Document = {"propagationPolicy": "Background"}  # a Job would leave its pods by default
        options |= {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        try:
            await self.request("DELETE", await self.path(api_version, kind, namespace, name), options)
        except StatusError as error:
            if error.code != 404:
                raise

    @asynccontextmanager
    async def watch(self, api_version: str, kind: str, **query: str) -> AsyncIterator[AsyncIterator[Document]]:
        """Yield watch events as they arrive; ``query`` needs at least ``resourceVersion``."""
        path = await self.path(api_version, kind)
        endless = aiohttp.ClientTimeout(total=None)
        query = {"watch": "true", **query}
        async with self._session.get(self._server + path, params=query, ssl=self._ssl, timeout=endless) as response:
            if response.status >= 400:
                raise StatusError(response.status, await response.json())
            yield (json.loads(line) async for line in response.content)

    async def path(
        self, api_version: str, kind: str, namespace: str = "", name: str = "", subresource: str = ""
    ) -> str:
        """Return the URL path of a collection, of an object, or of its subresource."""
        resource = await self._resource(api_version, kind)
        parts = [_base(api_version)]
        if namespace and resource["namespaced"]:
            parts += ["namespaces", namespace]
        return "/".join([*parts, resource["name"], *(part for part in (name, subresource) if part)])

    async def _path_of(self, document: Document, *, collection: bool = False) -> str:
        metadata = document["metadata"]
        name = "" if collection else metadata["name"]
        return await self.path(document["apiVersion"], document["kind"], metadata.get("namespace", "default"), name)

    async def _resource(self, api_version: str, kind: str) -> Document:
        if (api_version, kind) not in self._resources:
            answer = await self.request("GET", _base(api_version))
            found = [one for one in answer["resources"] if one["kind"] == kind and "/" not in one["name"]]
            if not found:
                raise LookupError(f"the API server has no {kind} in {api_version}")
            self._resources[api_version, kind] = found[0]
        return self._resources[api_version, kind]


def _base(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def _context(cluster: Mapping[str, str]) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=cluster["certificate-authority"])
