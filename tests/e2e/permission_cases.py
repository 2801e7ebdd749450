"""Requests of Kerf's service accounts to a real API server, and what it says: the cases of ``test_permissions`` and
``test_maintenance_policies``.

All writes are dry runs, which are authorized and admitted as others are.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final, Literal

from tests.e2e.wait import eventually
from tools.realcluster.api import Api, Document, StatusError
from tools.realcluster.cluster import Cluster
from tools.realcluster.kerf import CONTROLLER, PLUGIN, Kerf

Who = Literal["plugin", "plugin of bare1", "plugin without node", "controller"]
Verb = Literal["get", "list", "watch", "create", "replace", "patch", "delete"]
ALLOWED: Final = ""
CANNOT: Final = " cannot "
"""What RBAC says."""
_METHODS: Final = {"create": "POST", "replace": "PUT", "patch": "PATCH", "delete": "DELETE"}


@dataclass(frozen=True, slots=True)
class Case:
    """A request of one account; ``said`` is a part of the refusal, empty: it is allowed."""

    who: Who
    verb: Verb
    what: str
    """A path below the API server's root, with names of the cluster in braces."""
    said: str
    body: Document | None = None
    policy: str = ""
    """What the policy alone says, where other releases' API servers or roles refuse by themselves."""


@asynccontextmanager
async def clients(cluster: Cluster, kerf: Kerf, node1: Document, bare1: Document) -> AsyncIterator[Mapping[Who, Api]]:
    """Yield a client for each identity; ``node1`` and ``bare1`` are objects of these nodes that tokens are bound to."""
    bound: dict[Who, tuple[str, Document | None]] = {
        "plugin": (PLUGIN, node1),
        "plugin of bare1": (PLUGIN, bare1),
        "plugin without node": (PLUGIN, None),
        "controller": (CONTROLLER, None),
    }
    async with AsyncExitStack() as stack:
        opened: dict[Who, Api] = {}
        for who, (account, to) in bound.items():
            user = cluster.write_kubeconfig(who.replace(" ", "-"), {"token": await kerf.token(account, to)})
            opened[who] = await stack.enter_async_context(Api(user))
        yield opened


async def wait_said(client: Api, case: Case, said: str, code: str, **names: str) -> None:
    """Wait until the API server refuses the case with ``code`` and the words ``said``, or allows it where they are
    empty: it learns of roles and policies by watches.
    """

    async def answer() -> str:
        return await send(client, case, **names)

    async def is_said() -> bool:
        now = await answer()
        return said in now and now.startswith(code) if said else not now

    await eventually(f"{case.who}: {case.verb} {case.what}: {said or 'allowed'}", is_said, but=answer)


async def send(client: Api, case: Case, **names: str) -> str:
    """Return the refusal, empty: there is none; ``names`` replace what stands in braces in the path."""
    path = case.what.format(**names)
    query = {"watch": "true", "timeoutSeconds": "1"} if case.verb == "watch" else {}
    if case.verb in _METHODS:
        query = {"dryRun": "All"}
    body = case.body
    if case.verb == "replace":
        listed = await client.request("GET", path.rpartition("/")[0])
        (body,) = (one for one in listed["items"] if path.endswith(f"/{one['metadata']['name']}"))
        body["spec"]["devices"] = [{"name": "another"}]
    kind = "application/merge-patch+json" if case.verb == "patch" else "application/json"
    try:
        await client.request(_METHODS.get(case.verb, "GET"), path, body, query=query, content_type=kind)
    except StatusError as error:
        return str(error)
    return ""
