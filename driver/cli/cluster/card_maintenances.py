"""What ``kerf drain`` and ``kerf undrain`` share: their argument, the names they print, and calls to the API server.

The state of a cluster is read as it is, not without annotations as for dumps: a mark on a pod says that it is not to be
evicted.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

import anyio
import click

from kerf_dra.api.core.policy import POD_DISRUPTION_BUDGETS, PodDisruptionBudget
from kerf_dra.api.errors import UnsupportedError
from kerf_dra.api.kerf.card_maintenance import (
    CARD_MAINTENANCES,
    CardMaintenanceObject,
    MaintenancePhase,
    is_hook_name,
    is_named_card,
    maintenance_name,
)
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.allocation import Budget
from kerf_dra.driver.cli.output import print_text, wrap_sentence
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.collector import collect_state
from kerf_dra.driver.families.shared.node_labels import NODE_LABEL, make_node_label
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.config import load_access
from kerf_dra.driver.kube.http.errors import AlreadyExistsError, ForbiddenError, NotFoundError
from kerf_dra.driver.reclaim.cards import DrainableCard

_LONGEST_NAME: Final = 76
"""The longest name that fits into a line, behind its indent and before a comma: names are never broken."""
_POLL_S = 1.0
"""Seconds between two reads of a maintenance that is waited for."""
_ACTS: Final[Mapping[str, str]] = MappingProxyType(
    {"none": "None", "reset": "Reset", "mig-on": "MigOn", "mig-off": "MigOff", "hook": "Hook"}
)
ACTS: Final = ("none", "reset", "mig-on", "mig-off", "hook=NAME")
"""The values of ``--then``."""
_SEARCH_S = 10.0
"""Kube-scheduler's time limit for a node (gate DRASchedulerFilterTimeout)."""
_SEARCH_STEPS = 1_000_000
"""More steps than a search takes in that time, so that the time ends it."""


class CardArgument(NamedTuple):
    """The card that a command names."""

    node: str
    card: str
    """Its name, UUID or PCI address."""


class NodeCardParameter(click.ParamType[CardArgument]):
    """``NODE/CARD``."""

    name = "NODE/CARD"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> CardArgument:
        if isinstance(value, CardArgument):
            return value
        node, slash, card = str(value).partition("/")
        if not (node and slash and card):
            self.fail(f"{value!r} names no card: write NODE/CARD, such as node-1/gpu-0 or node-1/GPU-8f3a…", param, ctx)
        return CardArgument(node, card)


class FollowingActParameter(click.ParamType[JsonObject]):
    """What is done with the free card, as fields of the spec: ``reset``, ``mig-on``, ``mig-off``, ``hook=NAME``."""

    name = "ACT"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> JsonObject:
        if isinstance(value, Mapping):
            return dict(value)
        act, equals, hook = str(value).partition("=")
        then = _ACTS.get(act)
        if then is None or bool(equals) != (then == "Hook"):
            self.fail(f"{value!r} is none of {', '.join(ACTS)}", param, ctx)
        if equals and not is_hook_name(hook):
            self.fail(f"{hook!r} is no name of a hook: lower-case letters, digits and dashes", param, ctx)
        return {"then": then, "hook": hook} if equals else {"then": then}


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainInput:
    """What is read of a cluster before a card is drained."""

    state: ClusterState
    disruption_budgets: Sequence[PodDisruptionBudget] | None
    """None: they may not be read."""
    maintenances: Sequence[CardMaintenanceObject]

    def build_index(self) -> ClusterIndex:
        """Return the index of the cluster, with the limits of its searches."""
        return ClusterIndex(self.state, budget=Budget(steps=_SEARCH_STEPS, seconds=_SEARCH_S, clock=time.monotonic))


def require_maintenance(state: ClusterState) -> None:
    """Raise UnsupportedError on a cluster where CardMaintenances withhold no card."""
    if state.classic is not None:
        raise UnsupportedError(
            f"cards can be drained from Kubernetes 1.32 on: this cluster has {state.kubernetes}, where Kerf's "
            "controller allocates claims and CardMaintenances withhold no card"
        )


async def read_input(kubeconfig: Path | None, context: str | None) -> DrainInput:
    """Read what a plan needs. Raises KerfError."""
    async with Client(await load_access(kubeconfig, context), user_agent="kerf-drain") as client:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        state = await collect_state(client, lambda: now)
        require_maintenance(state)
        try:
            budgets: Sequence[PodDisruptionBudget] | None = (await client.list(POD_DISRUPTION_BUDGETS)).items
        except (ForbiddenError, NotFoundError):
            budgets = None
        return DrainInput(state=state, disruption_budgets=budgets, maintenances=await list_maintenances(client))


