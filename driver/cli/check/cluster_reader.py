"""Reads the facts that `kerf check` judges from an API server."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from random import Random
from typing import Final, NamedTuple, TypeVar

import anyio

from kerf_dra.api.core.authorization import (
    SELF_SUBJECT_ACCESS_REVIEWS,
    SUBJECT_ACCESS_REVIEWS,
    AccessReviewSpec,
    ResourceAttributes,
    SelfSubjectAccessReview,
    SubjectAccessReview,
)
from kerf_dra.api.core.v1 import (
    CUSTOM_RESOURCE_DEFINITIONS,
    NODE_SETUPS,
    PODS,
    CustomResourceDefinition,
    NodeSetup,
    Pod,
)
from kerf_dra.api.errors import KerfError
from kerf_dra.api.kerf.v1alpha1 import RESOURCE_CLASSES, ResourceClassObject
from kerf_dra.api.model.claims import DeviceClass, ResourceClaim
from kerf_dra.api.model.classic import ClassicClaim
from kerf_dra.api.model.devices import DeviceTaintRule, ResourceSlice
from kerf_dra.driver.diagnostics.extended_resources.offered_resources import find_offered
from kerf_dra.driver.diagnostics.preflight.cluster import (
    CLASSIC_KINDS,
    STRUCTURED_KINDS,
    ClusterFacts,
    parse_feature_gates,
)
from kerf_dra.driver.diagnostics.preflight.memory import OWN_PODS
from kerf_dra.driver.diagnostics.preflight.permissions import (
    RECLAIMER,
    AccountReview,
    Permission,
    controller_permissions,
    plugin_permissions,
    reclaimer_permissions,
)
from kerf_dra.driver.diagnostics.preflight.results import Unread
from kerf_dra.driver.diagnostics.preflight.uninstall import UninstallFacts
from kerf_dra.driver.families.registry import BUILT_IN, installed_families
from kerf_dra.driver.kube.discovery import discover, discover_classic, list_versions, parse_version
from kerf_dra.driver.kube.http.client import Client, ListResult
from kerf_dra.driver.kube.http.config import load_access
from kerf_dra.driver.kube.http.credentials import Access
from kerf_dra.driver.kube.http.errors import NotFoundError
from kerf_dra.driver.kube.http.transport import ClientSettings, HttpRequest, HttpTransport
from kerf_dra.driver.runtime.lifecycle import iter_leaf_errors

T = TypeVar("T")

_USER_AGENT: Final = "kerf-check"
_HALF_A_SECOND: Final = timedelta(seconds=0.5)
"""What the header Date, in whole seconds, has cut off on average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """The service accounts of Kerf's programs."""

    namespace: str
    controller: str
    plugins: tuple[str, ...]


class Connection(NamedTuple):
    """A client, and what its first answer contained."""

    client: Client
    transport: HttpTransport
    release: str
    kubernetes: tuple[int, int]
    skew_s: float | None
    """By how many seconds the API server's clock is ahead of this machine's."""


@asynccontextmanager
async def connect(access: Access, now: Callable[[], datetime]) -> AsyncIterator[Connection]:
    """Connect to the API server and ask for its version. Raises ApiError, AccessError and UnsupportedError."""
    transport = HttpTransport(
        access,
        user_agent=_USER_AGENT,
        settings=ClientSettings(),
        random=Random(),  # noqa: S311  (jitter, not a secret)
    )
    async with Client(access, user_agent=_USER_AGENT, transport=transport) as client:
        await client.get_json("/version")  # the first call has the connection and its TLS in its time
        sent = now()
        version = await client.get_json("/version")
        received = now()
        yield Connection(
            client=client,
            transport=transport,
            release=str(version.get("gitVersion", "")) or "of an unknown version",
            kubernetes=parse_version(version),
            skew_s=_find_skew(transport.server_date, sent + (received - sent) / 2),
        )


def _find_skew(date: str | None, now: datetime) -> float | None:
    try:
        server = parsedate_to_datetime(date or "")
    except ValueError:
        return None
    return (server + _HALF_A_SECOND - now).total_seconds() if server.tzinfo is not None else None


