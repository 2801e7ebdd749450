"""Entry point of the controller process: it chooses the generation of DRA that the cluster has."""

import logging
from collections.abc import Mapping
from typing import Final

import anyio

from kerf_dra.api.errors import TransientError
from kerf_dra.driver import VERSION
from kerf_dra.driver.controller.settings import NAME, Settings
from kerf_dra.driver.families.base import Family
from kerf_dra.driver.families.registry import installed_families
from kerf_dra.driver.kube.api_changes import watch_features
from kerf_dra.driver.kube.discovery import ApiFeatures, ClassicFeatures, discover_any
from kerf_dra.driver.kube.events import EventReporter, report_undone_writes
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.config import load_access
from kerf_dra.driver.kube.http.write_history import WriteHistory
from kerf_dra.driver.runtime.backoff import Backoff

_RETRIES: Final = Backoff(first_s=0.5, factor=2, limit_s=15, jitter=0.2)
"""Back-off of a discovery that fails: it is soon done when the API server is back, and a dozen requests in three
minutes when it is not."""

_log = logging.getLogger(__name__)


async def run(settings: Settings) -> None:
    """Run the controller of the cluster's generation of DRA until cancelled.

    Raises FamilyUnavailableError or InvalidFamilyError for families that are installed wrongly, AccessError when the
    API server cannot be accessed, UnsupportedError when it has no usable DRA, or none with which ``reclaim`` works,
    ApiError when discovery fails for ``startup_s`` seconds, and ApiChangedError when the API server has become another
    one.
    """
    families = installed_families()
    access = await load_access(settings.kubeconfig, settings.context)
    history = WriteHistory()
    async with Client(access, user_agent=f"{NAME}/{VERSION}", history=history) as client:
        features = await _discover(client, within_s=settings.startup_s)
        async with anyio.create_task_group() as group:
            events = EventReporter(client, component=NAME, instance=settings.identity)
            group.start_soon(events.run)
            group.start_soon(report_undone_writes, history, events)
            group.start_soon(watch_features, client, features)
            await _run_generation(client, features, settings, families)
            group.cancel_scope.cancel()


async def _discover(client: Client, *, within_s: float) -> ApiFeatures | ClassicFeatures:
    """Discover what the API server serves, again and again while it does not say. Raises KerfError."""
    give_up_at = anyio.current_time() + within_s
    for delay_s in _RETRIES.delays():
        try:
            return await discover_any(client)
        except TransientError as error:
            if anyio.current_time() + delay_s > give_up_at:
                raise
            _log.warning("cannot find out what the API server serves: %s; again in %.1f s", error, delay_s)
            await anyio.sleep(delay_s)
    raise AssertionError("delays never end")


async def _run_generation(
    client: Client, features: ApiFeatures | ClassicFeatures, settings: Settings, families: Mapping[str, Family]
) -> None:
    if settings.reclaim is not None:
        from kerf_dra.driver.controller.reclaim.app import make_reclaim_controller  # which no other process needs

        await make_reclaim_controller(client, features, settings, settings.reclaim).run()
    elif isinstance(features, ClassicFeatures):
        from kerf_dra.driver.controller.classic.app import ClassicController  # the other generation is not imported

        if settings.extender is not None:
            _log.warning("the scheduler extender is disabled: on this Kubernetes, Kerf's controller allocates itself")
        await ClassicController(client, features, settings).run()
    else:
        from kerf_dra.driver.controller.structured.app import StructuredController

        await StructuredController(client, features, settings, families).run()
