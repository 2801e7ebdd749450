"""A candidate for leadership, in either generation of DRA: probes, events, informers, the election."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import anyio

from kerf_dra.driver.controller.settings import Settings
from kerf_dra.driver.kube.events import EventReporter
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.informer import AnyInformer, start_informers
from kerf_dra.driver.kube.leader_election import run_as_leader
from kerf_dra.driver.runtime.metrics import REGISTRY
from kerf_dra.driver.runtime.probes import Probes

_HINT: Final = "are deploy/crds installed, and may this controller list it (deploy/manifests, deploy/classic)?"
"""The advice to an administrator when an informer's first list fails."""


async def run_candidate(
    client: Client,
    settings: Settings,
    events: EventReporter,
    informers: Mapping[str, AnyInformer],
    work: Callable[[], Awaitable[None]],
) -> None:
    """Run until cancelled, or until leadership is lost; ``work`` runs while this process leads.

    The informers run from the start, so that a new leader has warm caches; no decision is made before all first lists
    have arrived. Raises ApiError when a list does not arrive within ``startup_s``.
    """
    probes = Probes(REGISTRY)
    async with anyio.create_task_group() as group:
        await group.start(probes.serve, settings.probes)
        group.start_soon(events.run)
        await start_informers(group, informers, add_check=probes.add_check, within_s=settings.startup_s, hint=_HINT)
        await run_as_leader(client, settings.lease, settings.identity, settings.leading, work)
        group.cancel_scope.cancel()