async def list_maintenances(client: Client) -> Sequence[CardMaintenanceObject]:
    """List all CardMaintenances. Raises UnsupportedError where their definition is not installed, and ApiError."""
    try:
        return (await client.list(CARD_MAINTENANCES)).items
    except NotFoundError as error:
        raise UnsupportedError(
            "the kind CardMaintenance is not installed: apply deploy/crds, or the chart with crds.install"
        ) from error


def find_maintenance(
    maintenances: Sequence[CardMaintenanceObject], node: str, uuid: str, pci_address: str
) -> CardMaintenanceObject | None:
    """Return the oldest maintenance of a card; None: there is none."""
    found = list_maintenances_of(maintenances, node, uuid, pci_address)
    return min(found, key=lambda each: (each.metadata.creation_timestamp or "", each.metadata.name), default=None)


def list_maintenances_of(
    maintenances: Sequence[CardMaintenanceObject], node: str, uuid: str, pci_address: str
) -> list[CardMaintenanceObject]:
    """Return the maintenances of a card."""
    return [
        each
        for each in maintenances
        if each.spec.get("nodeName") == node and is_named_card(str(each.spec.get("card", "")), uuid, pci_address)
    ]


async def create_maintenance(
    kubeconfig: Path | None, context: str | None, card: DrainableCard, spec: JsonObject
) -> CardMaintenanceObject:
    """Create the maintenance of a card, or return the one that another caller has just created. Raises ApiError."""
    name = maintenance_name(card.node, card.uuid)
    metadata = ObjectMeta(name=name, labels={NODE_LABEL: make_node_label(card.node)})
    value = CardMaintenanceObject(metadata=metadata, spec={"nodeName": card.node, "card": card.uuid, **spec})
    async with Client(await load_access(kubeconfig, context), user_agent="kerf-drain") as client:
        try:
            return await client.create(CARD_MAINTENANCES, value)
        except AlreadyExistsError:
            return await client.get(CARD_MAINTENANCES, name)


def name_maintenances(names: Sequence[str]) -> str:
    """Return the maintenances of a card as sentences have them: by name where all names fit into lines.

    The name that ``kerf drain`` gives has the node and the UUID in it, so that it may be longer.

    >>> name_maintenances(["fan"]), name_maintenances(["node-1." + "0" * 70]), name_maintenances(["fan", "0" * 77])
    ('CardMaintenance fan', 'its CardMaintenance', 'its 2 CardMaintenances')
    """
    if all(len(each) <= _LONGEST_NAME for each in names):
        return f"CardMaintenance {', '.join(names)}"
    return "its CardMaintenance" if len(names) == 1 else f"its {len(names)} CardMaintenances"


def wanted_phase(held: CardMaintenanceObject) -> MaintenancePhase:
    """Return the phase in which nothing more follows by itself."""
    return "Free" if held.spec.get("then", "None") == "None" else "Returned"


async def wait_for_end(
    kubeconfig: Path | None, context: str | None, held: CardMaintenanceObject, timeout_s: float
) -> CardMaintenanceObject | None:
    """Wait until a maintenance has its last phase or is Stuck, at most ``timeout_s`` seconds; returns it as it was seen
    last.

    None: it was deleted meanwhile. What changes until then goes to standard error. Raises ApiError.
    """
    async with Client(await load_access(kubeconfig, context), user_agent="kerf-drain") as client:
        seen: CardMaintenanceObject | None = held
        reported = ""
        with anyio.move_on_after(timeout_s):
            while seen is not None and seen.status.phase not in (wanted_phase(held), "Stuck"):
                await anyio.sleep(_POLL_S)
                seen = await client.find(CARD_MAINTENANCES, held.metadata.name)
                if seen is not None and (now := _summarize(seen)) != reported:
                    print_text("\n".join(wrap_sentence(now)), err=True)
                    reported = now
        return seen


def _summarize(held: CardMaintenanceObject) -> str:
    """Return in one line how far a maintenance is."""
    if held.status.phase is None:
        return "waiting for `kerf controller --reclaim`, which has written no status yet"
    if held.status.phase in ("Acting", "Verifying", "Returned"):
        return f"{held.status.phase}: {held.status.message}"
    return f"{held.status.phase}, held by {held.status.holder_count}"


async def delete_maintenances(
    kubeconfig: Path | None, context: str | None, found: Sequence[CardMaintenanceObject]
) -> None:
    """Delete these maintenances, unless they are gone. Raises ApiError."""
    async with Client(await load_access(kubeconfig, context), user_agent="kerf-undrain") as client:
        for each in found:
            try:
                await client.delete(CARD_MAINTENANCES, each.metadata.name, uid=each.metadata.uid)
            except NotFoundError:
                continue