async def read_cluster(
    kubeconfig: Path | None, context: str | None, accounts: Accounts, now: Callable[[], datetime]
) -> ClusterFacts:
    """Read the facts of a cluster.

    What the caller may not read is Unread. Raises AccessError, and ApiError when the API server does not answer.
    """
    access = await load_access(kubeconfig, context)
    async with connect(access, now) as connection:
        client = connection.client
        is_classic = await discover_classic(client) is not None
        needed = _list_needed(accounts, connection.kubernetes, is_classic=is_classic)
        return ClusterFacts(
            kubernetes=connection.kubernetes,
            release=connection.release,
            served=frozenset(await list_versions(client)),
            is_classic=is_classic,
            gates=await _read_gates(connection.transport),
            definitions=await read_or_unread(
                _read_definitions(client, CLASSIC_KINDS if is_classic else STRUCTURED_KINDS)
            ),
            reviews=await read_or_unread(_review_accounts(client, accounts.namespace, needed)),
            reclaimer=None if is_classic else await read_or_unread(_review_reclaimer(client, accounts.namespace)),
            nodes=await read_or_unread(_list_nodes(client)),
            slices=() if is_classic else await read_or_unread(list_slices(client)),
            claims=() if is_classic else await read_or_unread(_list_structured_claims(client)),
            classes=await read_or_unread(_list_classes(client)),
            device_classes=() if is_classic else await read_or_unread(_list_device_classes(client)),
            taint_rules=() if is_classic else await read_or_unread(_list_taint_rules(client)),
            pods=await read_or_unread(_list_own_pods(client, accounts.namespace)),
            own_drivers=frozenset(family.driver for family in installed_families().values()),
            retired={each.driver: each.retired for each in installed_families().values() if each.retired},
            skew_s=connection.skew_s,
        )


async def read_uninstall(
    kubeconfig: Path | None, context: str | None, drivers: Iterable[str], now: Callable[[], datetime]
) -> UninstallFacts:
    """Read whether ``drivers`` have claims. Raises AccessError, and ApiError when the API server does not answer."""
    access = await load_access(kubeconfig, context)
    async with connect(access, now) as connection:
        listed = await read_or_unread(_list_claims(connection.client))
        resources = await _find_resources(connection.client, frozenset(drivers))
        pods = await read_or_unread(_list_pods(connection.client)) if resources else ()
    if isinstance(listed, Unread):
        return UninstallFacts(claims=listed, drivers=frozenset(drivers), resources=resources, pods=pods)
    claims = tuple(claim for found in listed for claim in found.items)
    unreadable = tuple(sorted(str(ref) for found in listed for ref in found.unreadable))
    return UninstallFacts(
        claims=claims, unreadable=unreadable, drivers=frozenset(drivers), resources=resources, pods=pods
    )


async def _find_resources(client: Client, drivers: frozenset[str]) -> frozenset[str]:
    """Return what classes of ``drivers`` offer by the device plugin interface; those of unknown families, too."""
    families = installed_families()
    classes = await read_or_unread(_list_classes(client))
    return frozenset(
        each.name
        for held in (() if isinstance(classes, Unread) else classes)
        if (family := families.get(str(held.spec.get("device")))) is None or family.driver in drivers
        for each in find_offered([held], ())
    )


async def _list_pods(client: Client) -> Sequence[Pod]:
    return (await client.list(PODS)).items


async def _list_claims(client: Client) -> Sequence[ListResult[ResourceClaim] | ListResult[ClassicClaim]]:
    """Return the claims of all namespaces; none where DRA is off. Raises UnsupportedError and ApiError."""
    if not await list_versions(client):
        return ()
    classic = await discover_classic(client)
    if classic is not None:
        return [await client.list_all(classic.resource.claims)]
    api = await discover(client)
    return [await client.list_all(api.resource.resource_claims)]


async def _list_device_classes(client: Client) -> Sequence[DeviceClass]:
    """Return all DeviceClasses. Raises UnsupportedError and ApiError."""
    return (await client.list((await discover(client)).resource.device_classes)).items


async def _list_taint_rules(client: Client) -> Sequence[DeviceTaintRule]:
    """Return the rules of all drivers; none where the API server does not serve them. Raises ApiError."""
    kind = (await discover(client)).device_taint_rules
    return () if kind is None else (await client.list(kind)).items


async def _list_own_pods(client: Client, namespace: str) -> Sequence[Pod]:
    return (await client.list(PODS, namespace, label_selector=OWN_PODS)).items


async def _list_structured_claims(client: Client) -> Sequence[ResourceClaim]:
    """Return the claims of all namespaces where the scheduler allocates. Raises UnsupportedError and ApiError."""
    return (await client.list_all((await discover(client)).resource.resource_claims)).items


async def read_or_unread(reading: Awaitable[T]) -> T | Unread:
    """Return what ``reading`` returns, or why the API server did not give it."""
    try:
        return await reading
    except (KerfError, BaseExceptionGroup) as error:
        leaves = list(iter_leaf_errors(error))
        if not all(isinstance(leaf, KerfError) for leaf in leaves):
            raise
        return Unread(reason="; ".join(dict.fromkeys(map(str, leaves))))


async def list_slices(client: Client, node_name: str = "") -> Sequence[ResourceSlice]:
    """Return the slices of all drivers, or those of one node. Raises UnsupportedError and ApiError."""
    api = await discover(client)
    selector = f"spec.nodeName={node_name}" if node_name else ""
    return (await client.list(api.resource.resource_slices, field_selector=selector)).items


async def review_self(client: Client, needed: Sequence[Permission]) -> AccountReview:
    """Return what the caller may do of ``needed``. Raises ApiError."""

    async def is_allowed(permission: Permission) -> bool:
        spec = AccessReviewSpec(resource_attributes=_attributes(permission))
        review = await client.create(SELF_SUBJECT_ACCESS_REVIEWS, SelfSubjectAccessReview(spec=spec))
        return review.status.allowed

    return AccountReview(account="", needed=needed, denied=await _find_denied(needed, is_allowed))


def _list_needed(
    accounts: Accounts, kubernetes: tuple[int, int], *, is_classic: bool
) -> Mapping[str, Sequence[Permission]]:
    """Return what each service account needs."""
    drivers = [family.driver for family in BUILT_IN]
    plugin = plugin_permissions(drivers, minor=kubernetes[1], is_classic=is_classic)
    controller = controller_permissions(accounts.namespace, is_classic=is_classic)
    return {accounts.controller: controller} | dict.fromkeys(accounts.plugins, plugin)


async def _read_gates(transport: HttpTransport) -> Mapping[str, bool] | Unread:
    request = HttpRequest(method="GET", path="/metrics", resource="metrics")
    text = await read_or_unread(transport.call(request))
    return text if isinstance(text, Unread) else parse_feature_gates(text.decode(errors="replace"))


async def _read_definitions(client: Client, names: Iterable[str]) -> Mapping[str, CustomResourceDefinition | None]:
    found: dict[str, CustomResourceDefinition | None] = {}
    for name in names:
        try:
            found[name] = await client.get(CUSTOM_RESOURCE_DEFINITIONS, name)
        except NotFoundError:
            found[name] = None
    return found


async def _list_nodes(client: Client) -> Sequence[NodeSetup]:
    return (await client.list(NODE_SETUPS)).items


async def _list_classes(client: Client) -> Sequence[ResourceClassObject]:
    try:
        return (await client.list(RESOURCE_CLASSES)).items
    except NotFoundError:
        return ()  # the check of definitions says so


async def _review_accounts(
    client: Client, namespace: str, needed: Mapping[str, Sequence[Permission]]
) -> Sequence[AccountReview]:
    """Ask what each service account of ``namespace`` may do. Raises ApiError."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    reviews: list[AccountReview] = []
    for name, permissions in needed.items():
        user = f"system:serviceaccount:{namespace}:{name}"

        async def is_allowed(permission: Permission, user: str = user) -> bool:
            spec = AccessReviewSpec(resource_attributes=_attributes(permission), user=user, groups=groups)
            review = await client.create(SUBJECT_ACCESS_REVIEWS, SubjectAccessReview(spec=spec))
            return review.status.allowed

        denied = await _find_denied(permissions, is_allowed)
        reviews.append(AccountReview(account=f"{namespace}/{name}", needed=permissions, denied=denied))
    return reviews


async def _review_reclaimer(client: Client, namespace: str) -> AccountReview:
    """Ask what the reclaimer's account may do. Raises ApiError."""
    [review] = await _review_accounts(client, namespace, {RECLAIMER: reclaimer_permissions(namespace)})
    return review


async def _find_denied(
    needed: Sequence[Permission], is_allowed: Callable[[Permission], Awaitable[bool]]
) -> frozenset[Permission]:
    denied: set[Permission] = set()

    async def ask(permission: Permission) -> None:
        if not await is_allowed(permission):
            denied.add(permission)

    async with anyio.create_task_group() as tasks:
        for permission in needed:
            tasks.start_soon(ask, permission)
    return frozenset(denied)


def _attributes(permission: Permission) -> ResourceAttributes:
    resource, _, subresource = permission.resource.partition("/")
    return ResourceAttributes(
        verb=permission.verb,
        group=permission.group,
        resource=resource,
        subresource=subresource,
        namespace=permission.namespace,
        name=permission.name,
    )
